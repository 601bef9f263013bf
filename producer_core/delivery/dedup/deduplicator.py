"""Deduplicate messages: claim a checksum before sending, confirm it on acknowledgement, release it on failure.

Only a confirmed checksum makes a later message a duplicate, so a failed message never blocks its own resend. Claims
expire, so neither a killed process nor a message with an ambiguous outcome blocks its duplicates forever.
"""

from __future__ import annotations

import threading
import time
import uuid
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from producer_core._internal.log_fields import with_fields
from producer_core._internal.masking import mask_or_hide
from producer_core._internal.queued_logger import queued_logger
from producer_core.delivery.dedup.claims import Claim
from producer_core.delivery.dedup.memory_backend import MemoryClaimBackend
from producer_core.delivery.dedup.redis_backend import RedisClaimBackend
from producer_core.delivery.dedup.redis_fallback import RedisClaimOutbox
from producer_core.messages import TIME_FIELDS, checksum

logger = queued_logger(__name__)

_NEW, _DUPLICATE = Claim.NEW, Claim.DUPLICATE
_MAX_CLAIM_TTL = 86_400.0
"""Seconds after which a claim always expires, even if librdkafka has no delivery timeout: its process may be dead."""


class MessageDeduplicator:
    """Claims messages in memory, and in Redis while it responds.

    `on_degraded(degraded, text)` is called on any thread when Redis stops or resumes responding. Only `claim`
    waits for Redis, for half a second at most, and not while Redis is down. Updates that Redis missed are sent later.
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
        claim_ttl = min(claim_ttl, _MAX_CLAIM_TTL)
        self.pending: Callable[[bytes], bool] = lambda message_id: False
        """Returns whether a message is pending in this process; its claim does not expire as long as it is."""
        self._memory = MemoryClaimBackend(
            ttl=ttl_seconds,
            claim_ttl=claim_ttl,
            max_size=max_memory_size,
            clock=clock,
            pending=lambda owner: self.pending(_id_bytes(owner)),
        )
        self._outbox = None if redis_client is None else self._connect(redis_client, claim_ttl)
        self._lock = threading.Lock()  # guards the counts below
        self._duplicates = 0
        self._withdrawn = 0  # claims that were new in memory, but then held by another process or interrupted

    def _connect(self, redis_client: Any, claim_ttl: float) -> RedisClaimOutbox:
        return RedisClaimOutbox(
            RedisClaimBackend(redis_client, ttl=self.ttl_seconds, claim_ttl=claim_ttl),
            ttl=self.ttl_seconds,
            limit=self.max_memory_size,
            on_change=self._changed,
        )

    # the producer's three steps

    def claim(self, digest: str, topic: str, owner: bytes | str) -> Claim:
        """Claim a message before it is sent. It is a duplicate if an equal one was acknowledged within the ttl.

        A digest belongs to one topic, as `checksum` makes it. Memory uses it as the key; Redis prefixes the topic.
        """
        if self._outbox is None:
            result = self._memory.claim(digest, owner)
        else:
            result = self._claim(digest, topic, _id_text(owner))
        if result is _DUPLICATE:  # a duplicate of a pending message is counted when that message is settled
            self._count(duplicates=1)
        return result

    def claim_many(self, claims: Sequence[tuple[str, str, bytes]], *, counted: bool = True) -> list[Claim]:
        """Claim each (digest, topic, owner) in one round trip to Redis, and return the results in order.

        With `counted=False` duplicates are not counted, because the caller claims them again later.
        """
        if self._outbox is None:
            results = [self._memory.claim(digest, owner) for digest, _, owner in claims]
        else:
            results = self._claim_shared([(digest, topic, owner.hex()) for digest, topic, owner in claims])
        if counted:
            self._count(duplicates=results.count(_DUPLICATE))
        return results

    def confirm(self, digest: str, topic: str) -> None:
        """Confirm the claim of an acknowledged message. Never waits: a thread updates Redis within milliseconds."""
        self.confirm_many((digest,), (topic,))

    def confirm_many(self, digests: Sequence[str], topics: Iterable[str]) -> None:
        """Confirm each digest with its topic."""
        self._memory.confirm_many(digests)
        if self._outbox is not None:
            self._outbox.confirm_many(
                [_key(topic, digest) for digest, topic in zip(digests, topics, strict=True)]
            )

    def release(self, digest: str, topic: str, owner: bytes | str) -> None:
        """Release the claim of a message that the broker certainly does not have, so that an equal one can be sent.

        Never waits for Redis.
        """
        self._release(digest, topic, self._owner(owner))

    def take_over(self, digest: str, topic: str, owner: bytes, yields: Callable[[bytes], bool]) -> bool:
        """Move the claim of a later message in this process to `owner` if that message `yields`; return whether it did.

        In Redis the claim is only released; the next `claim` acquires it there.
        """
        holder = self._memory.holder(digest)
        if holder is None or (later := _id_bytes(holder)) <= owner or not yields(later):
            return False
        if not self._memory.transfer(digest, holder, self._owner(owner)):
            return False
        if self._outbox is not None:
            self._outbox.release(_key(topic, digest), _id_text(holder))
        return True

    def prolong(self, digest: str, owner: bytes) -> None:
        """Restart the lifetime of the owner's claim in this process, if it has the claim."""
        name = self._owner(owner)
        self._memory.transfer(digest, name, name)

    def has(self, digest: str, owner: bytes) -> bool:
        """Return whether the owner has the claim in this process. Does not ask Redis."""
        return self._memory.holder(digest) == self._owner(owner)

    def _owner(self, owner: bytes | str) -> bytes | str:
        """Return the owner as memory stores it: with Redis as text, as Redis does."""
        return owner if self._outbox is None else _id_text(owner)

    def confirmed(self, digest: str) -> bool:
        """Return whether this process has the digest as confirmed. Does not ask Redis."""
        return self._memory.confirmed(digest)

    def close(self, timeout: float = 1.0) -> None:
        """Send the updates that Redis has not received, and close its connections. Runs at exit by itself."""
        if self._outbox is not None:
            self._outbox.close(timeout)

    # the public interface

    def is_duplicate(self, message: Any, topic: str) -> bool:
        """Return whether an equal message was seen within the ttl, and mark it as seen.

        Both happen in one step: with equal messages in several threads or processes, only one call returns False.
        """
        digest = self.checksum(topic, None, message)
        seen = self._claim(digest, topic, uuid.uuid4().hex) is not _NEW
        if seen:
            self._count(duplicates=1)
        else:
            self.confirm(digest, topic)
        return seen

    def checksum(self, topic: str, key: bytes | None, value: Any) -> str:
        """Return the checksum of topic, key and content without the ignored fields; equal messages have the same one."""
        return checksum(topic, key, value, ignored=self.ignored_fields)

    @property
    def degraded(self) -> bool:
        """Whether Redis is configured and does not respond, so that duplicates of other processes are not detected."""
        return self._outbox is not None and self._outbox.degraded

    @property
    def stats(self) -> dict[str, int]:
        with self._lock:
            new, duplicates = self._memory.new_claims - self._withdrawn, self._duplicates
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

    # memory and Redis together

    def _claim(self, digest: str, topic: str, owner: str) -> Claim:
        """Claim in memory first, so that duplicates within this process are detected while Redis is down or returning."""
        result = self._memory.claim(digest, owner)
        if result is not _NEW or self._outbox is None:
            return result
        try:
            shared = self._outbox.claim(_key(topic, digest), owner)
        except (
            BaseException
        ):  # an interrupt: the message is not sent, so its claim is never confirmed or released
            self._release(digest, topic, owner)
            self._count(withdrawn=1)
            raise
        if shared is None or shared is _NEW:
            return result
        self._memory.release(digest, owner)
        self._count(withdrawn=1)
        return shared

    def _claim_shared(self, claims: Sequence[tuple[str, str, str]]) -> list[Claim]:
        """Do the same as `_claim` for many messages."""
        assert self._outbox is not None
        results: list[Claim] = []
        try:
            for digest, _, owner in claims:
                results.append(self._memory.claim(digest, owner))
            new = [index for index, claim in enumerate(results) if claim is _NEW]
            keys = [(_key(topic, digest), owner) for digest, topic, owner in map(claims.__getitem__, new)]
            replies = self._outbox.claim_many(keys) if keys else ()
        except BaseException:
            for claim in claims:
                self._release(*claim)
            self._count(withdrawn=results.count(_NEW))
            raise
        for index, shared in zip(new, replies, strict=True):
            if shared is not None and shared is not _NEW:
                digest, _, owner = claims[index]
                self._memory.release(digest, owner)
                self._count(withdrawn=1)
                results[index] = shared
        return results

    def _release(self, digest: str, topic: str, owner: bytes | str) -> None:
        self._memory.release(digest, owner)
        if self._outbox is not None:
            self._outbox.release(_key(topic, digest), _id_text(owner))

    def _changed(self, degraded: bool, text: str) -> None:
        if degraded:
            logger.warning(
                **with_fields("deduplication uses memory only", error=mask_or_hide(text)), group=id(self)
            )
        else:
            logger.warning("deduplication uses redis again", group=id(self))
        if self.on_degraded is None:
            return
        try:
            self.on_degraded(degraded, text)
        except Exception:
            logger.exception("deduplication callback failed")

    def _count(self, *, duplicates: int = 0, withdrawn: int = 0) -> None:
        with self._lock:
            self._duplicates += duplicates
            self._withdrawn += withdrawn


def _key(topic: str, digest: str) -> str:
    return f"msg_dedup:{topic}:{digest}"


def _id_bytes(owner: bytes | str) -> bytes:
    """Return the message id of an owner; empty, which sorts before every id, if the owner is not a message."""
    try:
        return owner if isinstance(owner, bytes) else bytes.fromhex(owner)
    except ValueError:
        return b""


def _id_text(owner: bytes | str) -> str:
    return owner.hex() if isinstance(owner, bytes) else owner
