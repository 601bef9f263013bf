"""The `audit` command: who did what, and when."""

from __future__ import annotations

from pathlib import Path

import click
import orjson

from producer_core.cli import options, show


@click.command(short_help="Who did what to dead letters and alerts, and when.")
@options.store_option
@click.option("--since", type=options.Moment(), help="Only since then: 2h, or 2026-01-31T12:00.")
@click.option(
    "--action", help="Only this action: replay, archive, restore, purge, acknowledge, silence, reveal, ..."
)
@click.option(
    "--limit", type=click.IntRange(min=1), default=50, show_default=True, help="At most so many, the latest."
)
@options.as_json
def audit(
    store_path: Path | None, since: float | None, action: str | None, limit: int, as_json: bool
) -> None:
    """What operators did, the latest first.

    \b
      producer-core audit --since 1d
      producer-core audit --action purge --json
    """
    from producer_core.store import Store

    store = Store.open(store_path, create=False)
    rows = store.rows("audit_latest", since=since, action=action, limit=limit)
    for row in rows:
        row["selection"] = orjson.loads(row["selection"])
    if as_json:
        show.emit(rows)
    elif not rows:
        click.echo("Nobody did anything yet.")
    else:
        columns = ("when", "who", "from", "what", "which", "count", "outcome")
        show.table(
            columns,
            [
                (show.moment(row["acted_at"]), row["who"], row["origin"], row["action"], _which(row["selection"]),
                 row["count"], show.shorten(row["outcome"], 60))
                for row in rows
            ],
            right=("count",),
            shrink=("who", "which", "outcome"),
        )  # fmt: skip


def _which(selection: dict[str, str]) -> str:
    return show.shorten(" ".join(f"{name}={value}" for name, value in selection.items()), 40) or "all"
