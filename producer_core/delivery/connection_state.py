"""Derive the state of the connection to the brokers from librdkafka's statistics and errors."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterable, Mapping
from typing import Any, NamedTuple

from confluent_kafka import KafkaError

from producer_core._internal.token_source import describe_failure, is_token_failure
from producer_core.delivery.token_outage import TokenOutage
from producer_core.events import Notice
from producer_core.kafka.token_errors import is_temporary

_STATE_SUFFIX = re.compile(r" \(after \d+ms in state (?:[^()]|\([^()]*\))*\)")
_SPECIFIC_CODES = ("_AUTHENTICATION", "_SSL", "_RESOLVE")
_INTERRUPTED_LOGIN = "handshake failed: Local: "
"""In the text of a login whose connection ended before a broker responded, which has the code of rejected credentials."""
_CONNECT_SAMPLES = 3
"""The number of statistics events, one second apart, within which a client connects for the first time."""
# librdkafka gives no reason if, for example, the client sends plain text to a broker's TLS listener.
_NO_REASON = (
    "no broker could be reached, or none accepted the protocol: check the addresses, and security_protocol against the "
    "brokers' listener"
)


class TransmitCounts(NamedTuple):
    """The produce requests that a client has made, and the messages in them.

    The requests of a broker disappear from the statistics with the broker (measured). Messages are counted with their
    partition: before their request is sent, and again when it is repeated (rd_kafka_msgset_create_ProduceRequest).
    """

    requests: int
    messages: int

    def follows(self, before: TransmitCounts) -> bool:
        """Return whether anything may have been transmitted since."""
        return self.messages != before.messages or self.requests > before.requests


class ConnectionState:
    """Tracks the connection. Updated on the poll thread; may be read on any thread. `notify` receives its notices."""

    def __init__(self, notify: Callable[[Notice], None], *, clock: Callable[[], float] = time.time) -> None:
        self._notify = notify
        self._clock = clock
        self._transmitted: TransmitCounts | None = TransmitCounts(0, 0)  # None: unknown for this client yet
        self._idle_since = clock(), time.monotonic()  # nothing was transmitted since
        self._interruptions: dict[int, int] = {}  # by node id: disconnects and request time-outs so far
        self._undisturbed_since = 0.0, 0.0  # no disconnect or request time-out since
        self._refusals: set[str] = set()  # reported since the last connection
        self._tokens = TokenOutage()
        self._lost = False  # a connection was lost, which was reported
        self._shortest_wait_s: float | None = None  # from produce to transmission; None: unknown
        self._waits = 0  # the number of transmitted messages whose waits are known
        self._unconnected_samples = 0  # consecutive statistics without a connection after an error
        self._all_brokers_down = False  # no broker could be reached since the last connection
        self._code = "_ALL_BROKERS_DOWN"  # of the last error that names a reason
        self._fatal_code = ""  # of the client's last fatal error, until a message is acknowledged
        self.connected = False
        self.error: str | None = None
        self.queue_messages = 0
        self.queue_limit = 0

    def may_have_sent(self, accepted_at: float, produced_at: float) -> bool:
        """Return whether a produce request may have been made since a message was accepted and passed to the client.

        `accepted_at` is a time of the clock, `produced_at` of `time.monotonic`. The result is based on the latest
        statistics, so it is valid for a message that was reported before them. Two clocks are compared, because the clock
        may be set, and the latency in a delivery report is measured a little late.
        """
        return self._transmitted is None or _before(self._idle_since, accepted_at, produced_at)

    def may_have_repeated(self, accepted_at: float, produced_at: float) -> bool:
        """Return whether the client may have transmitted a message more than once; times as in `may_have_sent`.

        The client transmits a request again after a disconnect or a time-out, and counts both in its statistics before it
        does so (rd_kafka_broker_fail). An earlier transmission may be appended after a later one was refused.
        """
        return _before(self._undisturbed_since, accepted_at, produced_at)

    def transmitted_after(self, produced_at: float) -> float | None:
        """Return a monotonic time before which a message passed to the client at this time was not transmitted.

        A new client waits at least 500 ms for its producer id before it transmits anything (rd_kafka_toppar_producer_serve).
        No message of the client waited less than the shortest wait in its statistics, if these contain the wait before each
        transmission (rd_kafka_msgset_writer_write_msgq); those of a removed broker may be missing. None: nothing was
        transmitted; the next statistics will tell.
        """
        shortest, counts = self._shortest_wait_s, self._transmitted
        if shortest is None:
            return None
        return produced_at + shortest if counts and counts.messages == self._waits else produced_at

    @property
    def unreachable(self) -> str | None:
        """The reason why no broker is connected, once the first attempts failed; None while one is or may be connected."""
        known = self._lost or self._all_brokers_down or self._unconnected_samples > 0
        return self.error if known and not self.connected else None

    @property
    def cause(self) -> str:
        """The code of that reason, or `_ALL_BROKERS_DOWN` if the advice of the code does not help with unsent messages."""
        return self._code if self._code in _SPECIFIC_CODES else "_ALL_BROKERS_DOWN"

    def statistics(self, statistics: Mapping[str, Any]) -> None:
        """Update the state from librdkafka's statistics."""
        brokers = [
            broker for broker in statistics.get("brokers", {}).values() if broker.get("source") != "logical"
        ]
        self.queue_messages = int(statistics.get("msg_cnt", 0))
        self.queue_limit = int(statistics.get("msg_max", 0))
        before, self._transmitted = self._transmitted, transmitted(statistics)
        if before is None or self._transmitted.follows(before):
            self._idle_since = self._clock(), time.monotonic()
        interruptions = _interruptions(brokers)
        if not _unchanged(self._interruptions, interruptions):
            self._undisturbed_since = self._clock(), time.monotonic()
        self._interruptions = interruptions
        self._add_waits(broker.get("int_latency") or {} for broker in brokers)
        self._set_connected(any(broker.get("state") == "UP" for broker in brokers))
        self._check_first_connection()

    def acknowledged(self) -> None:
        """Note that messages were acknowledged, which proves the first connection before the first statistics do.

        After a loss of the connection only statistics prove a new one, because a report may belong to the time before.
        """
        self._fatal_code = ""
        if not self.connected and not self._lost and self.error is None:
            self._set_connected(True)

    def failed(self, error: KafkaError) -> str | None:
        """Note an error from error_cb, which alone reports wrong credentials or addresses before a time-out.

        Return the reason if the error names one.
        """
        down, text = error.code() == KafkaError._ALL_BROKERS_DOWN, _STATE_SUFFIX.sub("", error.str())
        text = describe_failure(text)
        temporary = True
        if is_temporary(error):
            self._note_missing_token(text, is_new=self._tokens.failed())
        elif self._has_token_ended(error, text):
            text = f"A broker rejected the token, which may have ended: {text}"
            self._note_missing_token(text, is_new=self._tokens.rejected(text))
        elif _INTERRUPTED_LOGIN not in text:
            temporary = False
            self._note_refusal(error, text)
        if not down:
            # The advice for rejected credentials does not help without a token.
            self.error, self._code = text, "" if temporary else error.name()
        elif self.error is None:
            self.error = _NO_REASON
        if down:
            self._all_brokers_down = True
            self._set_connected(False)
        return None if down else text

    def _has_token_ended(self, error: KafkaError, text: str) -> bool:
        rejected = error.code() == KafkaError._AUTHENTICATION and not is_token_failure(error)
        return rejected and self._tokens.explains(text)

    def _note_missing_token(self, text: str, *, is_new: bool) -> None:
        """Report once that the client has no new token. It requests one again; until then its connections may last."""
        if is_new:
            self._notify(Notice("token_unavailable", "warning", text, self._clock()))

    def _note_refusal(self, error: KafkaError, text: str) -> None:
        if error.code() in (KafkaError._AUTHENTICATION, KafkaError._SSL) and text not in self._refusals:
            self._refusals.add(text)
            self._notify(
                Notice("connection_refused", "critical", text, self._clock(), {"code": error.name()})
            )

    def client_failed(self, error: KafkaError, *, sent: bool) -> None:
        """Note that the client had a fatal error and was re-created; reported once until a message is acknowledged.

        The counters of the new client start at zero. Unless nothing was `sent`, its first statistics count as a change.
        """
        self._shortest_wait_s, self._waits = None, 0
        if sent:
            self._transmitted = None
            self._undisturbed_since = self._clock(), time.monotonic()
        if error.name() != self._fatal_code:
            self._fatal_code = error.name()
            text = f"The Kafka client failed and was re-created: {error.str()}"
            self._notify(Notice("fatal_error", "critical", text, self._clock(), {"code": error.name()}))

    def _add_waits(self, windows: Iterable[Mapping[str, Any]]) -> None:
        """Add the waits from produce to transmission since the previous statistics, of each broker, in microseconds."""
        for window in windows:
            if count := window.get("cnt", 0):
                shortest, known = max(0, window.get("min", 0)) / 1e6, self._shortest_wait_s
                self._shortest_wait_s = shortest if known is None else min(known, shortest)
                self._waits += count

    def _set_connected(self, connected: bool) -> None:
        if connected == self.connected:
            return
        self.connected = connected
        self._lost = not connected
        if connected:
            self.error = None
            self._all_brokers_down = False
            self._refusals.clear()
            self._tokens.connected()
            self._unconnected_samples = 0
            self._notify(Notice("connected", "info", "Connected to the brokers.", self._clock()))
        else:
            text = f"No broker is connected: {self.error or 'all connections are down'}"
            self._notify(Notice("connection_lost", "critical", text, self._clock()))

    def _check_first_connection(self) -> None:
        """Report once that the first connection failed; `_set_connected` reports the loss of a connection."""
        if self.connected or self.error is None:
            return
        self._unconnected_samples += 1
        if self._unconnected_samples == _CONNECT_SAMPLES and not self._refusals and not self._lost:
            text = f"No broker is connected: {self.error}"
            self._notify(Notice("connection_lost", "critical", text, self._clock()))


