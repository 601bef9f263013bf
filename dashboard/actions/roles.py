"""The role of the page's user under the approval policy of the store."""

from __future__ import annotations

from pathlib import Path

from producer_core._internal.identity import Identity
from producer_core.dashboard.auth import access
from producer_core.errors import ProducerError, StoreError
from producer_core.roles.adopted_policy import policy_of
from producer_core.roles.policy import ApprovalPolicy, Role
from producer_core.roles.policy_file import read_policy
from producer_core.store import Store

_known: dict[Path, tuple[tuple[int, str], ApprovalPolicy | None]] = {}
"""The policies of stores, each with the number of the last write and the digest of the file that it is from."""


def policy(store: Store) -> ApprovalPolicy | None:
    """Return the policy that an act on this store would be under; None without one. Cheap while nothing is written.

    Raise ConfigError if the policy file is invalid or is not that of the store.
    """
    given = read_policy()
    version = store.changes(), f"{given.source} {given.digest}" if given is not None else ""
    known = _known.get(store.path)
    if known is not None and known[0] == version:
        return known[1]
    found = policy_of(store)
    _known[store.path] = (version, found)
    return found


def identity(found: ApprovalPolicy | None) -> Identity:
    """Return the user of this session."""
    return access.identity(found.groups_claim if found is not None else "")


def acting(store: Store) -> Identity:
    """Return the user who acts; raise NotAllowed where the user may not."""
    found = policy(store)
    access.actor()
    who = identity(found)
    if reason := missing_role(found, who, "operator"):
        raise access.NotAllowed(reason)
    return who


def missing_role(found: ApprovalPolicy | None, who: Identity, role: Role) -> str:
    """Return why the policy does not permit the act, as a sentence; an empty text if it does."""
    if found is None or found.allows(who, role):
        return ""
    return f"{who} is a {found.role_of(who)}. The approval policy requires the role {role}."


def reason_against(store: Store | None) -> str:
    """Return why the user of the page may not act under the policy; an empty text if the user may."""
    try:
        found = policy(store) if store is not None else read_policy()
        return missing_role(found, identity(found), "operator")
    except StoreError:
        return ""  # the act itself reports it
    except ProducerError as error:
        return str(error)
