"""De-duplication: a checksum is claimed before sending, confirmed when acknowledged, released when it failed.

Only a confirmed checksum makes a later copy a duplicate, so a message that failed never blocks its own resend.
Claims expire, so neither a process that was killed nor a message in doubt blocks its copies for good.
"""

from __future__ import annotations

import logging
import threading
import time
import uuid
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from producer_core._internal.masking import mask_or_hide
from producer_core.delivery.dedup.backends import Claim as Claim
from producer_core.delivery.dedup.backends import MemoryClaimBackend, RedisClaimBackend
from producer_core.delivery.dedup.redis_outbox import RedisClaimOutbox
from producer_core.messages import TIME_FIELDS, checksum

logger = logging.getLogger(__name__)

_NEW, _DUPLICATE = Claim.NEW, Claim.DUPLICATE
_LONGEST_CLAIM = 86_400.0
"""Seconds after which a claim expires even where librdkafka never gives a message up: its process may be dead."""


class MessageDeduplicator:
    """Redis while it answers, memory always; and the public contract's `is_duplicate`.

    `on_degraded(degraded, text)` hears when Redis stops answering and when it is back, on any thread. Only `claim`
    waits for Redis, at most half a second, and not again while Redis is gone. What Redis missed it is told later.
    """

    def __init__(
        self,
        redis_client: Any = None,
        ttl_seconds: float = 3600,
        max_memory_size: int = 100_000,
        *,
        claim_ttl: float = 150.0,
        ignored_fields: Sequence[str] = TIME_FIELDS,
        on_degraded: Callable[[bool, str], None] | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.redis_client = redis_client
        self.ttl_seconds = ttl_seconds
        self.max_memory_size = max_memory_size
        self.ignored_fields = tuple(ignored_fields)
        self.on_degraded = on_degraded
        claim_ttl = min(claim_ttl, _LONGEST_CLAIM)
        self.pending: Callable[[bytes], bool] = lambda message_id: False
        """Whether the message of this id is on its way in this process, where its claim holds for as long."""
        self._memory = MemoryClaimBackend(
            ttl=ttl_seconds,
            claim_ttl=claim_ttl,
            max_size=max_memory_size,
            clock=clock,
            pending=lambda owner: self.pending(_raw(owner)),
        )
        self._shared = None if redis_client is None else self._share(redis_client, claim_ttl)
        self._lock = threading.Lock()  # guards the counts below
        self._duplicates = 0
        self._taken_back = 0  # new in memory, and then not: another process had it, or nobody answered

    def _share(self, redis_client: Any, claim_ttl: float) -> RedisClaimOutbox:
        return RedisClaimOutbox(
            RedisClaimBackend(redis_client, ttl=self.ttl_seconds, claim_ttl=claim_ttl),
            ttl=self.ttl_seconds,
            limit=self.max_memory_size,
            on_change=self._changed,
        )

    # the producer's three steps

    def claim(self, digest: str, topic: str, owner: bytes | str) -> Claim:
        """Before sending. A duplicate is one that was acknowledged within the ttl.

        A digest is of one topic only, as `checksum` makes it: memory keeps it as it is, Redis under its topic.
        """
        if self._shared is None:
            found = self._memory.claim(digest, owner)
        else:
            found = self._claim(digest, topic, _owner(owner))
        if found is _DUPLICATE:  # a copy that waits is counted when that ends
            self._count(duplicates=1)
        return found

    def claim_many(self, asked: Sequence[tuple[str, str, bytes]], *, counted: bool = True) -> list[Claim]:
        """As `claim` of digest, topic and owner for each, in order; of all that are new in one round trip to Redis.

        Not `counted`: whoever asks will ask again for a copy, before that ends.
        """
        if self._shared is None:
            found = [self._memory.claim(digest, owner) for digest, _, owner in asked]
        else:
            found = self._claim_shared([(digest, topic, owner.hex()) for digest, topic, owner in asked])
        if counted:
            self._count(duplicates=found.count(_DUPLICATE))
        return found

    def confirm(self, digest: str, topic: str) -> None:
        """The broker acknowledged it. Never waits: Redis is told by a thread of its own, within milliseconds."""
        self.confirm_many((digest,), (topic,))

    def confirm_many(self, digests: Sequence[str], topics: Iterable[str]) -> None:
        """As `confirm` for each digest and its topic."""
        self._memory.confirm_many(digests)
        if self._shared is not None:
            self._shared.confirm_many(
                [_key(topic, digest) for digest, topic in zip(digests, topics, strict=True)]
            )

    def release(self, digest: str, topic: str, owner: bytes | str) -> None:
        """It is certain that the broker does not have it: the next copy may be sent. Never waits."""
        self._let_go(digest, topic, self._who(owner))

    def take_over(self, digest: str, topic: str, owner: bytes, yields: Callable[[bytes], bool]) -> bool:
        """Whether the claim of a copy in this process that came later, and `yields`, is the owner's now; Redis is asked next."""
        holder = self._memory.holder(digest)
        if holder is None or (later := _raw(holder)) <= owner or not yields(later):
            return False
        if not self._memory.hand_over(digest, holder, self._who(owner)):
            return False
        if self._shared is not None:
            self._shared.release(_key(topic, digest), _owner(holder))
        return True

    def prolong(self, digest: str, owner: bytes) -> None:
        """Its message is in doubt: from now on its claim, if it has it, lives for its whole time again in this process."""
        who = self._who(owner)
        self._memory.hand_over(digest, who, who)

    def has(self, digest: str, owner: bytes) -> bool:
        """Whether the claim is the owner's in this process; asks nobody."""
        return self._memory.holder(digest) == self._who(owner)

    def _who(self, owner: bytes | str) -> bytes | str:
        """The owner as memory names it: as Redis does where there is one."""
        return owner if self._shared is None else _owner(owner)

    def confirmed(self, digest: str) -> bool:
        """Whether an equal message was acknowledged, as far as this process knows; asks nobody."""
        return self._memory.confirmed(digest)

    def close(self, timeout: float = 1.0) -> None:
        """Tell Redis what it has yet to hear, and let its connections go. At exit this is done for you."""
        if self._shared is not None:
            self._shared.close(timeout)

    # the contract

    def is_duplicate(self, message: Any, topic: str) -> bool:
        """Whether an equal message was seen within the ttl; it counts as seen from now on.

        One step: of two callers with equal messages, in threads or processes, only one is told False.
        """
        digest = self.checksum(topic, None, message)
        seen = self._claim(digest, topic, uuid.uuid4().hex) is not _NEW
        if seen:
            self._count(duplicates=1)
        else:
            self.confirm(digest, topic)
        return seen

    def checksum(self, topic: str, key: bytes | None, value: Any) -> str:
        """What makes two messages equal: topic, key and content, without the ignored fields."""
        return checksum(topic, key, value, ignored=self.ignored_fields)

    @property
    def degraded(self) -> bool:
        """Redis was asked for and does not answer: duplicates of other processes are not seen."""
        return self._shared is not None and self._shared.degraded

    @property
    def stats(self) -> dict[str, int]:
        with self._lock:
            new, duplicates = self._memory.new - self._taken_back, self._duplicates
        return {
            "total_checked": new + duplicates,
            "duplicates_found": duplicates,
            "cache_hits": duplicates,
            "cache_misses": new,
        }

    def get_stats(self) -> dict[str, Any]:
        counts = self.stats
        checked = counts["total_checked"]
        return {
            **counts,
            "memory_cache_size": len(self._memory),
            "duplicate_rate": counts["duplicates_found"] / checked if checked else 0.0,
            "cache_hit_rate": counts["cache_hits"] / checked if checked else 0.0,
            "degraded": self.degraded,
        }

    # Redis, and when it is gone

    def _claim(self, digest: str, topic: str, who: str) -> Claim:
        """In this process first, so that its own copies are told apart while Redis comes and goes."""
        found = self._memory.claim(digest, who)
        if found is not _NEW or self._shared is None:
            return found
        try:
            shared = self._shared.claim(_key(topic, digest), who)
        except BaseException:  # interrupted: nobody will confirm or release it
            self._let_go(digest, topic, who)
            self._count(taken_back=1)
            raise
        if shared is None or shared is _NEW:
            return found
        self._memory.release(digest, who)
        self._count(taken_back=1)
        return shared

    def _claim_shared(self, asked: Sequence[tuple[str, str, str]]) -> list[Claim]:
        """The same for many."""
        assert self._shared is not None
        found: list[Claim] = []
        try:
            for digest, _, who in asked:
                found.append(self._memory.claim(digest, who))
            fresh = [place for place, claim in enumerate(found) if claim is _NEW]
            keys = [(_key(topic, digest), who) for digest, topic, who in map(asked.__getitem__, fresh)]
            told = self._shared.claim_many(keys) if keys else ()
        except BaseException:
            for one in asked:
                self._let_go(*one)
            self._count(taken_back=found.count(_NEW))
            raise
        for place, shared in zip(fresh, told, strict=True):
            if shared is not None and shared is not _NEW:
                digest, _, who = asked[place]
                self._memory.release(digest, who)
                self._count(taken_back=1)
                found[place] = shared
        return found

    def _let_go(self, digest: str, topic: str, who: bytes | str) -> None:
        self._memory.release(digest, who)
        if self._shared is not None:
            self._shared.release(_key(topic, digest), _owner(who))

    def _changed(self, degraded: bool, text: str) -> None:
        if degraded:
            logger.warning("de-duplication degraded to memory", extra={"error": mask_or_hide(text)})
        else:
            logger.warning("de-duplication on redis again")
        if self.on_degraded is None:
            return
        try:
            self.on_degraded(degraded, text)
        except Exception:
            logger.exception("de-duplication callback failed")

    def _count(self, *, duplicates: int = 0, taken_back: int = 0) -> None:
        with self._lock:
            self._duplicates += duplicates
            self._taken_back += taken_back


def _key(topic: str, digest: str) -> str:
    return f"msg_dedup:{topic}:{digest}"


def _raw(owner: bytes | str) -> bytes:
    """The id of a message; what is none comes before all."""
    try:
        return owner if isinstance(owner, bytes) else bytes.fromhex(owner)
    except ValueError:
        return b""


def _owner(owner: bytes | str) -> str:
    return owner.hex() if isinstance(owner, bytes) else owner