def _before(since: tuple[float, float], accepted_at: float, produced_at: float) -> bool:
    return accepted_at < since[0] or produced_at < since[1]


def _interruptions(brokers: Iterable[Mapping[str, Any]]) -> dict[int, int]:
    """Return the count of disconnects and request time-outs by node id. Bootstrap addresses receive no messages.

    `txretries` does not count produce requests: their messages return to the queue of the partition
    (rd_kafka_handle_Produce_error).
    """
    return {
        broker["nodeid"]: broker.get("disconnects", 0) + broker.get("req_timeouts", 0)
        for broker in brokers
        if broker.get("nodeid", -1) >= 0
    }


def _unchanged(before: Mapping[int, int], now: Mapping[int, int]) -> bool:
    """Return whether no counter rose and no broker disappeared, whose counters restart at zero when it returns."""
    return before.keys() <= now.keys() and all(count == before.get(node, 0) for node, count in now.items())


def produced(statistics: Mapping[str, Any]) -> bool:
    """Return whether a client's statistics count any transmission to a broker."""
    return any(transmitted(statistics))


def transmitted(statistics: Mapping[str, Any]) -> TransmitCounts:
    """Return the transmissions that a client's statistics count."""
    brokers = statistics.get("brokers", {}).values()
    partitions = (
        part for topic in statistics.get("topics", {}).values() for part in topic["partitions"].values()
    )
    messages = sum(part.get("txmsgs", 0) for part in partitions)
    requests = sum(broker.get("req", {}).get("Produce", 0) for broker in brokers)
    return TransmitCounts(requests, max(messages, statistics.get("txmsgs", 0)))
