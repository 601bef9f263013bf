"""Refuse an act for which the approval policy requires another role. Every way to act passes here."""

from __future__ import annotations

from typing import TYPE_CHECKING

from producer_core._internal.identity import Identity, identify
from producer_core.errors import NotPermitted
from producer_core.roles.adopted_policy import adopt_policy
from producer_core.roles.policy import ApprovalPolicy

if TYPE_CHECKING:
    from producer_core.store import Store

DEAD_LETTERS = "change or replay dead letters"
SETTINGS = "change the settings of the store"


def check_operator(store: Store, *, who: str, origin: str, now: float, act: str = DEAD_LETTERS) -> None:
    """Raise NotPermitted if the policy lets this person only view. Call it in a write block."""
    policy = adopt_policy(store, who=who, origin=origin, now=now)
    if policy is not None:
        require_operator(policy, identify(who, origin), act)


def check_admin(store: Store, *, who: str, origin: str, now: float, act: str = SETTINGS) -> None:
    """Raise NotPermitted unless this person is an admin, or an operator if the policy has no admins.

    Call it in a write block.
    """
    policy = adopt_policy(store, who=who, origin=origin, now=now)
    if policy is None:
        return
    identity = identify(who, origin)
    if not policy.roles.get("admin"):
        require_operator(policy, identity, act)
    elif not policy.allows(identity, "admin"):
        raise NotPermitted(
            f"{identity} may not {act}.", fix="Ask an admin. The roles are in the approval policy."
        )


def require_operator(policy: ApprovalPolicy, who: Identity, act: str = DEAD_LETTERS) -> None:
    """Raise NotPermitted if a policy lets this person only view."""
    if not policy.allows(who, "operator"):
        raise NotPermitted(
            f"{who} is a {policy.role_of(who)} and may not {act}.",
            fix="Ask an operator. The roles are in the approval policy.",
        )
