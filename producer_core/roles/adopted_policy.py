"""The policy that a store is under: the last one that a process adopted from its policy file.

The store keeps the text, so that a process without the file applies the same rules, and a file that disappears ends none.
"""

from __future__ import annotations

import contextlib
import socket
from typing import TYPE_CHECKING, Any

from producer_core._internal.actor import current_actor
from producer_core._internal.identity import Identity, identify
from producer_core.errors import ConfigError, NotPermitted
from producer_core.roles.policy import ApprovalPolicy, Role, parse
from producer_core.roles.policy_file import VARIABLE, read_policy

if TYPE_CHECKING:
    from producer_core.store import Store


def policy_of(store: Store) -> ApprovalPolicy | None:
    """Return the policy that an act on this store would be under now; None if there is none. Changes nothing.

    Raise ConfigError if the file is invalid, cannot be read, is not the one that the store is under, or is an earlier one.
    """
    given, adopted = read_policy(), _adopted(store)
    if given is None:
        return None if adopted is None else _parsed(adopted)
    _check_path(store, given, adopted)
    if _is_earlier(store, given, adopted):
        raise ConfigError(
            f"{given.source} is an earlier policy of this store, so no replay can be started with it.",
            fix="Update the file on this host. To return to it: `producer-core dlq policy --adopt`.",
        )
    return given


def adopt_policy(
    store: Store, *, who: str, origin: str, now: float, again: bool = False
) -> ApprovalPolicy | None:
    """Return the policy for an act on this store, and adopt the file if it changed. Call it in a write block.

    An adopted change is audited. Versions without approvals can no longer change or replay dead letters of the store.
    With `again`, adopt an earlier policy of the store too; raise NotPermitted unless the present one lets this person do so.
    """
    policy = _to_adopt_again(store, identify(who, origin)) if again else policy_of(store)
    if policy is None:
        return None
    before = _adopted(store)
    if before is None or before["digest"] != policy.digest:
        _adopt(store, policy, before, who=who, origin=origin, now=now)
    elif policy.source != _STORE and not _is_known(store, policy.source):
        _insert(store, policy, who, now)
    return policy


def _to_adopt_again(store: Store, who: Identity) -> ApprovalPolicy | None:
    """Return the policy of the file, although it may be an earlier one."""
    given, adopted = read_policy(), _adopted(store)
    if given is None or adopted is None or not _is_earlier(store, given, adopted):
        return policy_of(store)
    _check_path(store, given, adopted)
    present = _parsed(adopted)
    role: Role = "admin" if present.roles.get("admin") else "operator"
    if not present.allows(who, role):
        own = present.role_of(who)
        raise NotPermitted(
            f"{who} is {'a' if own == 'viewer' else 'an'} {own} and may not return to an earlier policy.",
            fix=f"Ask an {role}.",
        )
    return given


def _check_path(store: Store, given: ApprovalPolicy, adopted: dict[str, Any] | None) -> None:
    if adopted is not None and adopted["digest"] != given.digest and not _is_known(store, given.source):
        raise ConfigError(
            f"This store is under the approval policy {adopted['path']}, and {given.source} differs from it, so no "
            "replay can be started.",
            fix=f"Unset {VARIABLE}, or copy {adopted['path']} to {given.source} before you change it.",
        )


def _is_earlier(store: Store, given: ApprovalPolicy, adopted: dict[str, Any] | None) -> bool:
    """Return whether the store adopted this text before and is under another one now, for example from another host."""
    return (
        adopted is not None
        and adopted["digest"] != given.digest
        and bool(store.rows("approval_policy_digest", digest=given.digest)[0]["count"])
    )


def adopt_changed_file(store: Store, now: float) -> None:
    """Adopt the policy file of this process if it changed, without an act that needs it. Reads only, if it did not.

    A text that the store had before is not adopted: two hosts with different files would adopt them in turns. A mistake in the
    file is not raised here: every replay is refused with it.
    """
    with contextlib.suppress(ConfigError):
        given = read_policy()
        adopted = _adopted(store) if given is not None else None
        if given is None or (adopted is not None and adopted["digest"] == given.digest):
            return
        if _is_earlier(store, given, adopted):
            return
        with store.borrow(write=True):
            adopt_policy(store, who=current_actor(), origin="store", now=now)


def _adopt(
    store: Store, policy: ApprovalPolicy, before: dict[str, Any] | None, *, who: str, origin: str, now: float
) -> None:
    # Late: it loads DuckDB, which a producer without a store does not need.
    from producer_core.store import required_features

    with store.borrow(write=True) as connection:
        required_features.require(connection, required_features.APPROVALS, now=now)
    if before is None:
        store.execute("approval_admit_running", now=now)
    _insert(store, policy, who, now)
    store.audit(
        who=who,
        origin=origin,
        action="policy",
        selection={"path": policy.source, "digest": policy.digest},
        count=0,
        outcome=f"{'adopted' if before is None else 'changed'}: {policy.summary} Approvers: {policy.approvers() or 'none'}",
    )


def _insert(store: Store, policy: ApprovalPolicy, who: str, now: float) -> None:
    store.execute(
        "approval_policy_adopt", now=now, path=policy.source, digest=policy.digest, text=policy.text, who=who,
        host=socket.gethostname(),
    )  # fmt: skip


def _adopted(store: Store) -> dict[str, Any] | None:
    return next(iter(store.rows("approval_policy")), None)


def _is_known(store: Store, path: str) -> bool:
    """Return whether a policy was ever adopted from this path."""
    return bool(store.rows("approval_policy_path", path=path)[0]["count"])


_STORE = "the store"


def _parsed(adopted: dict[str, Any]) -> ApprovalPolicy:
    return parse(adopted["text"], _STORE)
