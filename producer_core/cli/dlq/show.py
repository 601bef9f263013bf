"""The `dlq show` command: one dead letter with its content and history. Secrets are masked without --reveal."""

from __future__ import annotations

import base64
import dataclasses
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import click

from producer_core._internal.masking import mask_headers, mask_text
from producer_core.cli import options, output, registry_options
from producer_core.cli.dlq import filter_options
from producer_core.cli.lazy_group import Failed

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from producer_core.dlq.displayed_body import DisplayedBody
    from producer_core.dlq.timeline import TimelineEvent
    from producer_core.dlq.trace_link import RecordTrace
    from producer_core.events import DeadLetter
    from producer_core.store import Store

_REMOVED = ", which no longer exists"
_NOT_REPLAYABLE = "This input never became a message, so it cannot be replayed until it is edited."


@click.command(short_help="Show one dead letter with its history.")
@click.argument("message_id")
@filter_options.reveal_option
@registry_options.registry_options
@options.store_option
@options.as_json
def show_(
    message_id: str,
    url: str | None,
    settings: tuple[tuple[str, str], ...],
    config_file: Path | None,
    store_path: Path | None,
    reveal: bool,
    as_json: bool,
) -> None:
    """Show one dead letter: its value, headers, verdict and history.

    The history lists the acceptance, each attempt, each failure, every replay with its outcome, and the actions of
    operators. Secrets are masked as described in "producer-core dlq list --help"; --reveal is recorded in the audit log
    before anything is shown.

    A key or value with a schema id is decoded with --schema-registry, else the registry of the environment variables
    PRODUCER_CORE_SCHEMA_REGISTRY_URL, ... or of the store ("producer-core store set schema_registry=URL"). If the registry
    does not provide the schema, its id, the size of the bytes and the reason are shown.

    \b
      producer-core dlq show 019a2b3c-...-17
      producer-core dlq show 019a2b3c-...-17 --reveal --json | jq -r .value_base64 | base64 -d
    """
    from producer_core.dlq import DeadLetters
    from producer_core.dlq.timeline import timeline
    from producer_core.dlq.trace_link import trace_of
    from producer_core.store import Store
    from producer_core.store.removed_clusters import removed_clusters

    store = Store.open(store_path, create=False)
    dead = DeadLetters(store)
    dead_letter = dead.get(message_id)
    if dead_letter is None:
        raise Failed(f"Dead letter {message_id} does not exist.", "See producer-core dlq list --state any.")
    if reveal:
        dead.reveal(
            [message_id], who=options.current_user(), origin="cli", selection={"message_id": message_id}
        )
    history, trace = timeline(store, message_id), trace_of(store, dead_letter)
    content = _content(
        dead_letter, store, registry_options.chosen_registry(url, settings, config_file), reveal
    )
    removed = dead_letter.cluster_id in removed_clusters(store, time.time())
    if as_json:
        body = _to_json(dead_letter, history, content, reveal=reveal)
        linked = None if trace is None else trace._asdict()
        output.emit({**body, "trace": linked, "cluster_removed": removed})
    else:
        _print(dead_letter, history, trace, content, reveal=reveal, removed=removed)
        _print_edits(store, message_id)


def _print_edits(store: Store, message_id: str) -> None:
    """Say what a replay sends instead of the content shown, if the dead letter was edited."""
    from producer_core.dlq.revisions.editor import Editor

    lineage = Editor(store).lineage(message_id)
    current = [one for one in lineage.revisions if one.undone_at is None]
    if lineage.replaced_by is not None:
        output.say(f"\nThe edit of this dead letter is {lineage.replaced_by}.")
    elif current:
        output.say(
            f"\nA replay sends revision {current[-1].number} by {current[-1].who}, not this content. See producer-core dlq "
            f"revisions {message_id}"
        )


show_.name = "show"
COMMANDS = (show_,)


class _Content(NamedTuple):
    key: DisplayedBody
    value: DisplayedBody


def _content(dead_letter: DeadLetter, store: Store, registry: dict[str, Any], reveal: bool) -> _Content:
    from producer_core.dlq.displayed_body import decoder_of, displayed_key, displayed_value

    decoder = decoder_of(store, registry)
    return _Content(
        displayed_key(dead_letter.key, dead_letter.headers, decoder, topic=dead_letter.topic, reveal=reveal),
        displayed_value(
            dead_letter.value, dead_letter.headers, decoder, topic=dead_letter.topic, reveal=reveal
        ),
    )


