"""The `audit` command: who did what, and when."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
import orjson

from producer_core._internal.masking import mask, mask_text
from producer_core.cli import options, output

if TYPE_CHECKING:
    from producer_core.store import Store

_ACTIONS = (
    "replay, replay_go, replay_pause, replay_resume, replay_cancel, replay_end, archive, restore, purge, reveal, "
    "export, import, publish, acknowledge, silence, prune, set"
)


@click.command(short_help="Who did what to dead letters and alerts, and when.")
@options.store_option
@click.option("--who", help="Only people with this in their name.")
@click.option("--action", help=f"Only this action: {_ACTIONS}, ...")
@click.option("--since", type=options.TimestampType(), help="Only since then: 2h, or 2026-01-31T12:00.")
@click.option("--until", type=options.TimestampType(), help="Only before then.")
@click.option(
    "--limit", type=options.ROWS, default=50, show_default=True, help="At most so many, the latest."
)
@options.as_json
def audit(store_path: Path | None, limit: int, as_json: bool, **given: Any) -> None:
    """What operators did, the latest first: who, when, from where, with which selection, how many, the outcome.

    Every act writes one row, a refused purge too; a replay writes one more at its end. Nothing changes or deletes
    such a row, `store prune` neither.

    \b
      producer-core audit --since 1d
      producer-core audit --action purge --json
      producer-core audit --who ann --since 2026-11-01 --until 2026-12-01
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
    """Say that nothing matches; an action may be a typing mistake."""
    recorded = [row["action"] for row in store.rows("audit_actions")]
    if not recorded:
        return "No act is recorded yet."
    if given["action"] and given["action"] not in recorded:
        return f"No act {given['action']!r} is recorded here. There are: {', '.join(recorded)}."
    return "No recorded act matches."


def _entry(row: dict[str, Any]) -> dict[str, Any]:
    """A row for people and programs; a selection or an outcome may quote a key or an error."""
    return {**row, "selection": mask(orjson.loads(row["selection"])), "outcome": mask_text(row["outcome"])}


def _table(entries: list[dict[str, Any]]) -> None:
    output.table(
        ("when", "who", "from", "what", "which", "count", "outcome"),
        [
            (output.moment(row["acted_at"]), row["who"], _origin(row), row["action"], _which(row["selection"]),
             row["count"], output.shorten(row["outcome"], 60))
            for row in entries
        ],
        right=("count",),
        shrink=("who", "from", "which", "outcome"),
    )  # fmt: skip


def _origin(row: dict[str, Any]) -> str:
    host = row["host"]
    return row["origin"] if not host or row["who"].endswith(f"@{host}") else f"{row['origin']} on {host}"


def _which(selection: Any) -> str:
    if not isinstance(selection, dict):
        return output.shorten(str(selection), 40)
    return output.shorten(" ".join(f"{name}={value}" for name, value in selection.items()), 40) or "all"
