"""The `dlq` commands that read dead letters: list, show, groups. Secrets are masked without --reveal."""

from __future__ import annotations

import base64
import dataclasses
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from producer_core._internal.masking import display_key, display_value, mask_headers, mask_text
from producer_core._internal.plural import plural
from producer_core.cli import options, output
from producer_core.cli.dlq import filter_options
from producer_core.cli.lazy_group import Failed

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from producer_core.dlq import DeadLetters, PageCursor
    from producer_core.dlq.timeline import TimelineEvent
    from producer_core.dlq.trace_link import RecordTrace
    from producer_core.events import DeadLetter
    from producer_core.store import Store

_reveal = click.option(
    "--reveal", is_flag=True, help="Unmask secrets, card numbers and addresses; audit-logged."
)


@click.command(name="list", short_help="List dead letters.")
@filter_options.filter_and_state_options
@click.option(
    "--limit",
    type=options.NO_ROWS,
    default=50,
    show_default=True,
    help="Maximum number of dead letters, latest first.",
)
@click.option("--offset", type=options.NO_ROWS, default=0, help="Number of dead letters to skip.")
@click.option("--after", help="Continue after a page: the value of its `next`.")
@_reveal
@options.store_option
@options.as_json
def list_(
    store_path: Path | None,
    limit: int,
    offset: int,
    after: str | None,
    reveal: bool,
    as_json: bool,
    **given: Any,
) -> None:
    """List dead letters without their values, latest first.

    \b
      producer-core dlq list --topic orders --since 1h
      producer-core dlq list --json --limit 10 | jq .total

    The JSON object is {"total": number of matches, "records": [...], "next": start of the next page, or null}; times
    are seconds since 1970. With --body, "total" counts the matches of the other options, and "search" describes how
    much was searched. --after is equally fast on every page; --offset is not.

    Keys and error texts are masked (values and headers too, in "dlq show"): by field names such as password, token or
    card_number, and by patterns for email addresses, card numbers and credentials. The file named by
    PRODUCER_CORE_MASKING adds names and patterns.
    """
    from producer_core.dlq import PageCursor

    _, dead, where = _opened(store_path, given)
    cursor = None if after is None else PageCursor.parse(after)
    if where.body is not None:
        _search(dead, where, limit=limit, after=cursor, reveal=reveal, as_json=as_json)
        return
    total = dead.count(where)
    rows = dead.table(where, limit=limit + 1, offset=offset, after=cursor).to_pylist()
    rows, next_page = rows[:limit], _next_page(rows, limit)
    if reveal and rows:
        ids = [row["message_id"] for row in rows]
        dead.reveal(ids, who=options.current_user(), origin="cli", selection=where.to_query())
    records = [_record(row, reveal=reveal) for row in rows]
    if as_json:
        output.emit({"total": total, "records": records, "next": next_page})
    elif not total:
        output.say("No dead letters match.")
    elif not limit:
        output.say(f"{plural(total, 'dead letter matches', 'dead letters match')}.")
    else:
        _list(records)
        if total > len(records):
            output.say(f"{len(records):,} of {total:,}. {_more(next_page)}")


def _search(
    dead: DeadLetters,
    where: Any,
    *,
    limit: int,
    after: PageCursor | None,
    reveal: bool,
    as_json: bool,
) -> None:
    """List the results of a search in bodies, with the extent of the search."""
    from producer_core.dlq import DeadLetterFilter

    found = dead.search(where, limit=limit, after=after)
    ids = [dead_letter.message_id for dead_letter in found.dead_letters]
    if reveal and ids:
        dead.reveal(ids, who=options.current_user(), origin="cli", selection=where.to_query())
    listed = (
        dead.table(DeadLetterFilter(state=None, ids=tuple(ids)), limit=len(ids)).to_pylist() if ids else []
    )
    records = [_record(row, reveal=reveal) for row in listed]
    next_page = str(found.next) if found.next else None
    if as_json:
        search = {
            "looked_at": found.looked_at,
            "of": found.of,
            "complete": found.complete,
            "text": found.text,
        }
        output.emit({"total": found.of, "records": records, "next": next_page, "search": search})
        return
    if records:
        _list(records)
    output.say(found.text if next_page is None else f"{found.text} {_more(next_page)}")


def _next_page(rows: Sequence[dict[str, Any]], limit: int) -> str | None:
    """Return the cursor of the page after the first `limit` rows; None on the last page."""
    if not 0 < limit < len(rows):
        return None
    from producer_core.dlq import PageCursor

    return str(PageCursor(rows[limit - 1]["failed_at"], rows[limit - 1]["message_id"]))


def _more(next_page: str | None) -> str:
    return f"Next page: --after {next_page}" if next_page else "This is the last page."


