"""The connection: what librdkafka's statistics and errors say of our link to the brokers."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterable, Mapping
from typing import Any, NamedTuple

from confluent_kafka import KafkaError

from producer_core.events import Notice

_STATE = re.compile(r" \(after \d+ms in state (?:[^()]|\([^()]*\))*\)")
_NAMED = ("_AUTHENTICATION", "_SSL", "_RESOLVE")
_PATIENCE = 3  # statistics, a second apart, that a client may take to connect for the first time
_NO_REASON = (  # librdkafka gives none when, say, a broker's TLS listener is spoken to in the clear
    "no broker could be reached, or none understood us: check the addresses, and security_protocol against the "
    "brokers' listener"
)


class TransmitCounts(NamedTuple):
    """The produce requests, and the messages in them, that a client ever made.

    A broker that left takes its requests along (measured). The messages stay with their partitions, are counted
    before their request is sent, and again when it is repeated (rd_kafka_msgset_create_ProduceRequest).
    """

    requests: int
    messages: int

    def follows(self, before: TransmitCounts) -> bool:
        """Return whether anything may have been transmitted since."""
        return self.messages != before.messages or self.requests > before.requests


class ConnectionState:
    """Written on the poll thread only; read from anywhere."""

    def __init__(self, tell: Callable[[Notice], None], *, clock: Callable[[], float] = time.time) -> None:
        self._tell = tell
        self._clock = clock
        self._transmitted: TransmitCounts | None = TransmitCounts(0, 0)  # None: not known of this client yet
        self._quiet_since = clock(), time.monotonic()  # nothing was transmitted since
        self._interruptions: dict[int, int] = {}  # by node id: disconnects and request time-outs so far
        self._undisturbed_since = 0.0, 0.0  # none of these since
        self._refusals: set[str] = set()  # told since the last connection
        self._lost = False  # had a connection and lost it, which was told
        self._unconnected = 0  # statistics in a row without any connection, once something went wrong
        self._tried = False  # every broker, since the last connection, and none could be reached
        self._code = "_ALL_BROKERS_DOWN"  # of the last error that names a reason
        self._broken = ""  # the code of the client's last fatal error, until something is acknowledged
        self.connected = False
        self.error: str | None = None
        self.queue_messages = 0
        self.queue_limit = 0

    def may_have_sent(self, accepted_at: float, produced_at: float) -> bool:
        """Return whether a produce request may have been made since a message was accepted and given to the client.

        It was accepted at a time of the clock, and given to the client at one of `time.monotonic`. The last statistics
        tell, so it holds for a message whose report came before them. Two clocks, because one of them may be set, and the
        age in a delivery report is taken a little late.
        """
        return self._transmitted is None or _before(self._quiet_since, accepted_at, produced_at)

    def may_have_repeated(self, accepted_at: float, produced_at: float) -> bool:
        """Return whether the client may have transmitted a message more than once; times as in `may_have_sent`.

        It transmits a request again after a disconnect or a time-out, which its statistics count before it does so
        (rd_kafka_broker_fail). An earlier transmission may be appended after a later one was refused.
        """
        return _before(self._undisturbed_since, accepted_at, produced_at)

    @property
    def unreachable(self) -> str | None:
        """Why no broker is connected, once the first attempts failed; None while one is, or may yet be."""
        known = self._lost or self._tried or self._unconnected > 0
        return self.error if known and not self.connected else None

    @property
    def cause(self) -> str:
        """The code of that reason: one whose advice helps with a message that never left the client."""
        return self._code if self._code in _NAMED else "_ALL_BROKERS_DOWN"

    def statistics(self, statistics: Mapping[str, Any]) -> None:
        brokers = [
            broker for broker in statistics.get("brokers", {}).values() if broker.get("source") != "logical"
        ]
        self.queue_messages = int(statistics.get("msg_cnt", 0))
        self.queue_limit = int(statistics.get("msg_max", 0))
        before, self._transmitted = self._transmitted, transmitted(statistics)
        if before is None or self._transmitted.follows(before):
            self._quiet_since = self._clock(), time.monotonic()
        interruptions = _interruptions(brokers)
        if not _same(self._interruptions, interruptions):
            self._undisturbed_since = self._clock(), time.monotonic()
        self._interruptions = interruptions
        self._now(any(broker.get("state") == "UP" for broker in brokers))
        self._never()

    def acknowledged(self) -> None:
        """Something was acknowledged, so there is a connection.

        In the first second it says before them that there is a connection. Later they say it alone: a report that comes
        after a loss may be of before it.
        """
        self._broken = ""
        if not self.connected and not self._lost and self.error is None:
            self._now(True)

    def failed(self, error: KafkaError) -> str | None:
        """From error_cb: the only place where wrong credentials or a wrong address show before the time-out.

        Returns the reason, where the error names one.
        """
        down, text = error.code() == KafkaError._ALL_BROKERS_DOWN, _STATE.sub("", error.str())
        if error.code() in (KafkaError._AUTHENTICATION, KafkaError._SSL) and text not in self._refusals:
            self._refusals.add(text)
            self._tell(Notice("connection_refused", "critical", text, self._clock(), {"code": error.name()}))
        if not down:
            self.error, self._code = text, error.name()
        elif self.error is None:
            self.error = _NO_REASON
        if down:
            self._tried = True
            self._now(False)
        return None if down else text

    def broke(self, error: KafkaError, *, sent: bool) -> None:
        """The client failed for good and was re-created; told once until something is acknowledged again.

        The counters of the new one start again, so unless it is known that nothing was `sent`, its first statistics count
        as a change.
        """
        if sent:
            self._transmitted = None
            self._undisturbed_since = self._clock(), time.monotonic()
        if error.name() != self._broken:
            self._broken = error.name()
            text = f"The Kafka client failed and was re-created: {error.str()}"
            self._tell(Notice("fatal_error", "critical", text, self._clock(), {"code": error.name()}))

    def _now(self, connected: bool) -> None:
        if connected == self.connected:
            return
        self.connected = connected
        self._lost = not connected
        if connected:
            self.error = None
            self._tried = False
            self._refusals.clear()
            self._unconnected = 0
            self._tell(Notice("connected", "info", "Connected to the brokers.", self._clock()))
        else:
            text = f"No broker is connected: {self.error or 'all connections are down'}"
            self._tell(Notice("connection_lost", "critical", text, self._clock()))

    def _never(self) -> None:
        """Say once that no connection came about; the loss of one is said at once."""
        if self.connected or self.error is None:
            return
        self._unconnected += 1
        if self._unconnected == _PATIENCE and not self._refusals and not self._lost:
            text = f"No broker is connected: {self.error}"
            self._tell(Notice("connection_lost", "critical", text, self._clock()))


def _before(since: tuple[float, float], accepted_at: float, produced_at: float) -> bool:
    return accepted_at < since[0] or produced_at < since[1]


def _interruptions(brokers: Iterable[Mapping[str, Any]]) -> dict[int, int]:
    """Return disconnects and request time-outs by node id; no message is produced to a bootstrap address.

    `txretries` counts no produce request: their messages go back to the partition queue (rd_kafka_handle_Produce_error).
    """
    return {
        broker["nodeid"]: broker.get("disconnects", 0) + broker.get("req_timeouts", 0)
        for broker in brokers
        if broker.get("nodeid", -1) >= 0
    }


def _same(before: Mapping[int, int], now: Mapping[int, int]) -> bool:
    """Whether no counter rose, and no broker was dropped: its counters start again from zero when it returns."""
    return before.keys() <= now.keys() and all(count == before.get(node, 0) for node, count in now.items())


def produced(statistics: Mapping[str, Any]) -> bool:
    """Return whether a client's statistics show that anything was handed to a broker."""
    return any(transmitted(statistics))


def transmitted(statistics: Mapping[str, Any]) -> TransmitCounts:
    """Return what a client's statistics count."""
    brokers = statistics.get("brokers", {}).values()
    partitions = (
        part for topic in statistics.get("topics", {}).values() for part in topic["partitions"].values()
    )
    messages = sum(part.get("txmsgs", 0) for part in partitions)
    requests = sum(broker.get("req", {}).get("Produce", 0) for broker in brokers)
    return TransmitCounts(requests, max(messages, statistics.get("txmsgs", 0)))
