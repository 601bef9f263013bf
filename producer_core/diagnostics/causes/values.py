"""The input and the findings of a diagnosis."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from typing import Any, Literal

Tone = Literal["bad", "warning", "quiet", "good"]


@dataclass(frozen=True)
class BrokerNumbers:
    """The measurements of one broker in a time slice: counts, and sums in seconds, so that slices can be added up.

    `samples`, `up` and `down` count samples of the connection, one per second and producer.
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
    cluster_id: str = ""

    @property
    def key(self) -> str:
        """The broker among those of all clusters: brokers of different clusters have the same ids."""
        return f"{self.broker_id}@{self.cluster_id}" if self.cluster_id else f"{self.broker_id}"

    @property
    def name(self) -> str:
        return (
            f"broker {self.broker_id} ({self.address})"
            if self.broker_id >= 0
            else f"bootstrap {self.address}"
        )

    @property
    def queue(self) -> float | None:
        """Return the mean time of a message in the client's queue; None without a message."""
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
    """The measurements of a time slice.

    `causes` counts the dead letters by (topic, code), most frequent first. `cut_off` counts the samples in which no
    broker was connected.
    """

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
        """Return the mean fill of the queue, from 0 to 1."""
        return mean(self.queued_sum, self.room_sum) or 0.0

    @property
    def together(self) -> BrokerNumbers:
        """Return the measurements of all brokers as one."""
        return added(self.brokers) if self.brokers else BrokerNumbers(-1, "")

    @property
    def rtt(self) -> float | None:
        """Return the mean round-trip time of a request to any broker."""
        return self.together.rtt


def mean(total: float, count: float) -> float | None:
    return total / count if count else None


def added(rows: Sequence[BrokerNumbers]) -> BrokerNumbers:
    """Return the rows of one or several brokers as one: sums, and the highest of maxima."""
    return replace(rows[-1], **_sums(rows, skip=("broker_id", "address", "cluster_id")))


def merged(slices: Sequence[CauseInputs]) -> CauseInputs:
    """Return one or more slices as one, from the start of the first to the end of the last."""
    start, end = min(part.at for part in slices), max(part.at + part.seconds for part in slices)
    brokers: dict[tuple[int, str], list[BrokerNumbers]] = {}
    causes: dict[tuple[str, str], int] = {}
    for part in slices:
        for broker in part.brokers:
            brokers.setdefault((broker.broker_id, broker.cluster_id), []).append(broker)
        for topic, code, count in part.causes:
            causes[topic, code] = causes.get((topic, code), 0) + count
    ordered = sorted(causes.items(), key=lambda item: (-item[1], item[0]))
    return replace(
        slices[0],
        **_sums(slices, skip=("at", "seconds", "causes", "brokers")),
        at=start,
        seconds=end - start,
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
    """A problem in one sentence, with its evidence, a suggestion, and the setting to change where one helps.

    `since` and `until` bound the time of the finding; `lasted` is the part of it with the problem. `ongoing`: the
    problem has not ended. `past` is the title after its end. `partly`: the evidence covers only the slices with the
    problem, not the whole range. `named` is the topic and the error code of the failed messages that the text names.
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
    named: tuple[str, str] | None = None

    @property
    def state(self) -> bool:
        """Return whether it describes a momentary state, which the last sample decides, and not a sum over time."""
        return self.key == "cut-off" or self.key.startswith("down-")

    @property
    def bad(self) -> bool:
        """Return whether it needs attention."""
        return self.tone in ("bad", "warning")
