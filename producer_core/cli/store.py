"""The `store` commands: inspect, copy and clean up the store's file."""

from __future__ import annotations

import dataclasses
import difflib
import re
import time
from pathlib import Path
from typing import Any

import click

from producer_core._internal.plural import plural
from producer_core.cli import options, output
from producer_core.cli.lazy_group import Failed
from producer_core.errors import StoreUnavailable


@click.group(short_help="Inspect, copy and clean up the store.")
def store() -> None:
    """Inspect, copy and clean up the store: a DuckDB file with statistics, dead letters, replays and alerts.

    Its path is --store, else $PRODUCER_CORE_STORE, else $XDG_STATE_HOME/producer-core/store.duckdb. While no process
    is writing, any DuckDB client can open the file; the view message_statistics is intended for queries.

    \b
      producer-core store info
      producer-core store snapshot backup.duckdb
      producer-core store set keep_settled=60d dlq_max_bytes=2GiB
    """


@store.command(short_help="Show the path, size and content of the store.")
@options.store_option
@options.as_json
def info(store_path: Path | None, as_json: bool) -> None:
    """Show the path, size, content and retention of the store."""
    from producer_core.store import Store

    opened = Store.open(store_path, create=False)
    found = opened.info()
    if as_json:
        output.emit(dataclasses.asdict(found))
        return
    keep = found.retention
    output.pairs(
        [
            ("path", str(found.path)),
            ("size", output.size(found.bytes)),
            ("schema", f"version {found.schema_version}"),
            ("statistics", f"{output.moment(found.oldest)} to {output.moment(found.newest)}" if found.oldest else "none yet"),
            ("retention", f"per-second data {output.duration(keep.keep_seconds)}, "
             f"per-minute data {output.duration(keep.keep_minutes)}, per-hour data {output.duration(keep.keep_hours)}, "
             f"settled dead letters {output.duration(keep.keep_settled)}, ledger {output.duration(keep.keep_ledger)}"),
            ("alert", _limits(opened.settings())),
        ]
    )  # fmt: skip
    if found.network_file_system:
        output.say(
            f"Warning: the store is on a network file system ({found.network_file_system}), where file locks are unsafe."
        )
    output.table(
        ("table", "rows"), [(name, rows) for name, rows in found.rows.items() if rows], right=("rows",)
    )


def _limits(settings: dict[str, Any]) -> str:
    """Return the limits of dead letters as text. A producer may set another number."""
    from producer_core.dlq.limits import DeadLetterLimits

    limits = DeadLetterLimits().overridden_by(settings)
    parts = [f"over {plural(limits.dead_letters, 'dead letter')}"] if limits.dead_letters else []
    parts += [f"over {output.size(limits.bytes)}"] if limits.bytes else []
    parts += [f"pending for over {output.duration(limits.age)}"] if limits.age else []
    return ", or ".join(parts) if parts else "never: no limits are set"


@store.command(short_help="Copy the store while it is in use.")
@click.argument("target", type=click.Path(path_type=Path))
@options.store_option
@options.as_json
def snapshot(target: Path, store_path: Path | None, as_json: bool) -> None:
    """Write a consistent copy of the store to TARGET while other processes use it.

    \b
      producer-core store snapshot backup.duckdb

    A replay from the copy looks for each dead letter on its topic first. The store itself does not know about replays
    from its copies: replay dead letters from one of them only.
    """
    from producer_core.store import Store

    if not target.parent.is_dir():
        raise StoreUnavailable(
            f"The folder {target.parent} does not exist.", fix="Create it, or choose another."
        )
    copy = Store.open(store_path, create=False).snapshot(target)
    if as_json:
        output.emit({"path": str(copy), "bytes": copy.stat().st_size})
    else:
        output.say(f"Copied to {copy} ({output.size(copy.stat().st_size)}).")


@store.command(short_help="Aggregate old statistics and delete expired data.")
@options.store_option
@options.yes
@options.as_json
def prune(store_path: Path | None, yes: bool, as_json: bool) -> None:
    """Aggregate old statistics and delete data beyond its retention (see "store info").

    Pending dead letters and the audit log are never deleted.
    """
    from producer_core.roles.role_check import check_admin
    from producer_core.store import Store, required_features

    found, who, now = Store.open(store_path, create=False), options.current_user(), time.time()
    with found.borrow() as connection:
        required_features.check(connection)
    options.confirm(f"Delete the expired data from {found.path}?", yes)
    with found.borrow(write=True):
        check_admin(found, who=who, origin="cli", now=now, act="prune the store")
        aggregated, deleted = found.rollup(now), found.prune(now)
        outcome = f"{plural(aggregated, 'row')} aggregated, {plural(deleted, 'row')} deleted."
        found.audit(who=who, origin="cli", action="prune", selection={}, count=deleted, outcome=outcome)
    output.emit({"summed_up": aggregated, "deleted": deleted}) if as_json else output.say(outcome)


