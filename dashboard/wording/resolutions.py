"""Texts about causes that were marked as resolved, and causes that are back."""

from __future__ import annotations

from collections.abc import Iterator

from producer_core._internal.plural import plural
from producer_core.dashboard.wording.time import stamp
from producer_core.store.resolved_causes import CauseStatus, Resolution

RESOLVE_HELP = "The dead letters stay as they are. If a message fails for this cause again, the page and an alert say that it is back."
VERSION_HELP = "With the version of the fix, other versions that failed before may go on failing."


def badge(status: CauseStatus) -> str:
    """Return a short text for a cause that is back; empty for any other."""
    if not status.is_back or status.present is None:
        return ""
    return f"back since {status.present.back_in}" if status.present.back_in else "back"


def state(status: CauseStatus, zone: str | None, now: float) -> str:
    """Return the present state of a cause in a sentence; empty for a reopened one."""
    present = status.present
    if present is None:
        return ""
    resolved = f"resolved {_at(present.resolved_at, zone, now)} by {present.who}"
    if not status.is_back:
        return f"{resolved[:1].upper()}{resolved[1:]}{_fix(present)}."
    return (
        f"Back {_since(present, zone, now)}: {plural(status.count, 'failure')}, {status.pending:,} pending. It was {resolved}"
        f"{_fix(present)}."
    )


def history(status: CauseStatus, zone: str | None, now: float) -> Iterator[str]:
    """Yield each resolution of a cause, the latest first."""
    for one in reversed(status.history):
        note = f" {one.note}" if one.note else ""
        end = ""
        if one.back_at is not None:
            end = f" Back {_since(one, zone, now)}."
        elif one.ended_at is not None:
            end = f" {one.ended_by} reopened it {_at(one.ended_at, zone, now)}."
        yield f"Resolved {_at(one.resolved_at, zone, now)} by {one.who}{_fix(one)}.{note}{end}"


def _fix(one: Resolution) -> str:
    return f", fixed in {one.fixed_in}" if one.fixed_in else ""


def _since(one: Resolution, zone: str | None, now: float) -> str:
    assert one.back_at is not None
    when = _at(one.back_at, zone, now)
    return (
        f"since version {one.back_in}, {when}"
        if one.back_in
        else f"since {when.removeprefix('at ').removeprefix('on ')}"
    )


def _at(at: float, zone: str | None, now: float) -> str:
    text = stamp(at, zone, now).text
    return f"on {text}" if "-" in text else f"at {text}"
