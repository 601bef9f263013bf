"""A slice: the dead letters of a replay that are sent in order under one transactional id."""

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
"""The unit that keeps its order: the messages of one producer's session, or those of one key of one topic (without a
key, of one session)."""
MAX_SLICES = 256


@dataclass(frozen=True)
class Slicing:
    """Assign dead letters to slices.

    The assignment is a part of the operation: a dead letter is only ever sent under one transactional id, by any
    process and in any attempt.
    """

    count: int
    by: By = "session"

    def __post_init__(self) -> None:
        if not 1 <= self.count <= MAX_SLICES or self.by not in get_args(By):
            raise ConfigError(
                f"{self.count} slices by {self.by} are not possible.",
                fix=f"Use 1 to {MAX_SLICES} slices, by {' or '.join(get_args(By))}.",
            )

    def of(self, dead_letter: ReplayRecord) -> int:
        if self.by == "key" and dead_letter.key is not None:
            mark = dead_letter.topic.encode() + b"\0" + dead_letter.key
        else:
            mark = parse_id(dead_letter.message_id)[:16]
        return zlib.crc32(mark) % self.count


@dataclass(frozen=True)
class SliceEpoch:
    """Describe one driver's term with an operation: the slicing, its first number, and the progress topic.

    Numbers rise from batch to batch and from driver to driver.
    """

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
    """Record that another driver starts. Only the holder of the lease may do so; `holds` checks it.

    The first driver's slicing and progress topic stay, because its remaining tasks use them: `count`, `by` and
    `topic` must equal them, or be None; otherwise raises ReplayError. `partitions` returns the number of partitions
    of a topic.
    """
    chosen = progress_topic(store, operation_id, topic)
    available = partitions(chosen)  # asks the brokers, so it is outside of the transaction
    with store.borrow(write=True):
        if not holds() or progress_topic(store, operation_id, topic) != chosen:
            raise ReplayError(f"The replay {operation_id} was taken over by another process.")
        known = _known(store, operation_id)
        slicing = _slicing(operation_id, known, count, by, otherwise)
        epochs = (known["lives"] if known else 0) + 1
        size = min(available, known["partitions"] if known else MAX_SLICES)
        state = {
            "slices": slicing.count,
            "by": slicing.by,
            "lives": epochs,
            "topic": chosen,
            "partitions": size,
        }
        store.set_setting(_name(operation_id), state)
    return SliceEpoch(slicing, epochs << DRIVER_BITS, chosen, size)


def progress_topic(store: Store, operation_id: str, requested: str | None) -> str:
    """Return the topic of an operation's seals; raise ReplayError when it differs from `requested`."""
    known = _known(store, operation_id)
    if known is None:
        return requested or PROGRESS_TOPIC
    chosen: str = known["topic"]
    if requested not in (None, chosen):
        raise ReplayError(
            f"The replay {operation_id} was started with the progress topic {chosen}.",
            fix="Use the same topic, or omit --progress-topic.",
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
            f"The replay {operation_id} was started with {slicing.count} slice{'s' * (slicing.count != 1)} by {slicing.by}.",
            fix="Use the same values, or omit --slices and --slice-by: a dead letter sent from two slices could be "
            "sent twice.",
        )
    return slicing


def _known(store: Store, operation_id: str) -> dict[str, Any] | None:
    """Return the choices of the operation's first driver."""
    known: dict[str, Any] | None = store.get_setting(_name(operation_id))
    return known


def _name(operation_id: str) -> str:
    return f"reprocess.{operation_id}"
