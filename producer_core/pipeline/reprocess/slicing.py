"""A slice: the part of a replay's dead letters that goes out under one transactional id, in its order."""

from __future__ import annotations

import zlib
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, get_args

from producer_core.errors import ConfigError, ReplayError
from producer_core.messages import parse_id
from producer_core.pipeline.reprocess.progress_topic import DRIVER_BITS, PROGRESS_TOPIC

if TYPE_CHECKING:
    from producer_core.delivery.dead_letter import ReplayRecord
    from producer_core.store import Store

By = Literal["session", "key"]
"""What keeps its order: the messages of one producer's session, or those of one key of one topic (and, without a
key, of one session)."""
MOST = 256


@dataclass(frozen=True)
class Slicing:
    """How dead letters are sliced. It is a part of the operation: a dead letter is only ever sent under one transactional id,
    by whichever process and in whichever attempt."""

    count: int
    by: By = "session"

    def __post_init__(self) -> None:
        if not 1 <= self.count <= MOST or self.by not in get_args(By):
            raise ConfigError(
                f"{self.count} slices by {self.by} cannot be had.",
                fix=f"Use 1 to {MOST} slices, by {' or '.join(get_args(By))}.",
            )

    def of(self, dead_letter: ReplayRecord) -> int:
        if self.by == "key" and dead_letter.key is not None:
            mark = dead_letter.topic.encode() + b"\0" + dead_letter.key
        else:
            mark = parse_id(dead_letter.message_id)[:16]
        return zlib.crc32(mark) % self.count


@dataclass(frozen=True)
class SliceEpoch:
    """One driver's time with an operation: how it is sliced, the first of its numbers, and the progress topic with
    so many of its partitions. Numbers rise from wave to wave and from driver to driver."""

    slicing: Slicing
    first: int
    topic: str
    partitions: int


def begin_epoch(
    store: Store,
    operation_id: str,
    *,
    count: int | None,
    by: By | None,
    otherwise: Slicing,
    topic: str | None,
    partitions: Callable[[str], int],
    holds: Callable[[], bool],
) -> SliceEpoch:
    """Writes down that another driver begins; only who has the lease may, and `holds` says it.

    The first one's slicing and progress topic stay, for what is left of his tasks knows no other: `count`, `by` and
    `topic` must be equal to them, or None. ReplayError when they are not. `partitions` says how many a topic has.
    """
    chosen = progress_topic(store, operation_id, topic)
    there = partitions(chosen)  # brokers are asked, so it is outside of the transaction
    with store.borrow(write=True):
        if not holds() or progress_topic(store, operation_id, topic) != chosen:
            raise ReplayError(f"The replay {operation_id} was taken over by another process meanwhile.")
        known = _known(store, operation_id)
        slicing = _slicing(operation_id, known, count, by, otherwise)
        lives = (known["lives"] if known else 0) + 1
        size = min(there, known["partitions"] if known else MOST)
        told = {
            "slices": slicing.count,
            "by": slicing.by,
            "lives": lives,
            "topic": chosen,
            "partitions": size,
        }
        store.set_setting(_name(operation_id), told)
    return SliceEpoch(slicing, lives << DRIVER_BITS, chosen, size)


def progress_topic(store: Store, operation_id: str, asked: str | None) -> str:
    """Where an operation's seals are, or will be. ReplayError where another one than that is asked for."""
    known = _known(store, operation_id)
    if known is None:
        return asked or PROGRESS_TOPIC
    chosen: str = known["topic"]
    if asked not in (None, chosen):
        raise ReplayError(
            f"The replay {operation_id} was begun with the progress topic {chosen}.",
            fix="Go on with the same, or leave --progress-topic out.",
        )
    return chosen


def _slicing(
    operation_id: str, known: dict[str, Any] | None, count: int | None, by: By | None, otherwise: Slicing
) -> Slicing:
    if known is None:
        return Slicing(count or otherwise.count, by or otherwise.by)
    slicing = Slicing(known["slices"], known["by"])
    if count not in (None, slicing.count) or by not in (None, slicing.by):
        raise ReplayError(
            f"The replay {operation_id} was begun with {slicing.count} slices by {slicing.by}.",
            fix="Go on with the same, or leave --slices and --slice-by out: a dead letter sent from two slices could "
            "be sent twice.",
        )
    return slicing


def _known(store: Store, operation_id: str) -> dict[str, Any] | None:
    """What its first driver decided."""
    known: dict[str, Any] | None = store.get_setting(_name(operation_id))
    return known


def _name(operation_id: str) -> str:
    return f"reprocess.{operation_id}"