@store.command(short_help="Rewrite the file without deleted data.")
@options.store_option
@options.yes
@options.as_json
def compact(store_path: Path | None, yes: bool, as_json: bool) -> None:
    """Rewrite the store's file to release the space that deleted rows occupied.

    The store reuses the space of pruned and purged rows, but until then the file still contains their bytes. After this
    command, the file no longer contains them and has its minimum size. Other processes wait in the meantime: producers
    buffer and spill. The disk needs space for a second file.
    """
    from producer_core.roles.role_check import check_admin
    from producer_core.store import Store

    found, who = Store.open(store_path, create=False), options.current_user()
    options.confirm(f"Rewrite {found.path} ({output.size(found.path.stat().st_size)})?", yes)
    with found.borrow(write=True):
        check_admin(found, who=who, origin="cli", now=time.time(), act="compact the store")
    saved = found.compact()
    outcome = f"{output.size(abs(saved))} {'smaller' if saved >= 0 else 'larger'}."
    found.audit(who=who, origin="cli", action="compact", selection={}, count=1, outcome=outcome)
    output.emit({"bytes": found.path.stat().st_size, "smaller_by": saved}) if as_json else output.say(outcome)


@store.command(name="set", short_help="Set retention times and dead-letter limits.")
@click.argument("settings", nargs=-1, required=True, type=options.SettingType(), metavar="NAME=VALUE...")
@options.store_option
@options.as_json
def set_(settings: tuple[tuple[str, str], ...], store_path: Path | None, as_json: bool) -> None:
    """Change one or more settings of the store. They apply to every process; the change is recorded in the audit log.

    \b
      keep_seconds, keep_minutes, keep_hours   retention of statistics by second, minute and hour: 2h, 3d, 90d
      keep_settled                             retention of dead letters replayed, found on their topic or purged: 30d
      keep_ledger                              retention of the ledger of acknowledged sequences: 7d
      dlq_max_size                             number of pending dead letters: 10000
      dlq_max_bytes                            bytes of pending dead letters: 256MiB
      dlq_max_age                              age of the oldest pending dead letter: 7d
      trace_link                               address of a trace: https://tempo.example/trace/{trace_id}
      schema_registry                          address of the registry that decodes values for display

    When a dlq_max_... limit is exceeded, an alert fires; no dead letter is ever dropped. The value "none" removes such
    a limit; "default" restores the default.

    \b
      producer-core store set keep_settled=60d dlq_max_bytes=2GiB
    """
    from producer_core.roles.role_check import check_admin
    from producer_core.store import Store

    changes = {name: _setting(name, text) for name, text in settings}
    found, who = Store.open(store_path, create=False), options.current_user()
    with found.borrow(write=True):
        check_admin(found, who=who, origin="cli", now=time.time())
        found.change_settings(changes, who=who, origin="cli")
    output.emit(found.settings()) if as_json else output.say(
        "\n".join(
            f"{name} is {'set to its default' if text == 'default' else text}." for name, text in settings
        )
    )


_RETENTION = ("keep_seconds", "keep_minutes", "keep_hours", "keep_settled", "keep_ledger")
_LIMITS = ("dlq_max_size", "dlq_max_bytes", "dlq_max_age")
_TEXTS = ("trace_link", "schema_registry")
_SIZES = {"": 1, "B": 1, "KIB": 1 << 10, "MIB": 1 << 20, "GIB": 1 << 30, "TIB": 1 << 40}
_SIZE = re.compile(r"(\d+(?:\.\d+)?)\s*([A-Za-z]*)")


def _setting(name: str, text: str) -> str | float | int | None:
    """Return the value as stored: seconds, bytes, a number or text; None for the default, 0 for no limit."""
    known = (*_RETENTION, *_LIMITS, *_TEXTS)
    if name not in known:
        near = difflib.get_close_matches(name, known, n=1)
        raise Failed(
            f"Unknown setting {name!r}.",
            f"Did you mean {near[0]}?" if near else f"Settings: {', '.join(known)}.",
        )
    if text == "default":
        return None
    if name in _TEXTS:
        return text.strip()
    if text == "none" and name in _LIMITS:
        return 0
    if name in ("dlq_max_size", "dlq_max_bytes"):
        found = _SIZE.fullmatch(text.strip())
        if (
            found
            and found[2].upper() in (_SIZES if name == "dlq_max_bytes" else ("",))
            and float(found[1]) >= 1
            and (number := float(found[1]) * _SIZES[found[2].upper()]) < 2**63
        ):
            return int(number)
        raise Failed(f"{name}={text!r} is not a size.", "Write, for example, 10000, or 256MiB for bytes.")
    seconds = options.DurationType().convert(text, None, None)
    if seconds < 1:
        raise Failed(f"{name}={text!r} is too short.", "Set it to at least one second.")
    return seconds
