"""Mark the cause of a group of dead letters as resolved, and take it back."""

from __future__ import annotations

from typing import TYPE_CHECKING

from producer_core.errors import ConfigError
from producer_core.roles.role_check import check_operator
from producer_core.store.resolved_causes import CauseStatus, cause_status

if TYPE_CHECKING:
    from producer_core.store import Store

_LONGEST_NOTE = 1_000
_LONGEST_VERSION = 255
_UNKNOWN_FIX = "List the causes with producer-core dlq groups --state any."


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
    unknown cause, and for one that is resolved; NotPermitted if the approval policy does not let this person act.
    """
    _check(fixed_in, note)
    with store.borrow(write=True):
        check_operator(store, who=who, origin=origin, now=now)
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
    """Take back that a cause is resolved, with one audit entry. Its history stays.

    Raise ConfigError if it is not resolved; NotPermitted if the approval policy does not let this person act.
    """
    with store.borrow(write=True):
        check_operator(store, who=who, origin=origin, now=now)
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
