"""Mark causes of dead letters as resolved, and find those that came back."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import groupby
from typing import TYPE_CHECKING, Any

from producer_core.errors import ConfigError

if TYPE_CHECKING:
    from producer_core.store.store import Store

_LONGEST_NOTE = 1_000
_LONGEST_VERSION = 255
_UNKNOWN_FIX = "List the causes with producer-core dlq groups --state any."


@dataclass(frozen=True, slots=True)
class Resolution:
    """A cause was marked as resolved by `who`, with the fix in the version `fixed_in` (empty: not given).

    `back_at` is the first failure after it, None while there is none, and `back_in` the version of the application that
    failed (empty: unknown). `ended_at`: when `ended_by` reopened the cause or resolved it again; None for the present
    resolution. Times are seconds since 1970.
    """

    resolved_at: float
    who: str
    note: str = ""
    fixed_in: str = ""
    back_at: float | None = None
    back_in: str = ""
    ended_at: float | None = None
    ended_by: str = ""


@dataclass(frozen=True, slots=True)
class CauseStatus:
    """The resolutions of a cause, the latest last.

    Since the latest one, `count` messages failed for this cause on `topics`; `pending` of them are pending dead letters.
    """

    fingerprint: str
    history: tuple[Resolution, ...]
    count: int = 0
    pending: int = 0
    topics: tuple[str, ...] = ()
    code: str = ""

    @property
    def present(self) -> Resolution | None:
        """The resolution that has not ended; None for a reopened cause."""
        latest = self.history[-1]
        return latest if latest.ended_at is None else None

    @property
    def is_resolved(self) -> bool:
        """Whether it is marked as resolved, and no message failed for it since."""
        return self.present is not None and self.present.back_at is None

    @property
    def is_back(self) -> bool:
        """Whether a message failed for it since it was marked as resolved."""
        return self.present is not None and self.present.back_at is not None


def cause_statuses(store: Store) -> Mapping[str, CauseStatus]:
    """Return the causes that were ever marked as resolved, by fingerprint."""
    rows = sorted(store.rows("cause_resolutions"), key=lambda row: (row["fingerprint"], row["resolved_at"]))
    return {mark: _status(mark, list(found)) for mark, found in groupby(rows, lambda row: row["fingerprint"])}


def cause_status(store: Store, fingerprint: str) -> CauseStatus | None:
    """Return the resolutions of a cause; None if it was never marked as resolved."""
    rows = store.rows("cause_resolutions", fingerprint=fingerprint)
    return _status(fingerprint, rows) if rows else None


def resolve_cause(
    store: Store,
    fingerprint: str,
    *,
    who: str,
    origin: str,
    now: float,
    fixed_in: str = "",
    note: str = "",
) -> int:
    """Mark a cause as resolved, with one audit entry. Return the number of its dead letters, which stay as they are.

    The cause is back as soon as a message fails for it again. With `fixed_in`, the version with the fix, failures of the
    other versions that failed for it before do not count, because instances of them may still run. Raise ConfigError for an
    unknown cause, and for one that is resolved.
    """
    _check(fixed_in, note)
    with store.borrow(write=True):
        versions = {
            row["version"]: row["count"] for row in store.rows("cause_versions", fingerprint=fingerprint)
        }
        if not versions:
            raise ConfigError(f"No dead letter has the cause {fingerprint!r:.60}.", fix=_UNKNOWN_FIX)
        status = cause_status(store, fingerprint)
        if status is not None and status.is_resolved:
            raise ConfigError(f"The cause {fingerprint} is already resolved.")
        _end(store, status, who=who, now=now)
        old = sorted(set(versions) - {fixed_in}) if fixed_in else []
        store.execute(
            "cause_resolved", fingerprint=fingerprint, now=now, who=who, origin=origin, note=note, fixed_in=fixed_in,
            old_versions=old,
        )  # fmt: skip
        outcome = f"resolved{f' in {fixed_in}' if fixed_in else ''}{f': {note}' if note else ''}"
        _audit(store, "resolve", fingerprint, sum(versions.values()), outcome, who=who, origin=origin)
        return sum(versions.values())


def reopen_cause(store: Store, fingerprint: str, *, who: str, origin: str, now: float) -> None:
    """Take back that a cause is resolved, with one audit entry. Its history stays. Raise ConfigError if it is not resolved."""
    with store.borrow(write=True):
        status = cause_status(store, fingerprint)
        if status is None or status.present is None:
            raise ConfigError(f"The cause {fingerprint!r:.60} is not resolved.", fix=_UNKNOWN_FIX)
        _end(store, status, who=who, now=now)
        _audit(store, "reopen", fingerprint, status.count, "reopened", who=who, origin=origin)


def _end(store: Store, status: CauseStatus | None, *, who: str, now: float) -> None:
    if status is None or status.present is None:
        return
    store.execute(
        "cause_resolution_ended", fingerprint=status.fingerprint, now=now, who=who, back_at=status.present.back_at,
        back_in=status.present.back_in,
    )  # fmt: skip


def _audit(
    store: Store, action: str, fingerprint: str, count: int, outcome: str, *, who: str, origin: str
) -> None:
    store.audit(
        who=who, origin=origin, action=action, selection={"group": fingerprint}, count=count, outcome=outcome
    )


def _check(fixed_in: str, note: str) -> None:
    for name, text, longest in (("version", fixed_in, _LONGEST_VERSION), ("note", note, _LONGEST_NOTE)):
        if not text.isprintable() or len(text) > longest:
            raise ConfigError(
                f"The {name} {text!r:.60} is not a text of at most {longest} printable characters."
            )


def _status(fingerprint: str, rows: list[dict[str, Any]]) -> CauseStatus:
    latest = rows[-1]
    return CauseStatus(
        fingerprint,
        tuple(map(_resolution, rows)),
        latest["count"] or 0,
        latest["pending"] or 0,
        tuple(latest["topics"] or ()),
        latest["code"] or "",
    )


def _resolution(row: Mapping[str, Any]) -> Resolution:
    return Resolution(
        resolved_at=row["resolved_at"],
        who=row["who"],
        note=row["note"],
        fixed_in=row["fixed_in"],
        back_at=row["back_at"],
        back_in=row["back_in"] or "",
        ended_at=row["ended_at"],
        ended_by=row["ended_by"] or "",
    )
