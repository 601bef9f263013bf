"""The copies: which messages are copies of others, asked for each delivery; without de-duplication every one is new."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from producer_core._internal.wakeup import Wakeup
from producer_core.delivery.dedup.deduplicator import Claim, MessageDeduplicator
from producer_core.delivery.delivery import AWAITING_DUPLICATE, QUEUED, Delivery
from producer_core.delivery.hooks import HookDispatcher
from producer_core.delivery.retry import RetryManager

_HOLD = 0.1
"""Seconds until a copy of a pending claim asks again."""


class DuplicateGuard:
    """Claims for deliveries; a copy of a pending claim waits on the retry manager's heap, a confirmed one is told."""

    def __init__(
        self,
        dedup: MessageDeduplicator | None,
        *,
        retries: RetryManager,
        audience: HookDispatcher,
        settled: Wakeup,
    ) -> None:
        self._dedup = dedup
        self._retries = retries
        self._audience = audience
        self._settled = settled

    def claim(self, delivery: Delivery) -> Claim:
        if delivery.checksum is None or self._dedup is None:
            return Claim.NEW
        return self._dedup.claim(delivery.checksum, delivery.topic, delivery.id)

    def claim_many(self, deliveries: Sequence[Delivery]) -> list[Claim]:
        """One round trip to Redis for all; each has a checksum where there is de-duplication."""
        return self._claims(deliveries, counted=True)

    def _claims(self, deliveries: Sequence[Delivery], *, counted: bool) -> list[Claim]:
        if self._dedup is None:
            return [Claim.NEW] * len(deliveries)
        asked = [(one.checksum or "", one.topic, one.id) for one in deliveries]
        return self._dedup.claim_many(asked, counted=counted)

    def renew(self, deliveries: Sequence[Delivery], waits: Callable[[bytes], bool]) -> None:
        """Claim again for what waited in the journal, where claims run out: a copy is put behind its twin.

        A twin that came later and `waits` there too is the copy instead.
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
        """Whether a later copy, that `yields`, has handed over its claim: claim again, so that Redis hears of it."""
        if self._dedup is None or delivery.checksum is None:
            return False
        return self._dedup.take_over(delivery.checksum, delivery.topic, delivery.id, yields)

    def prolong(self, delivery: Delivery) -> None:
        """It is to hold its copies back from now on, though it is not on its way any more."""
        if delivery.checksum is not None and self._dedup is not None:
            self._dedup.prolong(delivery.checksum, delivery.id)

    def has(self, delivery: Delivery) -> bool:
        """Whether it has its claim, as far as this process knows."""
        return (
            delivery.checksum is None
            or self._dedup is None
            or self._dedup.has(delivery.checksum, delivery.id)
        )

    def needless(self, delivery: Delivery) -> bool:
        """Whether an equal message was acknowledged meanwhile, as far as this process knows."""
        return (
            delivery.checksum is not None
            and self._dedup is not None
            and self._dedup.confirmed(delivery.checksum)
        )

    def confirm(self, deliveries: Sequence[Delivery]) -> None:
        """They were acknowledged."""
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
        """It is behind its twin, which is on its way: ask again in a moment."""
        self._retries.schedule(delivery, _HOLD, counted=False)

    def duplicate(self, delivery: Delivery) -> None:
        """Its twin was acknowledged."""
        self._audience.tell("duplicate", delivery.topic)
        self._settled.ring()