@click.command(short_help="Show one dead letter with its history.")
@click.argument("message_id")
@_reveal
@options.store_option
@options.as_json
def show_(message_id: str, store_path: Path | None, reveal: bool, as_json: bool) -> None:
    """Show one dead letter: its value, headers, verdict and history.

    The history lists the acceptance, each attempt, each failure, every replay with its outcome, and the actions of
    operators. Secrets are masked as described in "producer-core dlq list --help"; --reveal is recorded in the audit log
    before anything is shown.

    \b
      producer-core dlq show 019a2b3c-...-17
      producer-core dlq show 019a2b3c-...-17 --reveal --json | jq -r .value_base64 | base64 -d
    """
    from producer_core.dlq.timeline import timeline
    from producer_core.dlq.trace_link import trace_of

    store, dead, _ = _opened(store_path, {})
    dead_letter = dead.get(message_id)
    if dead_letter is None:
        raise Failed(f"Dead letter {message_id} does not exist.", "See producer-core dlq list --state any.")
    if reveal:
        dead.reveal(
            [message_id], who=options.current_user(), origin="cli", selection={"message_id": message_id}
        )
    history, trace = timeline(store, message_id), trace_of(store, dead_letter)
    if as_json:
        body = _to_json(dead_letter, history, reveal=reveal)
        output.emit({**body, "trace": None if trace is None else trace._asdict()})
    else:
        _print(dead_letter, history, trace, reveal=reveal)


@click.command(short_help="Group dead letters by cause, with advice.")
@filter_options.filter_and_state_options
@click.option("--limit", type=options.ROWS, default=20, show_default=True, help="Maximum number of groups.")
@options.store_option
@options.as_json
def groups(store_path: Path | None, limit: int, as_json: bool, **given: Any) -> None:
    """Group dead letters by cause, largest group first, with their number over time and advice.

    \b
      producer-core dlq groups
      producer-core dlq groups --topic orders --since 1d

    The JSON object is {"total": number of matching dead letters, "groups": [...]}.
    """
    _, dead, where = _opened(store_path, given)
    found = dead.groups(where, limit=limit)
    total = dead.count(where)
    if as_json:
        output.emit(
            {"total": total, "groups": [_masked_group(group) for group in map(dataclasses.asdict, found)]}
        )
        return
    if not found:
        output.say("No dead letters match.")
        return
    output.say(f"{plural(total, 'dead letter')} with {plural(len(found), 'cause')}:")
    for group in found:
        output.say(
            f"\n{group.count:,} x {group.code}  in {', '.join(group.topics)}  (group {group.fingerprint})"
        )
        output.say(f"  {output.shorten(mask_text(group.sample_text), 110)}")
        verdicts = ", ".join(f"{number:,} {verdict}" for verdict, number in group.verdicts.items())
        output.say(f"  {verdicts}; first {output.ago(group.first_seen)}, last {output.ago(group.last_seen)}")
        output.say(
            f"  {output.sparkline(group.trend.counts)}  {output.duration(group.trend.width)} per bar, from "
            f"{output.moment(group.trend.start)}"
        )
        if group.advice:
            output.say(f"  {group.advice}")


_NOT_REPLAYABLE = "This input never became a message, so it cannot be replayed."

show_.name = "show"
COMMANDS = (list_, show_, groups)


def _opened(store_path: Path | None, given: dict[str, Any]) -> tuple[Store, DeadLetters, Any]:
    from producer_core.dlq import DeadLetters
    from producer_core.store import Store

    store = Store.open(store_path, create=False)
    return store, DeadLetters(store), filter_options.chosen(given)


def _record(row: dict[str, Any], *, reveal: bool) -> dict[str, Any]:
    """Return a row for the list. The key is text, or hexadecimal where it is not text."""
    text = _unchanged if reveal else mask_text
    record = {name: value for name, value in row.items() if name != "key"}
    record["key"] = display_key(row["key"], reveal=reveal)
    for name in ("error_text", "verdict_reason", "source"):
        record[name] = row[name] and text(row[name])
    record["group"] = row["fingerprint"]
    return record


_OUTDATED_VERDICT = {"replaying": "(replaying)", "replayed": "(replayed)", "landed": "(on the topic)"}
"""By state, what is shown instead of the verdict on the failure, which does not hold for a record that a replay has sent."""


def _unchanged(text: str) -> str:
    return text


def _masked_group(group: dict[str, Any]) -> dict[str, Any]:
    return {**group, "group": group["fingerprint"], "sample_text": mask_text(group["sample_text"])}


