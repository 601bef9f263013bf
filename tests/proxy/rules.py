"""Rules of the fault proxy: which requests they match, and what happens to these."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Literal

from producer_core.errors import ConfigError

APIS = {
    "Produce": 0,
    "Fetch": 1,
    "ListOffsets": 2,
    "Metadata": 3,
    "FindCoordinator": 10,
    "ApiVersions": 18,
    "InitProducerId": 22,
    "AddPartitionsToTxn": 24,
    "EndTxn": 26,
}
"""Requests by the names of the protocol."""


@dataclass(frozen=True, slots=True)
class Reset:
    """Lose the request, and reset the client's connection."""


@dataclass(frozen=True, slots=True)
class Swallow:
    """Lose the broker's response to the request and all later responses; `after` seconds later, reset the client's
    connection."""

    after: float = 1.0


@dataclass(frozen=True, slots=True)
class BlackHole:
    """Lose the request and all later ones of its connection; with None the client waits for its own timeout."""

    after: float | None = None


@dataclass(frozen=True, slots=True)
class Delay:
    """Delay the request by `seconds`, or at random by `seconds` to `up_to`; no later request overtakes it."""

    seconds: float
    up_to: float | None = None


@dataclass(frozen=True, slots=True)
class Hold:
    """Reset the client's connection, and deliver the request `seconds` (to `up_to`) later.

    With `into_next`, an EndTxn is delivered right after the first Produce response of the next transaction, where it
    causes the most damage; without a next transaction, after `seconds`.
    """

    seconds: float
    up_to: float | None = None
    into_next: bool = False


@dataclass(frozen=True, slots=True)
class Tap:
    """Call `callback(request)` on the proxy's thread and pass the request on.

    With `answer`, call it when the broker's response has arrived, before the client gets it.
    """

    callback: Callable[[bytes], None]
    answer: bool = False


@dataclass(frozen=True, slots=True)
class Rewrite:
    """Replace the success in the broker's response to a Produce request by this error code: the records were written."""

    code: int


@dataclass(frozen=True, slots=True)
class Partition:
    """Deliver nothing, but keep the connections; data sent during the fault arrives when the rule is removed."""

    direction: Literal["both", "requests", "answers"] = "both"


@dataclass(frozen=True, slots=True)
class Refuse:
    """Reset all connections, including new ones."""


@dataclass(frozen=True, slots=True)
class Slow:
    """Limit each connection to this many bytes a second in each direction."""

    bytes_per_second: float


Fault = Reset | Swallow | BlackHole | Delay | Hold | Tap | Rewrite
State = Partition | Refuse | Slow


@dataclass(frozen=True, slots=True)
class Rule:
    """Apply a fault to some requests, or a state to all connections, while the rule is in force.

    It matches requests named by `api` to `broker` whose bytes contain `containing` (a topic, a transactional id). The
    first `skip` of them pass; each of the others gets the fault with probability `chance`, until `times` got it. None
    means any.
    """

    action: Fault | State
    api: str | tuple[str, ...] | None = None
    broker: int | None = None
    containing: bytes = b""
    chance: float = 1.0
    times: int | None = None
    skip: int = 0

    def __post_init__(self) -> None:
        for name in self.apis:
            if name not in APIS:
                raise ConfigError(
                    f"{name!r} is not a request that the proxy knows.", fix=f"Use one of {', '.join(APIS)}."
                )
        if isinstance(self.action, State) and (self.api or self.containing or self.times is not None):
            raise ConfigError("Partition, Refuse and Slow apply to whole connections: name at most a broker.")

    @property
    def apis(self) -> tuple[str, ...]:
        return (self.api,) if isinstance(self.api, str) else self.api or ()


@dataclass(slots=True)
class Active:
    """A rule in force: it draws a random number per matching request, so its decisions follow from the seed."""

    rule: Rule
    chance: random.Random
    seen: int = 0
    hit: int = 0
    numbers: frozenset[int] = field(init=False)

    def __post_init__(self) -> None:
        self.numbers = frozenset(APIS[name] for name in self.rule.apis)

    def hits(self, broker: int, api: int, frame: bytes) -> bool:
        rule = self.rule
        if isinstance(rule.action, State) or (rule.broker is not None and rule.broker != broker):
            return False
        if (self.numbers and api not in self.numbers) or rule.containing not in frame:
            return False
        self.seen += 1
        if self.seen <= rule.skip or (rule.times is not None and self.hit >= rule.times):
            return False
        if rule.chance < 1.0 and self.chance.random() >= rule.chance:
            return False
        self.hit += 1
        return True

    def seconds(self, fault: Delay | Hold) -> float:
        return fault.seconds if fault.up_to is None else self.chance.uniform(fault.seconds, fault.up_to)