def _to_json(
    dead_letter: DeadLetter, history: Sequence[TimelineEvent], content: _Content, *, reveal: bool
) -> dict[str, Any]:
    text = _unchanged if reveal else mask_text
    body = {
        name: value
        for name, value in dataclasses.asdict(dead_letter).items()
        if name not in ("value", "headers")
    }
    for name in ("error_text", "verdict_reason", "source"):
        body[name] = body[name] and text(body[name])
    body["group"] = dead_letter.fingerprint
    body["key"] = content.key.value
    body["attempts"] = [{**attempt, "text": text(attempt["text"])} for attempt in body["attempts"]]
    body["headers"] = mask_headers(dead_letter.headers, reveal=reveal)
    body["value"] = content.value.value
    for part, shown in content._asdict().items():
        if shown.schema_id is not None:
            body[f"{part}_schema"] = {
                "id": shown.schema_id,
                "format": shown.format or None,
                "note": shown.note or None,
            }
    body["value_size"] = None if dead_letter.value is None else len(dead_letter.value)
    body["timeline"] = [{**dataclasses.asdict(event), "text": text(event.text)} for event in history]
    if reveal:
        body["value_base64"] = (
            None if dead_letter.value is None else base64.b64encode(dead_letter.value).decode()
        )
    return {**body, "masked": not reveal}


def _print(
    dead_letter: DeadLetter,
    history: Sequence[TimelineEvent],
    trace: RecordTrace | None,
    content: _Content,
    *,
    reveal: bool,
    removed: bool,
) -> None:
    text = _unchanged if reveal else mask_text
    partition = "" if dead_letter.partition is None else f", partition {dead_letter.partition}"
    output.pairs(
        [
            ("message", dead_letter.message_id),
            ("topic", f"{dead_letter.topic}{partition}"),
            ("key", _key(content.key)),
            ("state", dead_letter.state + (", quarantined" if dead_letter.quarantined else "")),
            ("verdict", f"{dead_letter.verdict}: {text(dead_letter.verdict_reason)}"),
            ("error", f"{dead_letter.code}: {text(dead_letter.error_text)}"),
            ("group", dead_letter.fingerprint),
            *([("cluster", f"{dead_letter.cluster_id}{_REMOVED if removed else ''}")] if dead_letter.cluster_id else []),
            *([("application", _application(dead_letter))] if _application(dead_letter) else []),
            ("producer", f"{dead_letter.producer_id} on {dead_letter.host or 'an unknown host'}, version {dead_letter.version or '?'}"),
            ("failed", f"{output.moment(dead_letter.failed_at)} ({output.ago(dead_letter.failed_at)})"),
            ("replays", f"{dead_letter.replay_count} failed" if dead_letter.replay_count else "none"),
        ]
        + ([("source", text(dead_letter.source))] if dead_letter.source else [])
        + ([] if trace is None else [("trace", _trace_text(trace))])
        + ([] if dead_letter.replayable else [("note", _NOT_REPLAYABLE)])
    )  # fmt: skip
    _print_history(history, text)
    _print_content(dead_letter, content.value, reveal=reveal)
    if not reveal:
        output.say("Secrets, card numbers and addresses are masked; use --reveal to show them.", err=True)


def _application(dead_letter: DeadLetter) -> str:
    version = dead_letter.application_version
    return f"{dead_letter.application} {f'version {version}' if version else ''}".strip()


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


def _print_content(dead_letter: DeadLetter, content: DisplayedBody, *, reveal: bool) -> None:
    import orjson

    output.say("")
    for name, value in mask_headers(dead_letter.headers, reveal=reveal):
        output.say(f"header {name}: {value}")
    size = "a tombstone" if dead_letter.value is None else output.size(len(dead_letter.value))
    output.say(f"value ({size}{content.schema}):")
    value = content.value
    output.say(value if isinstance(value, str) else orjson.dumps(value, option=orjson.OPT_INDENT_2).decode())
    if content.note:
        output.say(content.note)


def _key(content: DisplayedBody) -> str:
    key = "none" if content.value is None else content.value or "(empty)"
    return f"{key} ({content.schema.removeprefix(', ')})" if content.schema else str(key)


def _unchanged(text: str) -> str:
    return text
