"""A gathering: messages sent together whose ends are counted together."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from typing import Any, NamedTuple

from producer_core._internal.masking import mask_or_hide
from producer_core.delivery.delivery import Callbacks, Delivery, Ended
from producer_core.delivery.enqueue import MessageEnqueuer
from producer_core.delivery.grouping import groups
from producer_core.errors import ProducerError
from producer_core.events import DeadLetter

logger = logging.getLogger(__name__)


class BatchEntry(NamedTuple):
    """How one input of a batch ended. `verdict` says of a dead letter whether sending it again is safe."""

    message_id: str | None
    status: Ended
    error: str | None = None
    verdict: str | None = None


class BatchSend:
    """Counts how each message of a batch ended: `owner` hears of all of them, in one atomic step each, on any thread; the
    rest is the sender's."""

    def __init__(self) -> None:
        self._ends: list[Ended] = []
        self.callbacks = Callbacks(on_settled=self._ends.append, on_unsent=self._note)
        self._inputs: list[int | BatchEntry] = []  # of each the number of its message, or why it has none
        self._unsent: dict[int, tuple[bool, BatchEntry]] = {}  # by number; whether the message was accepted

    def _note(self, number: int, dead_letter: DeadLetter | None) -> None:
        ended = (
            BatchEntry(None, "duplicate")
            if dead_letter is None
            else BatchEntry(None, "failed", dead_letter.error_text, dead_letter.verdict)
        )
        self._unsent[number] = (dead_letter is not None, ended)

    def take(
        self,
        deliveries: Iterable[Delivery],
        acceptance: MessageEnqueuer,
        *,
        together: bool,
    ) -> None:
        """Have each accepted: in groups that share a round trip and a sync, or as it comes."""
        if together:
            for group in groups(self._read(deliveries)):
                for delivery, outcome in zip(group, acceptance.accept_many(group), strict=True):
                    self._accepted(delivery.seq, outcome)
            return
        accept = acceptance.accept
        for delivery in self._read(deliveries):
            try:
                self._accepted(delivery.seq, accept(delivery))
            except ProducerError as error:
                self._accepted(delivery.seq, error)

    def _read(self, deliveries: Iterable[Delivery]) -> Iterator[Delivery]:
        for delivery in deliveries:
            self._inputs.append(delivery.seq)
            yield delivery

    def _accepted(self, number: int, outcome: bool | ProducerError) -> None:
        if outcome is True:
            return
        ended = BatchEntry(None, "duplicate") if outcome is False else self._refusal(outcome)
        self._unsent[number] = (False, ended)
        self._ends.append(ended.status)

    def refused(self, error: ProducerError) -> None:
        """The next input became no message."""
        self._inputs.append(self._refusal(error))
        self._ends.append("failed")

    def _refusal(self, error: ProducerError) -> BatchEntry:
        told = mask_or_hide(str(error))
        logger.warning(f"message of a batch not accepted: {told}", extra={"error": told})
        return BatchEntry(None, "failed", str(error), "not_sent")

    def complete(self) -> bool:
        return len(self._ends) >= len(self._inputs)

    def result(self, id_of: Callable[[int], str]) -> dict[str, Any]:
        """The counts; `message_ids` of what was accepted and is no duplicate; `results`, one entry an input, in their order."""
        counts = Counter(self._ends)
        results = [self._entry(one, id_of) for one in self._inputs]
        return {
            "total": len(results),
            "sent": counts["sent"],
            "failed": counts["failed"],
            "duplicate": counts["duplicate"],
            "message_ids": [entry.message_id for entry in results if entry.message_id is not None],
            "results": results,
        }

    def _entry(self, one: int | BatchEntry, id_of: Callable[[int], str]) -> BatchEntry:
        if isinstance(one, BatchEntry):
            return one
        if one not in self._unsent:
            return BatchEntry(id_of(one), "sent")
        accepted, ended = self._unsent[one]
        return ended._replace(message_id=id_of(one)) if accepted else ended
