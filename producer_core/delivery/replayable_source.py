"""A stand-in for the journal: an input that can be read again from any row on, such as a file."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterable, Sequence
from typing import Protocol

from producer_core.delivery.delivery import Delivery
from producer_core.delivery.journal import SettlementState
from producer_core.delivery.transport import Transport
from producer_core.messages import MessageIds


class SequenceSource(Protocol):
    """Where the sequences of messages come from: `take` gives one, `peek` is higher than all that were taken."""

    take: Callable[[], int]

    def peek(self) -> int: ...


class FeederTarget(Protocol):
    """What a keeper needs of the lifecycle."""

    pending: dict[bytes, Delivery]

    @property
    def transport(self) -> Transport: ...
    def offer(self, delivery: Delivery) -> bool: ...
    def recover(self, delivery: Delivery) -> None: ...
    def renew(self, deliveries: Sequence[Delivery], waits: Callable[[bytes], bool]) -> None:
        """Claim again for messages that waited somewhere else, before they are offered; whose id `waits` yields to them."""

    def hand_over(self, later: Delivery, earlier: Delivery) -> None:
        """The claim of one that is not offered yet is an earlier one's, which waits for it."""


class PendingLog(Protocol):
    """What the lifecycle tells whoever keeps messages until they are settled; `JournalFeeder` over a journal is one."""

    @property
    def waiting(self) -> int:
        """Messages that are kept and not with the client."""

    @property
    def unkept(self) -> int:
        """Dead letters that no disk has taken."""

    def start(self) -> None: ...
    def stop(self) -> None: ...
    def take(self, delivery: Delivery) -> None:
        """Keep a message and send it on its way. JournalFull when there is no room."""

    def take_many(self, deliveries: Sequence[Delivery], taken: list[Delivery]) -> None:
        """As `take` for each; what was taken is put to `taken`. JournalFull when there is no room for all: none was."""

    def holds(self, seq: int) -> bool: ...
    def leave(self, delivery: Delivery) -> bool:
        """Take a message out of `pending`, in one step with remembering it; False when somebody else did."""

    def leave_many(self, deliveries: Sequence[Delivery]) -> list[bool]:
        """As `leave` for each, none of which is a replay."""

    def acknowledged(self, deliveries: Iterable[Delivery]) -> None: ...
    def mark_redundant(self, delivery: Delivery) -> None: ...
    def wanted(self, message_id: bytes, earlier: Delivery) -> None:
        """An earlier message waits for the claim of this one, which may be kept here; called on the retry thread."""

    def flush(self) -> None: ...
    def dead_letters_stored(self, message_ids: Iterable[str]) -> None: ...


class ReplayableSource(SettlementState, Protocol):
    """Numbers the messages itself, keeps their progress, and gives the lifecycle its keeper.

    What is not settled when the producer closes is not a dead letter: it is still in the input.
    """

    ids: MessageIds
    lasting_id: uuid.UUID
    """The same at every start."""
    numbers: SequenceSource

    def pending_log(self, sender: FeederTarget) -> PendingLog: ...
    def unsettled(self) -> int:
        """Messages that were accepted and are not settled."""

    def close(self) -> None: ...
