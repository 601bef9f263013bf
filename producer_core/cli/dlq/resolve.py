"""The commands `dlq resolve` and `dlq reopen`: mark the cause of a group of dead letters as resolved."""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from producer_core._internal.plural import plural
from producer_core.cli import options, output

if TYPE_CHECKING:
    from collections.abc import Iterator

    from producer_core.store.resolved_causes import CauseStatus, Resolution


@click.command(short_help="Mark the cause of a group as resolved.")
@click.argument("group")
@click.option(
    "--in", "fixed_in", metavar="VERSION", default="", help="Version of the application with the fix."
)
@click.option("--note", default="", help="The fix, for the operator who sees the cause again.")
@options.store_option
@options.as_json
def resolve(group: str, fixed_in: str, note: str, store_path: Path | None, as_json: bool) -> None:
    """Mark the cause of GROUP as resolved. Its dead letters stay as they are: replay or archive them.

    When a message fails for the same cause again, the cause is back: "dlq groups", the Dead letters and the Errors page, and
    the alert cause_returned show since which version of the application, and who resolved it before. With --in, failures
    of the other versions that failed before do not count, because instances of them may still run.

    \b
      producer-core dlq resolve 1f2e3d4c5b6a
      producer-core dlq resolve 1f2e3d4c5b6a --in 4.2.1 --note "Schema of payments fixed."
    """
    from producer_core.dlq.resolve_cause import resolve_cause
    from producer_core.store import Store

    store, who, now = Store.open(store_path, create=False), options.current_user(), time.time()
    count = resolve_cause(store, group, who=who, origin="cli", now=now, fixed_in=fixed_in, note=note)
    if as_json:
        output.emit({"group": group, "resolved": True, "count": count})
    else:
        output.say(f"Marked the cause of {plural(count, 'dead letter')} as resolved. They stay as they are.")


@click.command(short_help="Take back that a cause is resolved.")
@click.argument("group")
@options.store_option
@options.as_json
def reopen(group: str, store_path: Path | None, as_json: bool) -> None:
    """Take back that the cause of GROUP is resolved. Its history stays.

    \b
      producer-core dlq reopen 1f2e3d4c5b6a
    """
    from producer_core.dlq.resolve_cause import reopen_cause
    from producer_core.store import Store

    store, who = Store.open(store_path, create=False), options.current_user()
    reopen_cause(store, group, who=who, origin="cli", now=time.time())
    output.emit({"group": group, "resolved": False}) if as_json else output.say("The cause is open again.")


COMMANDS = (resolve, reopen)


def status_lines(status: CauseStatus) -> Iterator[str]:
    """Yield the state of a cause that was marked as resolved, then its history, the latest first."""
    if status.is_back and status.present is not None:
        yield f"back {_since(status.present)}: {plural(status.count, 'failure')}, {status.pending:,} pending"
    for one in reversed(status.history):
        fix = f" in {one.fixed_in}" if one.fixed_in else ""
        note = f": {one.note}" if one.note else ""
        back = f"; back {_since(one)}" if one.back_at is not None and one is not status.present else ""
        again = f"; {one.ended_by} reopened it" if one.ended_at is not None and one.back_at is None else ""
        yield f"resolved {output.ago(one.resolved_at)} by {one.who}{fix}{note}{back}{again}"


def status_json(status: CauseStatus | None) -> dict[str, Any] | None:
    """Return the state and the history of a cause for JSON; None if it was never marked as resolved."""
    if status is None:
        return None
    present = status.present
    return {
        "state": "back" if status.is_back else "resolved" if status.is_resolved else "reopened",
        "back_at": present and present.back_at,
        "back_in": (present and present.back_in) or None,
        "count": status.count,
        "pending": status.pending,
        "history": [_record(one) for one in status.history],
    }


def _record(one: Resolution) -> dict[str, Any]:
    import dataclasses

    return dataclasses.asdict(one)


def _since(one: Resolution) -> str:
    assert one.back_at is not None
    when = output.ago(one.back_at)
    return f"since {one.back_in}, {when}" if one.back_in else f"since {when}"
