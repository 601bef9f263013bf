"""The `store` commands: the file's inventory, a copy of it, and its clean-up."""

from __future__ import annotations

import dataclasses
import time
from pathlib import Path

import click

from producer_core.cli import options, show


@click.group(short_help="The store's file: inventory, copy, clean-up.")
def store() -> None:
    """The store: one DuckDB file with statistics, dead letters, replays and alerts.

    It is at --store, else $PRODUCER_CORE_STORE, else $XDG_STATE_HOME/producer-core/store.duckdb. While nobody writes,
    any DuckDB client can open it; the view message_statistics is meant for that.
    """


@store.command(short_help="Where it is, how large, what it holds.")
@options.store_option
@options.as_json
def info(store_path: Path | None, as_json: bool) -> None:
    """Where the store is, how large, what it holds and for how long."""
    from producer_core.store import Store

    found = Store.open(store_path, create=False).info()
    if as_json:
        show.emit(dataclasses.asdict(found))
        return
    keep = found.retention
    show.pairs(
        [
            ("path", str(found.path)),
            ("size", show.size(found.bytes)),
            ("schema", f"version {found.schema_version}"),
            ("statistics", f"{show.moment(found.oldest)} to {show.moment(found.newest)}" if found.oldest else "none yet"),
            ("kept", f"seconds {show.duration(keep.keep_seconds)}, minutes {show.duration(keep.keep_minutes)}, "
             f"hours {show.duration(keep.keep_hours)}, settled dead letters {show.duration(keep.keep_settled)}"),
        ]
    )  # fmt: skip
    if found.network_file_system:
        click.echo(
            f"Warning: this is a network file system ({found.network_file_system}); locks are unsafe there."
        )
    show.table(
        ("table", "rows"), [(name, rows) for name, rows in found.rows.items() if rows], right=("rows",)
    )


@store.command(short_help="Copy the store to TARGET while everyone goes on.")
@click.argument("target", type=click.Path(path_type=Path))
@options.store_option
@options.as_json
def snapshot(target: Path, store_path: Path | None, as_json: bool) -> None:
    """Copy the store to TARGET, whole and consistent, while everyone else goes on.

    \b
      producer-core store snapshot backup.duckdb
    """
    from producer_core.store import Store

    copy = Store.open(store_path, create=False).snapshot(target)
    if as_json:
        show.emit({"path": str(copy), "bytes": copy.stat().st_size})
    else:
        click.echo(f"Copied to {copy} ({show.size(copy.stat().st_size)}).")


@store.command(short_help="Sum up old seconds, delete what has had its time.")
@options.store_option
@options.yes
@options.as_json
def prune(store_path: Path | None, yes: bool, as_json: bool) -> None:
    """Sum up old seconds and delete what is older than it is kept (see `store info`).

    Dead letters that wait for a decision are never deleted.
    """
    from producer_core.store import Store

    found, now = Store.open(store_path, create=False), time.time()
    options.confirm(f"Delete from {found.path} what is older than it is kept?", yes)
    summed, deleted = found.rollup(now), found.prune(now)
    outcome = f"{show.count(summed, 'row')} summed up, {show.count(deleted, 'row')} deleted."
    found.audit(who=options.me(), origin="cli", action="prune", selection={}, count=deleted, outcome=outcome)
    show.emit({"summed_up": summed, "deleted": deleted}) if as_json else click.echo(outcome)
