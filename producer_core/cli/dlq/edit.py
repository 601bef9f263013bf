"""The `dlq edit` command: a preview of the changes, and the edit after a confirmation."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from producer_core._internal.plural import plural
from producer_core.cli import options, output, registry_options
from producer_core.cli.dlq import filter_options
from producer_core.cli.lazy_group import Failed

if TYPE_CHECKING:
    from producer_core.dlq.revisions.changes import Change
    from producer_core.dlq.revisions.preview import EditPreview

F = TypeVar("F", bound=Callable[..., Any])

_REFUSALS = 10
"""Refused dead letters that the preview prints."""
_CHANGE_OPTIONS = (
    click.option("--set", "set_fields", metavar="FIELD=VALUE", multiple=True, help="Set a field to JSON or text."),
    click.option("--unset", "unset_fields", metavar="FIELD", multiple=True, help="Remove a field."),
    click.option("--value", "whole", metavar="JSON|@FILE", help="Replace the whole value by this JSON."),
    click.option("--sql", metavar="EXPRESSION", help="Replace the value by the result of an SQL expression."),
    click.option("--set-header", metavar="NAME=TEXT", multiple=True, help="Set a header to this text."),
    click.option("--unset-header", metavar="NAME", multiple=True, help="Remove a header."),
    click.option("--set-key", metavar="TEXT", help="Set the key; only for malformed input."),
    click.option("--schema-id", type=click.IntRange(1), help="Write the values with this schema."),
)  # fmt: skip


def _change_options(command: F) -> F:
    for option in reversed(_CHANGE_OPTIONS):
        command = option(command)
    return command


@click.command(short_help="Edit the values and headers of dead letters.")
@_change_options
@click.option("--reason", metavar="TEXT", help="Why the records are changed; required to keep the edit.")
@click.option("--dry-run", is_flag=True, help="Only print the preview.")
@filter_options.filter_options
@registry_options.registry_options
@options.yes
@options.store_option
@options.as_json
def edit(
    reason: str | None, dry_run: bool, yes: bool, as_json: bool, store_path: Path | None, **given: Any
) -> None:
    """Edit the selected dead letters. A replay then sends the edit; the original stays in the store.

    The command prints how many dead letters change, which do not fit their schema, and the differences of the first ones.
    It then asks, and nothing is changed before. "dlq undo" undoes an edit until a replay has claimed it.

    \b
      producer-core dlq edit --message-id ID --set amount=12.5 --reason "wrong unit"
      producer-core dlq edit --topic orders --set 'customer.address["zip.code"]="0815"' --unset debug --reason "..."
      producer-core dlq edit --group 1f2e3d4c5b6a --reason "currency was missing" \\
          --sql "json_merge_patch(value, '{\\"currency\\": \\"EUR\\"}')"

    FIELD is a path such as customer.items[0].price, ["a.b"] or a JSON Pointer such as /customer/items/0. VALUE is JSON; any
    other text is the text itself, so quote a number that must be text: --set 'zip="0815"'.

    The SQL expression is DuckDB's. It has the columns value and headers (JSON), key, topic and message_id, and returns the
    new value. NULL leaves a record unchanged. It can read neither files nor the network nor the store.

    Message id, partition and time are locked, and so is the key unless the input was malformed. Masked fields cannot be
    edited. If the verdict says that the original is not on its topic, the edit keeps the message id and has the header
    pc-revision. Otherwise the edit is a new message with its own id and the header pc-replaces, and the original is archived.

    A value with a schema id is written with the same schema, or with --schema-id. The registry is that of "dlq show".
    """
    from producer_core.dlq.revisions.editor import Editor
    from producer_core.store import Store

    store = Store.open(store_path, create=False)
    names = (
        "set_fields",
        "unset_fields",
        "whole",
        "sql",
        "set_header",
        "unset_header",
        "set_key",
        "schema_id",
    )
    change = _change(**{name: given.pop(name) for name in names})
    registry = registry_options.chosen_registry(
        given.pop("url"), given.pop("settings"), given.pop("config_file")
    )
    editor, where = Editor(store, registry=registry), filter_options.chosen(given)
    preview = editor.preview(where, change)
    if not as_json:
        _print_preview(preview, dry_run=dry_run)
    edited: dict[str, Any] = {"edited": 0}
    if preview.count and not dry_run:
        if not (reason or "").strip():
            raise Failed("An edit needs a reason. Nothing was changed.", 'Use --reason "...".')
        options.confirm(f"Keep {plural(preview.count, 'edit')}?", yes)
        result = editor.keep(preview, who=options.current_user(), origin="cli", reason=reason or "")
        edited = {"edited": result.count, "replacements": dict(result.replacements)}
        if not as_json:
            output.say(result.text)
    if as_json:
        output.emit(_as_json(preview) | edited)
    if not preview.count and preview.refused:
        raise Failed("No dead letter was changed.", _first_refusal(preview))


COMMANDS = (edit,)


def _change(
    *,
    set_fields: tuple[str, ...],
    unset_fields: tuple[str, ...],
    whole: str | None,
    sql: str | None,
    set_header: tuple[str, ...],
    unset_header: tuple[str, ...],
    set_key: str | None,
    schema_id: int | None,
) -> Change:
    from producer_core.dlq.revisions.changes import UNCHANGED, FieldChange
    from producer_core.dlq.revisions.field_path import parse_path
    from producer_core.dlq.revisions.sql_change import SqlChange

    others = (set_fields, unset_fields, whole, set_header, unset_header, set_key)
    if sql is not None:
        if any(others):
            raise Failed(
                "--sql cannot be combined with other changes.", "Make two edits, one after the other."
            )
        return SqlChange(sql, schema_id=schema_id)
    if not any(others) and schema_id is None:
        raise Failed(
            "The command does not say what to change.", "Use --set, --unset, --value, --sql or --set-header."
        )
    return FieldChange(
        tuple((parse_path(name), _json_or_text(text)) for name, text in map(_pair, set_fields)),
        tuple(map(parse_path, unset_fields)),
        UNCHANGED if whole is None else _whole(whole),
        tuple((name, text.encode()) for name, text in map(_pair, set_header)),
        unset_header,
        None if set_key is None else set_key.encode(),
        schema_id,
    )


def _pair(text: str) -> tuple[str, str]:
    name, equals, value = text.partition("=")
    if not equals or not name:
        raise Failed(f"{text!r} has no name and value.", "Write it as NAME=VALUE.")
    return name.strip(), value


def _json_or_text(text: str) -> Any:
    from producer_core._internal.json_document import NotJson, natural, parse

    try:
        return natural(parse(text.encode(errors="surrogateescape")))
    except NotJson:
        return text


def _whole(text: str) -> Any:
    from producer_core._internal.json_document import NotJson, natural, parse

    try:
        data = Path(text[1:]).read_bytes() if text.startswith("@") else text.encode(errors="surrogateescape")
        return natural(parse(data))
    except NotJson as error:
        raise Failed(f"--value is not JSON: {error}.") from error
    except OSError as error:
        raise Failed(f"{text[1:]} cannot be read: {error.strerror}.") from error


def _print_preview(preview: EditPreview, *, dry_run: bool) -> None:
    output.say(preview.text)
    for sample in preview.samples:
        output.say(f"\n{sample.message_id} ({sample.topic})")
        for difference in sample.differences:
            output.say(f"  {difference}")
    if preview.count > len(preview.samples):
        output.say(f"\nand {preview.count - len(preview.samples):,} more.")
    if preview.refusals:
        output.say("\nnot changed:")
    for refusal in preview.refusals[:_REFUSALS]:
        output.say(f"  {refusal.message_id}: {refusal.reason}")
    if (more := sum(preview.refused.values()) - _REFUSALS) > 0:
        output.say(f"  and {more:,} more.")
    if dry_run:
        output.say("\nDry run: nothing was changed.")


def _first_refusal(preview: EditPreview) -> str:
    return preview.refusals[0].reason if preview.refusals else ""


def _as_json(preview: EditPreview) -> dict[str, Any]:
    return {
        "matched": preview.matched,
        "changed": preview.count,
        "unchanged": preview.unchanged,
        "misfits": preview.misfits,
        "refused": dict(preview.refused),
        "new_messages": preview.replacements,
        "samples": [
            {
                "message_id": sample.message_id,
                "topic": sample.topic,
                "differences": [
                    {"path": one.path, "before": _parsed(one.before), "after": _parsed(one.after)}
                    for one in sample.differences
                ],
            }
            for sample in preview.samples
        ],
        "refusals": [
            {"message_id": one.message_id, "kind": one.kind, "reason": one.reason} for one in preview.refusals
        ],
        "text": preview.text,
    }


def _parsed(text: str | None) -> Any:
    return None if text is None else json.loads(text)
