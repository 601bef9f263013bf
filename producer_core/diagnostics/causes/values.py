"""What a diagnosis is made from, and what it says."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from typing import Any, Literal

Tone = Literal["bad", "warning", "quiet", "good"]


@dataclass(frozen=True)
class BrokerNumbers:
    """One broker in a slice: counts, and sums in seconds, so that slices can be added up; means are made of them.

    `samples`, `up` and `down` count looks, one a second and producer.
    """

    broker_id: int
    address: str
    samples: int = 0
    up: int = 0
    down: int = 0
    requests: int = 0
    retries: int = 0
    timeouts: int = 0
    disconnects: int = 0
    queue_count: int = 0
    queue_sum: float = 0.0
    outbuf_count: int = 0
    outbuf_sum: float = 0.0
    rtt_count: int = 0
    rtt_sum: float = 0.0
    throttle_count: int = 0
    throttle_sum: float = 0.0
    rtt_p99: float = 0.0
    throttle_highest: float = 0.0

    @property
    def name(self) -> str:
        return (
            f"broker {self.broker_id} ({self.address})"
            if self.broker_id >= 0
            else f"bootstrap {self.address}"
        )

    @property
    def queue(self) -> float | None:
        """How long a message waited in the client's queue, on average; None where none did."""
        return mean(self.queue_sum, self.queue_count)

    @property
    def outbuf(self) -> float | None:
        return mean(self.outbuf_sum, self.outbuf_count)

    @property
    def rtt(self) -> float | None:
        return mean(self.rtt_sum, self.rtt_count)

    @property
    def throttle(self) -> float | None:
        return mean(self.throttle_sum, self.throttle_count)


@dataclass(frozen=True)
class CauseInputs:
    """A slice of time. `causes` counts messages that died by (topic, code), most first; `cut_off` counts looks in which
    no broker was connected."""

    at: float
    seconds: float
    acknowledged: int = 0
    dead: int = 0
    retried: int = 0
    latency_sum: float = 0.0
    causes: tuple[tuple[str, str, int], ...] = ()
    samples: int = 0
    cut_off: int = 0
    queued_sum: int = 0
    room_sum: int = 0
    batches: int = 0
    batch_messages: int = 0
    batch_bytes: int = 0
    epoch_rises: int = 0
    fill_highest: float = 0.0
    unpolled_highest: int = 0
    late_highest: float = 0.0
    brokers: tuple[BrokerNumbers, ...] = ()

    @property
    def fill(self) -> float:
        """How full the queue was on average, 0 to 1."""
        return mean(self.queued_sum, self.room_sum) or 0.0

    @property
    def together(self) -> BrokerNumbers:
        """All brokers as one."""
        return added(self.brokers) if self.brokers else BrokerNumbers(-1, "")

    @property
    def rtt(self) -> float | None:
        """The mean round trip of a request to any broker."""
        return self.together.rtt


def mean(total: float, count: float) -> float | None:
    return total / count if count else None


def added(rows: Sequence[BrokerNumbers]) -> BrokerNumbers:
    """Rows of one broker, or of several, as one: sums, and of maxima the highest."""
    return replace(rows[-1], **_sums(rows, skip=("broker_id", "address")))


def merged(slices: Sequence[CauseInputs]) -> CauseInputs:
    """Slices, at least one, as one that lasts from the first to the end of the last."""
    begun, ended = min(one.at for one in slices), max(one.at + one.seconds for one in slices)
    brokers: dict[int, list[BrokerNumbers]] = {}
    causes: dict[tuple[str, str], int] = {}
    for one in slices:
        for broker in one.brokers:
            brokers.setdefault(broker.broker_id, []).append(broker)
        for topic, code, count in one.causes:
            causes[topic, code] = causes.get((topic, code), 0) + count
    ordered = sorted(causes.items(), key=lambda item: (-item[1], item[0]))
    return replace(
        slices[0],
        **_sums(slices, skip=("at", "seconds", "causes", "brokers")),
        at=begun,
        seconds=ended - begun,
        causes=tuple((topic, code, count) for (topic, code), count in ordered),
        brokers=tuple(added(rows) for _, rows in sorted(brokers.items())),
    )


def _sums(rows: Sequence[Any], *, skip: Sequence[str]) -> dict[str, Any]:
    names = [field.name for field in fields(rows[0]) if field.name not in skip]
    return {
        name: (max if name.endswith(("_highest", "_p99")) else sum)(getattr(row, name) for row in rows)
        for name in names
    }


@dataclass(frozen=True)
class CauseFinding:
    """What is wrong in a sentence, the numbers that say so, what to do, and the setting to change where one helps.

    `since` and `until` bound the time in which it was found, and `lasted` is how much of that; `ongoing` says that it has
    not ended. `past` is the sentence for when it has. `partly`: the numbers are of the time in which it was found, which
    was not all of the range.
    """

    key: str
    title: str
    evidence: str
    suggestion: str
    setting: str = ""
    score: float = 0.0
    tone: Tone = "warning"
    since: float = 0.0
    until: float = 0.0
    lasted: float = 0.0
    ongoing: bool = True
    past: str = ""
    partly: bool = False

    @property
    def state(self) -> bool:
        """It is about how things stand at a moment, so the last look decides; else about what adds up in a while."""
        return self.key == "cut-off" or self.key.startswith("down-")

    @property
    def bad(self) -> bool:
        """Somebody should do something about it."""
        return self.tone in ("bad", "warning")
