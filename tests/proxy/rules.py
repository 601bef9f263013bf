"""Rules of the fault proxy: which requests, and what becomes of them."""

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
"""Requests by the protocol's names."""


@dataclass(frozen=True, slots=True)
class Reset:
    """The request is lost, and the client's connection is reset."""


@dataclass(frozen=True, slots=True)
class Swallow:
    """The broker gets the request; its answer and all later ones are lost, and `after` seconds later the
    client's connection is reset."""

    after: float = 1.0


@dataclass(frozen=True, slots=True)
class BlackHole:
    """The request and all later ones of its connection are lost; None leaves the client to its own time-out."""

    after: float | None = None


@dataclass(frozen=True, slots=True)
class Delay:
    """The request arrives `seconds` late, or by chance between `seconds` and `up_to`; nothing overtakes it."""

    seconds: float
    up_to: float | None = None


@dataclass(frozen=True, slots=True)
class Hold:
    """The client's connection is reset, and the request arrives all the same: `seconds` (to `up_to`) later.

    `into_next`: an EndTxn arrives right after the first Produce answer of the transaction that follows, which
    is where it does harm; when none follows, after `seconds`.
    """

    seconds: float
    up_to: float | None = None
    into_next: bool = False


@dataclass(frozen=True, slots=True)
class Tap:
    """`heard(request)` is called on the proxy's thread, and the request goes its way. With `answer` it is called
    when the broker's answer is there, before the client has it."""

    heard: Callable[[bytes], None]
    answer: bool = False


@dataclass(frozen=True, slots=True)
class Partition:
    """Nothing arrives, though connections stay: what was sent meanwhile arrives when the rule is taken back."""

    way: Literal["both", "requests", "answers"] = "both"


@dataclass(frozen=True, slots=True)
class Refuse:
    """Connections are reset, and so are new ones."""


@dataclass(frozen=True, slots=True)
class Slow:
    """Each connection carries so many bytes a second, each way."""

    bytes_per_second: float


Fault = Reset | Swallow | BlackHole | Delay | Hold | Tap
State = Partition | Refuse | Slow


@dataclass(frozen=True, slots=True)
class Rule:
    """What happens to some requests (a fault), or to all connections (a state), while the rule is there.

    Of the requests named by `api` to `broker` whose bytes contain `containing` (a topic, a transactional id),
    the first `skip` pass; of the others each is hit with probability `chance`, until `times` were hit. None: any.
    """

    what: Fault | State
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
                    f"{name!r} is no request the proxy knows.", fix=f"Use one of {', '.join(APIS)}."
                )
        if isinstance(self.what, State) and (self.api or self.containing or self.times is not None):
            raise ConfigError("Partition, Refuse and Slow hold for whole connections: name a broker at most.")

    @property
    def apis(self) -> tuple[str, ...]:
        return (self.api,) if isinstance(self.api, str) else self.api or ()


@dataclass(slots=True)
class Active:
    """A rule in force: it draws once for each request that matches, so its decisions follow from the seed."""

    rule: Rule
    chance: random.Random
    seen: int = 0
    hit: int = 0
    numbers: frozenset[int] = field(init=False)

    def __post_init__(self) -> None:
        self.numbers = frozenset(APIS[name] for name in self.rule.apis)

    def hits(self, broker: int, api: int, frame: bytes) -> bool:
        rule = self.rule
        if isinstance(rule.what, State) or (rule.broker is not None and rule.broker != broker):
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
