"""Whether the system enforces an approval policy for the user of this process, or the policy only advises."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Literal, NamedTuple

from producer_core._internal.identity import system_user


class Enforcement(NamedTuple):
    """`enforced`: this user cannot write the store, so only the store's owner starts a replay. `advisory`: this user can
    change the store's file without producer_core."""

    level: Literal["enforced", "advisory"]
    text: str


def enforcement(store: Path, policy: str) -> Enforcement:
    """Return the level for a store's file and the source of its policy, with the reason as a sentence."""
    user = system_user()
    if os.geteuid() == 0:
        return Enforcement(
            "advisory", f"{user} can write every file, so it can send dead letters without an approval."
        )
    if store.stat().st_uid == os.geteuid():
        return Enforcement(
            "advisory", f"{user} owns {store}, so it can send dead letters without an approval."
        )
    file = Path(policy)
    for path in (store, store.parent, *((file, file.parent) if file.is_absolute() else ())):
        if os.access(path, os.W_OK):
            return Enforcement("advisory", f"{user} can write {path}, so it can replay without an approval.")
    return Enforcement("enforced", f"{store} belongs to another user, and {user} cannot write it.")
