"""The `store` commands: the file's inventory, a copy of it, and its clean-up."""

from __future__ import annotations

import dataclasses
import difflib
import re
import time
from pathlib import Path
from typing import Any

import click

from producer_core.cli import options, output
from producer_core.cli.lazy_group import Failed
from producer_core.errors import StoreUnavailable


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
            ("kept", f"seconds {output.duration(keep.keep_seconds)}, minutes {output.duration(keep.keep_minutes)}, "
             f"hours {output.duration(keep.keep_hours)}, settled dead letters {output.duration(keep.keep_settled)}, "
             f"the ledger {output.duration(keep.keep_ledger)}"),
            ("alert", _bounds(opened.settings())),
        ]
    )  # fmt: skip
    if found.network_file_system:
        output.say(
            f"Warning: this is a network file system ({found.network_file_system}); locks are unsafe there."
        )
    output.table(
        ("table", "rows"), [(name, rows) for name, rows in found.rows.items() if rows], right=("rows",)
    )


def _bounds(settings: dict[str, Any]) -> str:
    """The bounds of dead letters in words; a producer may bring a number of its own."""
    from producer_core.dlq.limits import DeadLetterLimits

    bounds = DeadLetterLimits().set_by(settings)
    said = (
        [f"more than {output.count(bounds.dead_letters, 'dead letter')} wait"] if bounds.dead_letters else []
    )
    said += [f"more than {output.size(bounds.bytes)} of them"] if bounds.bytes else []
    said += [f"one for more than {output.duration(bounds.age)}"] if bounds.age else []
    return f"when {', or '.join(said)}" if said else "never: there is no bound"


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

    if not target.parent.is_dir():
        raise StoreUnavailable(f"There is no folder {target.parent}.", fix="Make it, or choose another.")
    copy = Store.open(store_path, create=False).snapshot(target)
    if as_json:
        output.emit({"path": str(copy), "bytes": copy.stat().st_size})
    else:
        output.say(f"Copied to {copy} ({output.size(copy.stat().st_size)}).")


@store.command(short_help="Sum up old seconds, delete what has had its time.")
@options.store_option
@options.yes
@options.as_json
def prune(store_path: Path | None, yes: bool, as_json: bool) -> None:
    """Sum up old seconds and delete what is older than it is kept (see `store info`).

    Dead letters that wait for a decision are never deleted, nor is the audit.
    """
    from producer_core.store import Store

    found, now = Store.open(store_path, create=False), time.time()
    options.confirm(f"Delete from {found.path} what is older than it is kept?", yes)
    with found.borrow(write=True):
        summed, deleted = found.rollup(now), found.prune(now)
        outcome = f"{output.count(summed, 'row')} summed up, {output.count(deleted, 'row')} deleted."
        found.audit(
            who=options.current_user(),
            origin="cli",
            action="prune",
            selection={},
            count=deleted,
            outcome=outcome,
        )
    output.emit({"summed_up": summed, "deleted": deleted}) if as_json else output.say(outcome)


@store.command(short_help="Write the file anew, without what was deleted.")
@options.store_option
@options.yes
@options.as_json
def compact(store_path: Path | None, yes: bool, as_json: bool) -> None:
    """Write the store's file anew, without the room that deleted rows have left in it.

    The room of what was pruned or purged is used again by itself; until then its bytes stay in the file. After this
    they are not in it any more, and the file is as small as it can be. Everyone else waits meanwhile: producers buffer
    and spill. The disk needs room for a second file.
    """
    from producer_core.store import Store

    found = Store.open(store_path, create=False)
    options.confirm(f"Write {found.path} ({output.size(found.path.stat().st_size)}) anew?", yes)
    smaller = found.compact()
    outcome = f"{output.size(abs(smaller))} {'smaller' if smaller >= 0 else 'larger'}."
    found.audit(
        who=options.current_user(), origin="cli", action="compact", selection={}, count=1, outcome=outcome
    )
    output.emit({"bytes": found.path.stat().st_size, "smaller_by": smaller}) if as_json else output.say(
        outcome
    )


@store.command(name="set", short_help="Set how long things are kept, and when dead letters are too many.")
@click.argument("settings", nargs=-1, required=True, type=options.SettingType(), metavar="NAME=VALUE...")
@options.store_option
@options.as_json
def set_(settings: tuple[tuple[str, str], ...], store_path: Path | None, as_json: bool) -> None:
    """Set one or more settings of the store, for everyone who uses it; this is written to the audit.

    \b
      keep_seconds, keep_minutes, keep_hours   statistics by second, minute and hour are kept so long: 2h, 3d, 90d
      keep_settled                             dead letters that were replayed, landed or purged: 30d
      keep_ledger                              the ledger of acknowledged sequences, where one is kept: 7d
      dlq_max_size                             dead letters that may wait: 10000
      dlq_max_bytes                            bytes of them: 256MiB
      dlq_max_age                              for how long: 7d

    Beyond a dlq_max_... an alert says so; no dead letter is ever dropped. «none» takes such a bound away, «default»
    goes back to the default.

    \b
      producer-core store set keep_settled=60d dlq_max_bytes=2GiB
    """
    from producer_core.store import Store

    changes = {name: _setting(name, text) for name, text in settings}
    found = Store.open(store_path, create=False)
    found.change_settings(changes, who=options.current_user(), origin="cli")
    output.emit(found.settings()) if as_json else output.say(
        "\n".join(f"{name} is {'the default' if text == 'default' else text}." for name, text in settings)
    )


_KEPT = ("keep_seconds", "keep_minutes", "keep_hours", "keep_settled", "keep_ledger")
_BOUNDS = ("dlq_max_size", "dlq_max_bytes", "dlq_max_age")
_SIZES = {"": 1, "B": 1, "KIB": 1 << 10, "MIB": 1 << 20, "GIB": 1 << 30, "TIB": 1 << 40}
_SIZE = re.compile(r"(\d+(?:\.\d+)?)\s*([A-Za-z]*)")


def _setting(name: str, text: str) -> float | int | None:
    """The value as the store keeps it: seconds, bytes or a number; None for the default, 0 for no bound."""
    if name not in (*_KEPT, *_BOUNDS):
        near = difflib.get_close_matches(name, (*_KEPT, *_BOUNDS), n=1)
        raise Failed(
            f"There is no setting {name!r}.",
            f"Did you mean {near[0]}?" if near else f"There are {', '.join((*_KEPT, *_BOUNDS))}.",
        )
    if text == "default":
        return None
    if text == "none" and name in _BOUNDS:
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
        raise Failed(f"{name}={text!r} is no size.", "Write for example 10000 or, for bytes, 256MiB.")
    seconds = options.DurationType().convert(text, None, None)
    if seconds < 1:
        raise Failed(f"{name}={text!r} is too short.", "Give at least a second.")
    return seconds
