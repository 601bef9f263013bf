"""Claim messages for deduplication, and hold back or drop the duplicates."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from producer_core._internal.wakeup import Wakeup
from producer_core.delivery.dedup.claims import Claim
from producer_core.delivery.dedup.deduplicator import MessageDeduplicator
from producer_core.delivery.delivery import AWAITING_DUPLICATE, QUEUED, Delivery
from producer_core.delivery.hooks import HookDispatcher
from producer_core.delivery.retry import RetryManager

_CLAIM_INTERVAL = 0.1
"""Seconds until a duplicate of a pending message claims again."""


class DuplicateGuard:
    """Claims messages by their checksums. Without deduplication every message is new.

    A duplicate of a pending message waits in the retry manager's queue. A duplicate of an acknowledged message is reported
    and not sent.
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
        """Claim all in one round trip to Redis. With deduplication each has a checksum."""
        return self._claims(deliveries, counted=True)

    def _claims(self, deliveries: Sequence[Delivery], *, counted: bool) -> list[Claim]:
        if self._dedup is None:
            return [Claim.NEW] * len(deliveries)
        claims = [(one.checksum or "", one.topic, one.id) for one in deliveries]
        return self._dedup.claim_many(claims, counted=counted)

    def renew(self, deliveries: Sequence[Delivery], waits: Callable[[bytes], bool]) -> None:
        """Claim again for messages that waited in the journal, where claims expire; a duplicate waits for its original.

        If an original has a later sequence and `waits` in the journal too, it becomes the duplicate.
        """
        with_checksum = [one for one in deliveries if one.checksum is not None]
        if self._dedup is None or not with_checksum:
            return
        claims = self._claims(with_checksum, counted=False)
        pending = [one for one, claim in zip(with_checksum, claims, strict=True) if claim is Claim.PENDING]
        if [one for one in pending if self.take_over(one, waits)]:
            # a message that lost its claim may be in this batch
            claims = self._claims(with_checksum, counted=False)
        for delivery, claim in zip(with_checksum, claims, strict=True):
            delivery.state = QUEUED if claim is Claim.NEW else AWAITING_DUPLICATE

    def take_over(self, delivery: Delivery, yields: Callable[[bytes], bool]) -> bool:
        """Take the claim of a later duplicate if it `yields`, and return whether it did.

        The caller claims again afterwards, which acquires the claim in Redis.
        """
        if self._dedup is None or delivery.checksum is None:
            return False
        return self._dedup.take_over(delivery.checksum, delivery.topic, delivery.id, yields)

    def prolong(self, delivery: Delivery) -> None:
        """Restart the lifetime of the claim, so that duplicates are held back although the message is no longer in flight."""
        if delivery.checksum is not None and self._dedup is not None:
            self._dedup.prolong(delivery.checksum, delivery.id)

    def has(self, delivery: Delivery) -> bool:
        """Return whether the message has its claim in this process. Does not ask Redis."""
        return (
            delivery.checksum is None
            or self._dedup is None
            or self._dedup.has(delivery.checksum, delivery.id)
        )

    def is_redundant(self, delivery: Delivery) -> bool:
        """Return whether an equal message of this process was acknowledged. Does not ask Redis."""
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
        """Schedule the next claim of a duplicate whose original is still pending."""
        self._retries.schedule(delivery, _CLAIM_INTERVAL, counted=False)

    def duplicate(self, delivery: Delivery) -> None:
        """Report a duplicate whose original was acknowledged."""
        self._hooks.duplicate(delivery.topic)
        self._settled.notify_all()
