"""Define the inputs that replace a journal: they can be read again from any row, for example a file."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterable, Sequence
from typing import Protocol

from producer_core.delivery.delivery import Callbacks, Delivery
from producer_core.delivery.journal import SettlementState
from producer_core.delivery.transport import Transport
from producer_core.messages import MessageIds


class SequenceSource(Protocol):
    """Assigns sequences to messages: `take` returns the next one, `peek` a bound above all that were taken."""

    take: Callable[[], int]

    def peek(self) -> int: ...


class FeederTarget(Protocol):
    """The part of the delivery that a pending log needs."""

    pending: dict[bytes, Delivery]
    resume_span: Callable[[Delivery], Callbacks | None] | None
    """Starts the span of a message of an earlier process, and returns its callbacks if it is recorded. None without tracing."""

    @property
    def transport(self) -> Transport: ...
    def offer(self, delivery: Delivery) -> bool: ...
    def recover(self, delivery: Delivery) -> None: ...
    def hold_back(self, delivery: Delivery, reason: str) -> None:
        """Turn a message of an earlier process into a dead letter without sending it."""

    def renew(self, deliveries: Sequence[Delivery], waits: Callable[[bytes], bool]) -> None:
        """Claim again for messages that waited outside `pending`, before they are offered.

        A message with a later sequence for which `waits` returns true gives up its claim.
        """

    def transfer_claim(self, later: Delivery, earlier: Delivery) -> None:
        """Give the claim of a message that is not offered yet to an earlier message that waits for it."""


class PendingLog(Protocol):
    """Keeps messages until they are settled, as `JournalFeeder` does in a journal."""

    @property
    def waiting(self) -> int:
        """The number of messages that are kept and not in the client."""

    @property
    def unstored_dead_letters(self) -> int:
        """The number of dead letters that are not on disk."""

    def start(self) -> None: ...
    def stop(self) -> None: ...
    def take(self, delivery: Delivery) -> None:
        """Keep a message and offer it to the client. Raises JournalFull when there is no room."""

    def take_many(self, deliveries: Sequence[Delivery], taken: list[Delivery]) -> None:
        """Do the same as `take` for each message, and append the kept ones to `taken`.

        Raises JournalFull when there is no room for all messages; then none is kept.
        """

    def holds(self, seq: int) -> bool: ...
    def remove(self, delivery: Delivery) -> bool:
        """Remove a message from `pending` and record that in one step; return False when another thread settled it first."""

    def remove_many(self, deliveries: Sequence[Delivery]) -> list[bool]:
        """Do the same as `remove` for each message. None of them is a replay."""

    def acknowledged(self, deliveries: Iterable[Delivery]) -> None: ...
    def mark_redundant(self, delivery: Delivery) -> None: ...
    def claim_requested(self, message_id: bytes, earlier: Delivery) -> None:
        """Note that an earlier message waits for the claim of this one, which may be kept here. Called on the retry thread."""

    def flush(self) -> None: ...
    def dead_letters_stored(self, message_ids: Iterable[str]) -> None: ...


class ReplayableSource(SettlementState, Protocol):
    """Assigns the sequences of its messages, keeps their progress, and provides the pending log.

    A message that is not settled when the producer closes does not become a dead letter: it is still in the input.
    """

    ids: MessageIds
    lasting_id: uuid.UUID
    """The id of the input, the same at every start."""
    numbers: SequenceSource

    def pending_log(self, sender: FeederTarget) -> PendingLog: ...
    def unsettled(self) -> int:
        """Return the number of messages that are accepted and not settled."""

    def close(self) -> None: ...
