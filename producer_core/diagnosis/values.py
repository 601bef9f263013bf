"""What a diagnosis is made from, and what it says."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Tone = Literal["bad", "warning", "quiet", "good"]


@dataclass(frozen=True)
class BrokerNumbers:
    """One broker in a slice: counts, and means in seconds; None where there was nothing to measure.

    `samples`, `up` and `down` count looks, one a second and producer; `throttle` is the sum of all throttling.
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
    answers: int = 0
    queue: float | None = None
    outbuf: float | None = None
    rtt: float | None = None
    rtt_p99: float = 0.0
    throttle: float = 0.0
    throttle_highest: float = 0.0

    @property
    def name(self) -> str:
        return f"broker {self.broker_id} ({self.address})" if self.broker_id >= 0 else self.address


@dataclass(frozen=True)
class Numbers:
    """A slice of time. `causes` counts messages that died by (topic, code), most first."""

    at: float
    seconds: float
    acknowledged: int = 0
    dead: int = 0
    failed_attempts: int = 0
    retried: int = 0
    causes: tuple[tuple[str, str, int], ...] = ()
    samples: int = 0
    fill: float = 0.0
    fill_highest: float = 0.0
    batches: int = 0
    batch_messages: int = 0
    batch_bytes: int = 0
    unpolled_highest: int = 0
    late_highest: float = 0.0
    epoch_rises: int = 0
    brokers: tuple[BrokerNumbers, ...] = ()

    @property
    def rtt(self) -> float | None:
        """The mean round trip of a request to any broker."""
        measured = [(one.rtt, one.answers) for one in self.brokers if one.rtt is not None]
        total = sum(count for _, count in measured)
        return sum(mean * count for mean, count in measured) / total if total else None


@dataclass(frozen=True)
class Finding:
    """What is wrong in a sentence, the numbers that say so, what to do, and the setting to change where one helps.

    `since` and `until` bound the time in which it was found; `ongoing` says that it has not ended.
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
    ongoing: bool = True
