"""A proxy in front of Kafka brokers that reads the protocol's frames and injects faults.

    with embedded.start(topics={"orders": 4}) as broker, FaultProxy(seed=7) as proxy:
        broker.advertise(proxy.listen)
        producer = ReliableKafkaProducer(proxy.bootstrap_servers, cluster_id=broker.cluster_id)
        with proxy.during(Rule(Swallow(after=1.0), api="Produce", chance=0.01)):
            ...                                      # one acknowledgement in a hundred never arrives

    with FaultProxy() as proxy, kafka.start(nodes=3, advertise=proxy.advertise) as cluster:
        ...                                          # clients without faults use cluster.direct_servers

Plain-text connections only. The seed determines a rule's n-th decision, but not which request is the n-th.
"""

from __future__ import annotations

import asyncio
import random
import struct
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Self

from tests.proxy.connection import Connection, Held
from tests.proxy.rules import (
    APIS,
    Active,
    BlackHole,
    Delay,
    Fault,
    Hold,
    Refuse,
    Reset,
    Rule,
    State,
    Swallow,
)

if TYPE_CHECKING:
    from producer_core.brokers.layout import Node

_HOST = "127.0.0.1"


class FaultProxy:
    """A proxy in front of any number of brokers; every method may be called from any thread.

    `counts` counts requests by name, each kind of fault, and the outcomes of held requests.
    """

    def __init__(self, *, seed: int = 0) -> None:
        self.seed = seed
        self.addresses: dict[int, tuple[str, int]] = {}
        self._counts: Counter[str] = Counter()  # changed on the proxy's thread only
        self._connections: set[Connection] = set()
        self._held: list[Held] = []
        self._servers: list[asyncio.Server] = []
        self._lock = threading.Lock()  # guards the rules
        self._active: list[Active] = []
        self._ordinal = 0
        self.loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._run, name="fault-proxy", daemon=True)
        self._thread.start()

    # addresses

    def listen(self, number: int, host: str, port: int) -> tuple[str, int]:
        """Listen for clients of a broker, which is at host:port; return the address for clients."""
        if number not in self.addresses:
            listening = asyncio.run_coroutine_threadsafe(self._listen(number, (host, port)), self.loop)
            self.addresses[number] = (_HOST, listening.result(10))
        return self.addresses[number]

    def advertise(self, node: Node) -> tuple[str, int]:
        """Return a node's address for clients: `kafka.start(advertise=proxy.advertise)`."""
        return self.listen(node.number, _HOST, node.port)

    @property
    def bootstrap_servers(self) -> str:
        return ",".join(f"{host}:{port}" for host, port in self.addresses.values())

    # rules

    def add(self, rule: Rule) -> Rule:
        """Put a rule in force; rules are evaluated in order, and the first that matches decides."""
        with self._lock:
            self._ordinal += 1
            # The same seed gives the same faults.
            chance = random.Random(f"{self.seed}:{self._ordinal}")
            self._active.append(Active(rule, chance))
        self._changed()
        return rule

    def remove(self, rule: Rule) -> None:
        with self._lock:
            self._active = [active for active in self._active if active.rule is not rule]
        self._changed()

    def clear(self) -> None:
        """Remove all rules; held requests still arrive."""
        with self._lock:
            self._active = []
        self._changed()

    @contextmanager
    def during(self, *rules: Rule) -> Iterator[None]:
        for rule in rules:
            self.add(rule)
        try:
            yield
        finally:
            for rule in rules:
                self.remove(rule)

    @property
    def rules(self) -> list[Rule]:
        with self._lock:
            return [active.rule for active in self._active]

    @property
    def counts(self) -> Counter[str]:
        return Counter(self._counts)

    @property
    def faults(self) -> int:
        """Return the number of requests with a fault."""
        kinds = (Reset, Swallow, BlackHole, Delay, Hold)
        return sum(self.counts[kind.__name__] for kind in kinds)

    def reset_connections(self, broker: int | None = None) -> None:
        """Reset every open connection, or those of one broker."""
        self._call(lambda: self._reset_all(broker))

    def stop(self) -> None:
        """Close everything; held requests never arrive. A second call does nothing."""
        if self.loop.is_closed():
            return
        self._call(self._close)
        self._thread.join(10)
        if not self._thread.is_alive():
            self.loop.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    # called by connections, on the proxy's thread

    def decide(self, broker: int, api: int, frame: bytes) -> tuple[Fault, float] | None:
        """Return the fault for this request and its delay in seconds."""
        self._counts[_NAMES.get(api, "other")] += 1
        with self._lock:
            for active in self._active:
                if active.hits(broker, api, frame):
                    action = active.rule.action
                    assert not isinstance(action, State)
                    self._counts[type(action).__name__] += 1
                    return action, active.seconds(action) if isinstance(action, Delay | Hold) else 0.0
        return None

    def states(self, broker: int) -> list[State]:
        if not self._active:
            return []
        with self._lock:
            rules = [active.rule for active in self._active]
        return [
            rule.action for rule in rules if isinstance(rule.action, State) and rule.broker in (None, broker)
        ]

    def opened(self, connection: Connection) -> None:
        self._counts["connections"] += 1
        self._connections.add(connection)

    def closed(self, connection: Connection) -> None:
        self._connections.discard(connection)

    def hold(self, held: Held) -> None:
        self._held.append(held)

        def late() -> None:
            if held in self._held:
                self._release(held)

        self.loop.call_later(held.seconds, late)

    def answered(self, api: int, request: bytes) -> None:
        """Note a response that was passed to a client: a held EndTxn may be waiting for it."""
        for held in [one for one in self._held if one.into_next and one.transaction in request]:
            if api == APIS["EndTxn"]:
                held.committed = True
            elif api == APIS["Produce"] and held.committed:
                self._counts["released into the next transaction"] += 1
                self._release(held)

    def late_answer(self, api: int, answer: bytes) -> None:
        """Note the broker's response to a held request; byte 12 of an EndTxn response is its error code."""
        self._counts["held requests answered"] += 1
        if api == APIS["EndTxn"]:
            code = struct.unpack_from(">h", answer, 12)[0]
            self._counts[f"stale EndTxn answered {code}"] += 1

    # the proxy's thread

    def _run(self) -> None:
        asyncio.set_event_loop(self.loop)
        self.loop.run_forever()

    async def _listen(self, number: int, target: tuple[str, int]) -> int:
        """Listen for a broker's clients and return the port, which the kernel chooses outside the brokers' ports."""
        server = await self.loop.create_server(lambda: Connection(self, number, target), _HOST, 0)
        self._servers.append(server)
        return int(server.sockets[0].getsockname()[1])

    def _call(self, function: Callable[[], None]) -> None:
        if not self.loop.is_closed():
            self.loop.call_soon_threadsafe(function)

    def _changed(self) -> None:
        self._call(self._apply)

    def _apply(self) -> None:
        for connection in list(self._connections):
            if any(isinstance(state, Refuse) for state in self.states(connection.broker)):
                connection.reset()
            else:
                connection.pump()

    def _reset_all(self, broker: int | None) -> None:
        for connection in list(self._connections):
            if broker in (None, connection.broker):
                self._counts["Reset"] += 1
                connection.reset()

    def _release(self, held: Held) -> None:
        self._held.remove(held)
        if held.deliver():
            self._counts["held requests delivered"] += 1

    def _close(self) -> None:
        for server in self._servers:
            server.close()
        for connection in list(self._connections):
            connection.end()
        self.loop.call_soon(self.loop.stop)


_NAMES = {number: name for name, number in APIS.items()}