def _list(records: list[dict[str, Any]]) -> None:
    rows = [
        {
            "message": row["message_id"],
            "topic": row["topic"],
            "key": output.shorten(row["key"] or "-", 24),
            "failed": output.ago(row["failed_at"]),
            "verdict": _OUTDATED_VERDICT.get(row["state"], row["verdict"]),
            "code": row["code"],
            "error": output.shorten(row["source"] or row["error_text"], 60),
        }
        for row in records
    ]
    columns = (
        [name for name in rows[0] if name != "key" or any(row["key"] != "-" for row in rows)] if rows else []
    )
    output.table(columns, [[row[name] for name in columns] for row in rows], shrink={*columns} - {"message"})


def _to_json(dead_letter: DeadLetter, history: Sequence[TimelineEvent], *, reveal: bool) -> dict[str, Any]:
    text = _unchanged if reveal else mask_text
    body = {
        name: value
        for name, value in dataclasses.asdict(dead_letter).items()
        if name not in ("value", "headers")
    }
    for name in ("error_text", "verdict_reason", "source"):
        body[name] = body[name] and text(body[name])
    body["group"] = dead_letter.fingerprint
    body["key"] = display_key(dead_letter.key, reveal=reveal)
    body["attempts"] = [{**attempt, "text": text(attempt["text"])} for attempt in body["attempts"]]
    body["headers"] = mask_headers(dead_letter.headers, reveal=reveal)
    body["value"] = display_value(dead_letter.value, reveal=reveal)
    body["value_size"] = None if dead_letter.value is None else len(dead_letter.value)
    body["timeline"] = [{**dataclasses.asdict(event), "text": text(event.text)} for event in history]
    if reveal:
        body["value_base64"] = (
            None if dead_letter.value is None else base64.b64encode(dead_letter.value).decode()
        )
    return {**body, "masked": not reveal}


def _print(
    dead_letter: DeadLetter, history: Sequence[TimelineEvent], trace: RecordTrace | None, *, reveal: bool
) -> None:
    text = _unchanged if reveal else mask_text
    partition = "" if dead_letter.partition is None else f", partition {dead_letter.partition}"
    output.pairs(
        [
            ("message", dead_letter.message_id),
            ("topic", f"{dead_letter.topic}{partition}"),
            ("key", _key(dead_letter, reveal=reveal)),
            ("state", dead_letter.state + (", quarantined" if dead_letter.quarantined else "")),
            ("verdict", f"{dead_letter.verdict}: {text(dead_letter.verdict_reason)}"),
            ("error", f"{dead_letter.code}: {text(dead_letter.error_text)}"),
            ("group", dead_letter.fingerprint),
            ("producer", f"{dead_letter.producer_id} on {dead_letter.host or 'an unknown host'}, version {dead_letter.version or '?'}"),
            ("failed", f"{output.moment(dead_letter.failed_at)} ({output.ago(dead_letter.failed_at)})"),
            ("replays", f"{dead_letter.replay_count} failed" if dead_letter.replay_count else "none"),
        ]
        + ([("source", text(dead_letter.source))] if dead_letter.source else [])
        + ([] if trace is None else [("trace", _trace_text(trace))])
        + ([] if dead_letter.replayable else [("note", _NOT_REPLAYABLE)])
    )  # fmt: skip
    _print_history(history, text)
    _print_content(dead_letter, reveal=reveal)
    if not reveal:
        output.say("Secrets, card numbers and addresses are masked; use --reveal to show them.", err=True)


def _trace_text(trace: RecordTrace) -> str:
    if not trace.sampled:
        return f"{trace.trace_id} (not sampled)"
    return trace.trace_id if trace.link is None else f"{trace.trace_id}  {trace.link}"


def _print_history(history: Sequence[TimelineEvent], text: Callable[[str], str]) -> None:
    """Print the timeline, one event per line, with the operator if there is one."""
    output.say("\nhistory:")
    for event in history:
        by = f" ({event.who})" if event.who and event.what not in ("accepted", "read") else ""
        output.say(f"  {output.moment(event.at)}  {event.what}{by}: {text(event.text)}")


def _print_content(dead_letter: DeadLetter, *, reveal: bool) -> None:
    import orjson

    output.say("")
    for name, value in mask_headers(dead_letter.headers, reveal=reveal):
        output.say(f"header {name}: {value}")
    value = display_value(dead_letter.value, reveal=reveal)
    output.say(
        f"value ({'a tombstone' if dead_letter.value is None else output.size(len(dead_letter.value))}):"
    )
    output.say(value if isinstance(value, str) else orjson.dumps(value, option=orjson.OPT_INDENT_2).decode())


def _key(dead_letter: DeadLetter, *, reveal: bool) -> str:
    key = display_key(dead_letter.key, reveal=reveal)
    return "none" if key is None else key or "(empty)"
