"""The `audit` command: list the actions of operators."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
import orjson

from producer_core._internal.masking import mask, mask_text
from producer_core.cli import options, output

if TYPE_CHECKING:
    from producer_core.store import Store


@click.command(short_help="Show operator actions on dead letters and alerts.")
@options.store_option
@click.option("--who", help="Only operators whose name contains this text.")
@click.option("--action", help="Only this action, for example purge.")
@click.option("--since", type=options.TimestampType(), help="Since this time: 2h, or 2026-01-31T12:00.")
@click.option("--until", type=options.TimestampType(), help="Before this time.")
@click.option(
    "--limit", type=options.ROWS, default=50, show_default=True, help="Maximum number of rows, latest first."
)
@options.as_json
def audit(store_path: Path | None, limit: int, as_json: bool, **given: Any) -> None:
    """Show the actions of operators, latest first: operator, time, origin, selection, count and outcome.

    Every action writes one row, even a refused purge; a replay writes another row at its end. No command changes or
    deletes these rows, not even "store prune".

    \b
      producer-core audit --since 1d
      producer-core audit --action purge --json
      producer-core audit --who ann --since 2026-11-01 --until 2026-12-01

    \b
    Actions: replay, replay_go, replay_pause, replay_resume, replay_cancel,
    replay_end, archive, restore, purge, reveal, export, import, publish,
    acknowledge, silence, prune, set, and others.
    """
    from producer_core.store import Store

    since, until = given["since"], given["until"]
    if since is not None and until is not None and since >= until:
        raise click.UsageError("--since must be before --until.")
    store = Store.open(store_path, create=False)
    rows = store.rows("audit_latest", limit=limit, **given)
    entries = [_entry(row) for row in rows]
    if as_json:
        output.emit(entries)
    elif not entries:
        output.say(_none(store, given))
    else:
        _table(entries)


def _none(store: Store, given: dict[str, Any]) -> str:
    """Return the message for a filter that matches no row. List the recorded actions if the action may be mistyped."""
    recorded = [row["action"] for row in store.rows("audit_actions")]
    if not recorded:
        return "No actions are recorded yet."
    if given["action"] and given["action"] not in recorded:
        return f"No action {given['action']!r} is recorded. Recorded actions: {', '.join(recorded)}."
    return "No recorded action matches."


def _entry(row: dict[str, Any]) -> dict[str, Any]:
    """Return a row with a masked selection and outcome, which may quote a key or an error."""
    return {**row, "selection": mask(orjson.loads(row["selection"])), "outcome": mask_text(row["outcome"])}


def _table(entries: list[dict[str, Any]]) -> None:
    output.table(
        ("time", "operator", "origin", "action", "selection", "count", "outcome"),
        [
            (output.moment(row["acted_at"]), row["who"], _origin(row), row["action"], _selection(row["selection"]),
             row["count"], output.shorten(row["outcome"], 60))
            for row in entries
        ],
        right=("count",),
        shrink=("operator", "origin", "selection", "outcome"),
    )  # fmt: skip


def _origin(row: dict[str, Any]) -> str:
    host = row["host"]
    return row["origin"] if not host or row["who"].endswith(f"@{host}") else f"{row['origin']} on {host}"


def _selection(selection: Any) -> str:
    if not isinstance(selection, dict):
        return output.shorten(str(selection), 40)
    return output.shorten(" ".join(f"{name}={value}" for name, value in selection.items()), 40) or "all"
