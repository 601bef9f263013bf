"""The causes of dead letters that were marked as resolved, and those that came back."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import groupby
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from producer_core.store.store import Store


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
