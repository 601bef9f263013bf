"""The check of the approval policy: whether it is valid, and whether the system enforces it for this user."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from producer_core.diagnostics.doctor.finding import DoctorFinding, of_error
from producer_core.dlq.approvals.enforcement import enforcement
from producer_core.errors import ConfigError, StoreError
from producer_core.roles.adopted_policy import policy_of
from producer_core.roles.policy_file import read_policy

_ADVISORY = (
    "Give the store's file and folder and the policy to another user of the system, under which the producers and the "
    "dashboard run, and let operators use the dashboard."
)


def check_approvals(path: Path | str | None) -> Iterator[DoctorFinding]:
    """Report the approval policy of the store, if it has one."""
    from producer_core.store import Store, default_path

    place = Path(path) if path else default_path()
    try:
        policy = policy_of(Store.open(place, create=False)) if place.exists() else read_policy()
    except ConfigError as error:
        yield of_error("approvals", error)
        return
    except StoreError:
        try:
            policy = read_policy()
        except ConfigError as error:
            yield of_error("approvals", error)
            return
    if policy is None:
        return
    if not place.exists():
        yield DoctorFinding("approvals", "ok", f"{policy.summary} The store does not exist yet.")
        return
    found = enforcement(place, policy.source)
    text = f"{found.level}: {policy.summary} {found.text}"
    yield DoctorFinding(
        "approvals", "ok" if found.level == "enforced" else "warning", text,
        _ADVISORY if found.level == "advisory" else "",
    )  # fmt: skip
