"""The `dlq` commands that list dead letters: list and groups. Secrets are masked without --reveal."""

from __future__ import annotations

import dataclasses
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from producer_core._internal.masking import mask_text
from producer_core._internal.plural import plural, them
from producer_core.cli import options, output
from producer_core.cli.dlq import filter_options

if TYPE_CHECKING:
    from collections.abc import Sequence

    from producer_core._internal.schema_id import Headers
    from producer_core.dlq import DeadLetters, PageCursor
    from producer_core.kafka.schemas.decoder import SchemaDecoder
    from producer_core.store import Store


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
@filter_options.reveal_option
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
    are seconds since 1970, and "cluster_removed" says that the cluster no longer exists ("dlq clusters"). With --body, "total" counts the matches of the other options, and "search" describes how
    much was searched. --after is equally fast on every page; --offset is not.

    Keys and error texts are masked (values and headers too, in "dlq show"): by field names such as password, token or
    card_number, and by patterns for email addresses, card numbers and credentials. The file named by
    PRODUCER_CORE_MASKING adds names and patterns.
    """
    from producer_core.dlq import PageCursor

    store, dead, where = _opened(store_path, given)
    cursor = None if after is None else PageCursor.parse(after)
    if where.body is not None:
        _search(store, dead, where, limit=limit, after=cursor, reveal=reveal, as_json=as_json)
        return
    total = dead.count(where)
    rows = dead.table(where, limit=limit + 1, offset=offset, after=cursor).to_pylist()
    rows, next_page = rows[:limit], _next_page(rows, limit)
    if reveal and rows:
        ids = [row["message_id"] for row in rows]
        dead.reveal(ids, who=options.current_user(), origin="cli", selection=where.to_query())
    records = _records(rows, dead, store, reveal=reveal)
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
    store: Store,
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
    records = _records(listed, dead, store, reveal=reveal)
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

    A cause that was marked as resolved ("dlq resolve") has its history, and "back since VERSION" if it failed again.

    The JSON object is {"total": number of matching dead letters, "groups": [...]}; "resolution" of a group is null, or its
    state ("resolved", "back" or "reopened") with its history.
    """
    from producer_core.cli.dlq.resolve import status_json, status_lines
    from producer_core.store.resolved_causes import cause_statuses

    store, dead, where = _opened(store_path, given)
    found = dead.groups(where, limit=limit)
    total, statuses = dead.count(where), cause_statuses(store)
    if as_json:
        records = [
            {
                **_masked_group(dataclasses.asdict(group)),
                "resolution": status_json(statuses.get(group.fingerprint)),
            }
            for group in found
        ]
        output.emit({"total": total, "groups": records})
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
        if (status := statuses.get(group.fingerprint)) is not None:
            for line in status_lines(status):
                output.say(f"  {line}")


COMMANDS = (list_, groups)


def _opened(store_path: Path | None, given: dict[str, Any]) -> tuple[Store, DeadLetters, Any]:
    from producer_core.dlq import DeadLetters
    from producer_core.store import Store

    store = Store.open(store_path, create=False)
    return store, DeadLetters(store), filter_options.chosen(given)


def _records(
    rows: Sequence[dict[str, Any]], dead: DeadLetters, store: Store, *, reveal: bool
) -> list[dict[str, Any]]:
    from producer_core.dlq.displayed_body import decoder_of, keys_with_schema
    from producer_core.store.removed_clusters import removed_clusters

    decoder = decoder_of(store)
    headers = dead.headers(keys_with_schema((row["message_id"], row["key"]) for row in rows))
    removed = removed_clusters(store, time.time())
    return [
        {
            **_record(row, headers.get(row["message_id"], ()), decoder, reveal=reveal),
            "cluster_removed": row["cluster_id"] in removed,
        }
        for row in rows
    ]


def _record(row: dict[str, Any], headers: Headers, decoder: SchemaDecoder, *, reveal: bool) -> dict[str, Any]:
    """Return a row for the list. The key is text, decoded if it begins with a schema id; hexadecimal if revealed.

    A key whose schema id is only in a header is not decoded, because the headers of other keys are not read.
    """
    from producer_core.dlq.displayed_body import displayed_key

    text = _unchanged if reveal else mask_text
    record = {name: value for name, value in row.items() if name != "key"}
    record["key"] = displayed_key(row["key"], headers, decoder, topic=row["topic"], reveal=reveal).one
    for name in ("error_text", "verdict_reason", "source"):
        record[name] = row[name] and text(row[name])
    record["group"] = row["fingerprint"]
    return record


_OPTIONAL = ("key", "cluster")
"""Columns of the list that are left out if none of its rows has a value."""

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
            "cluster": "no longer exists" if row["cluster_removed"] else "-",
            "error": output.shorten(row["source"] or row["error_text"], 60),
        }
        for row in records
    ]
    columns = (
        [name for name in rows[0] if name not in _OPTIONAL or any(row[name] != "-" for row in rows)]
        if rows
        else []
    )
    output.table(columns, [[row[name] for name in columns] for row in rows], shrink={*columns} - {"message"})
    if number := sum(row["cluster_removed"] for row in records):
        output.say(
            f"{plural(number, 'dead letter is', 'dead letters are')} of a cluster that no longer exists, and no alert counts "
            f'{them(number)}. Archive {them(number)}, or use "dlq replay --to" with another cluster.'
        )
