"""Claim messages for de-duplication, and hold back or drop the duplicates. Without de-duplication every message is new."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from producer_core._internal.wakeup import Wakeup
from producer_core.delivery.dedup.deduplicator import Claim, MessageDeduplicator
from producer_core.delivery.delivery import AWAITING_DUPLICATE, QUEUED, Delivery
from producer_core.delivery.hooks import HookDispatcher
from producer_core.delivery.retry import RetryManager

_HOLD = 0.1
"""Seconds until a duplicate of a pending message claims again."""


class DuplicateGuard:
    """Claims messages by their checksums.

    A duplicate of a message that is still pending waits on the retry manager's heap; a duplicate of an acknowledged message
    is reported.
    """

    def __init__(
        self,
        dedup: MessageDeduplicator | None,
        *,
        retries: RetryManager,
        hooks: HookDispatcher,
        settled: Wakeup,
    ) -> None:
        self.deduplicator = self._dedup = dedup
        self._retries = retries
        self._hooks = hooks
        self._settled = settled

    def claim(self, delivery: Delivery) -> Claim:
        if delivery.checksum is None or self._dedup is None:
            return Claim.NEW
        return self._dedup.claim(delivery.checksum, delivery.topic, delivery.id)

    def claim_many(self, deliveries: Sequence[Delivery]) -> list[Claim]:
        """Claim all in one round trip to Redis. With de-duplication each has a checksum."""
        return self._claims(deliveries, counted=True)

    def _claims(self, deliveries: Sequence[Delivery], *, counted: bool) -> list[Claim]:
        if self._dedup is None:
            return [Claim.NEW] * len(deliveries)
        asked = [(one.checksum or "", one.topic, one.id) for one in deliveries]
        return self._dedup.claim_many(asked, counted=counted)

    def renew(self, deliveries: Sequence[Delivery], waits: Callable[[bytes], bool]) -> None:
        """Claim again for messages that waited in the journal, where claims expire; a duplicate waits for its original.

        If an original has a later sequence and `waits` in the journal too, it becomes the duplicate.
        """
        asked = [one for one in deliveries if one.checksum is not None]
        if self._dedup is None or not asked:
            return
        claims = self._claims(asked, counted=False)
        behind = [one for one, claim in zip(asked, claims, strict=True) if claim is Claim.PENDING]
        if [one for one in behind if self.take_over(one, waits)]:
            claims = self._claims(asked, counted=False)  # those that lost theirs may be among them
        for delivery, claim in zip(asked, claims, strict=True):
            delivery.place = QUEUED if claim is Claim.NEW else AWAITING_DUPLICATE

    def take_over(self, delivery: Delivery, yields: Callable[[bytes], bool]) -> bool:
        """Take the claim of a later duplicate if it `yields`, and return whether it did. Claim again to tell Redis."""
        if self._dedup is None or delivery.checksum is None:
            return False
        return self._dedup.take_over(delivery.checksum, delivery.topic, delivery.id, yields)

    def prolong(self, delivery: Delivery) -> None:
        """Keep the claim, so that duplicates are held back, although the message is no longer in flight."""
        if delivery.checksum is not None and self._dedup is not None:
            self._dedup.prolong(delivery.checksum, delivery.id)

    def has(self, delivery: Delivery) -> bool:
        """Return whether the message has its claim, as far as this process knows."""
        return (
            delivery.checksum is None
            or self._dedup is None
            or self._dedup.has(delivery.checksum, delivery.id)
        )

    def is_redundant(self, delivery: Delivery) -> bool:
        """Return whether an equal message was acknowledged, as far as this process knows."""
        return (
            delivery.checksum is not None
            and self._dedup is not None
            and self._dedup.confirmed(delivery.checksum)
        )

    def confirm(self, deliveries: Sequence[Delivery]) -> None:
        """Confirm the claims of acknowledged messages."""
        if self._dedup is not None:
            claimed = [d for d in deliveries if d.checksum is not None]
            self._dedup.confirm_many([d.checksum or "" for d in claimed], (d.topic for d in claimed))

    def release(self, delivery: Delivery) -> None:
        if delivery.checksum is not None and self._dedup is not None:
            self._dedup.release(delivery.checksum, delivery.topic, delivery.id)

    def release_all(self, deliveries: Sequence[Delivery]) -> None:
        for delivery in deliveries:
            self.release(delivery)

    def hold(self, delivery: Delivery) -> None:
        """Claim again in a moment: the original is still pending."""
        self._retries.schedule(delivery, _HOLD, counted=False)

    def duplicate(self, delivery: Delivery) -> None:
        """Report a duplicate whose original was acknowledged."""
        self._hooks.duplicate(delivery.topic)
        self._settled.notify_all()
