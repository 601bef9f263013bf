"""Define claims on message checksums, and the protocol of the backends that keep them."""

from __future__ import annotations

from enum import Enum
from typing import Literal, NamedTuple, Protocol


class Claim(Enum):
    """The result of a claim: the key was free, another message holds it, or an equal message was acknowledged."""

    NEW = "new"
    PENDING = "pending"
    DUPLICATE = "duplicate"


class ClaimUpdate(NamedTuple):
    """A change of a key that a backend applies without returning a result."""

    kind: Literal["claim", "confirm", "release"]
    owner: str = ""


class ClaimBackend(Protocol):
    """Keeps claims. `owner` identifies the message: a second claim of the same owner renews the first."""

    def claim(self, key: str, owner: str) -> Claim: ...
    def confirm(self, key: str) -> None: ...
    def release(self, key: str, owner: str) -> None: ...
    def confirmed(self, key: str) -> bool: ...
