"""Reduce librdkafka's statistics to rows of sums and maxima that can be merged.

librdkafka gives percentiles for one second and one broker. They cannot be merged; therefore count, sum and maximum are kept,
and the highest p99 of any second. librdkafka's counters only rise during the life of a client; a lower number means a new
client, whose counters started at zero.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator, Mapping
from typing import Any

from producer_core.metrics.batch import KINDS, BrokerRow, ClientRow, RowKind

_MICRO, _MILLI = 1e-6, 1e-3
_UP = ("UP", "UPDATE")
_IDLE = "INIT"
_COUNTERS = ("tx", "txretries", "req_timeouts", "disconnects")
_CUT_OFF, _BATCHES, _BATCH_MESSAGES = 1, 4, 5  # indexes in the values of a ClientRow
_UP_SAMPLES, _DISCONNECTS = 1, 6  # indexes in the values of a BrokerRow

Key = tuple[int, str]
"""A broker: its id and its address."""


class ClientStats:
    """Collects statistics into rows. `add` is called on the poll thread once a second, `take` on another thread."""

    def __init__(self) -> None:
        self._lock = threading.Lock()  # guards the two fields below
        self._client: list[Any] = []
        self._brokers: dict[Key, list[Any]] = {}
        self.per_batch = 0.0  # messages per batch, in the latest statistics with batches
        # used on the poll thread only
        self._counters: dict[tuple[Key, str], int] = {}
        self._epochs: int | None = None
        self._known: dict[
            Key, bool
        ] = {}  # brokers of the cluster, and whether each was up in the last statistics

    def add(self, statistics: Mapping[str, Any], now: float) -> None:
        """Add one second of librdkafka's statistics; an empty mapping is ignored."""
        if "msg_cnt" not in statistics:
            return
        client = self._client_values(statistics, now)
        if client[_BATCHES]:
            self.per_batch = client[_BATCH_MESSAGES] / client[_BATCHES]
        brokers = {key: self._broker_values(key, broker) for key, broker in _brokers(statistics)}
        # During an outage librdkafka drops its brokers and returns to the bootstrap addresses (measured). The counters of
        # a broker that returns start at zero.
        self._counters = {name: count for name, count in self._counters.items() if name[0] in brokers}
        brokers |= self._dropped(brokers, cut_off=bool(client[_CUT_OFF]))
        with self._lock:
            self._client = _merge(self._client, client, KINDS["client_statistics"])
            for key, values in brokers.items():
                earlier = self._brokers.get(key, [])
                self._brokers[key] = _merge(earlier, values, KINDS["broker_statistics"])

    def take(self, where: tuple[int, str, str]) -> tuple[tuple[ClientRow, ...], tuple[BrokerRow, ...]]:
        """Return the rows of the statistics since the last call; empty without new statistics."""
        with self._lock:
            client, self._client = self._client, []
            brokers, self._brokers = self._brokers, {}
        return (
            (ClientRow(*where, *client),) if client else (),
            tuple(BrokerRow(*where, *key, *values) for key, values in sorted(brokers.items())),
        )

    def _dropped(self, brokers: Mapping[Key, list[Any]], *, cut_off: bool) -> dict[Key, list[Any]]:
        """Return rows for brokers that librdkafka dropped during an outage: down, with a disconnect if they were up.

        A broker that is missing while others are up has left the cluster. While none is up, the missing ones stay known,
        also in samples that do not count as an outage because no connection is needed yet.
        """
        any_up = any(values[_UP_SAMPLES] for values in brokers.values())
        missing = {} if any_up else {key: up for key, up in self._known.items() if key not in brokers}
        present = {key: bool(values[_UP_SAMPLES]) for key, values in brokers.items() if key[0] >= 0}
        if not cut_off:
            self._known = present | missing
            return {}
        self._known = present | dict.fromkeys(missing, False)
        rows = {key: self._broker_values(key, {"state": "DOWN"}) for key in missing}
        for key, was_up in missing.items():
            rows[key][_DISCONNECTS] += was_up
        return rows

    def _client_values(self, statistics: Mapping[str, Any], now: float) -> list[Any]:
        batches = [_window(topic, "batchcnt") for topic in statistics.get("topics", {}).values()]
        sizes = [_window(topic, "batchsize") for topic in statistics.get("topics", {}).values()]
        states = [broker.get("state") for _, broker in _brokers(statistics)]
        needed = statistics["msg_cnt"] > 0 or any(state not in (*_UP, _IDLE) for state in states)
        return [
            1,
            int(needed and not any(state in _UP for state in states)),
            int(statistics["msg_cnt"]),
            int(statistics.get("msg_max", 0)),
            sum(int(window.get("cnt", 0)) for window in batches),
            sum(int(window.get("sum", 0)) for window in batches),
            sum(int(window.get("sum", 0)) for window in sizes),
            self._epoch_rises(statistics),
            max(_fill(statistics, "msg_cnt", "msg_max"), _fill(statistics, "msg_size", "msg_size_max")),
            int(statistics.get("replyq", 0)),
            # librdkafka's time is in whole seconds, so up to one second of the difference is rounding.
            max(0.0, now - statistics["time"] - 1.0) if statistics.get("time") else 0.0,
        ]

    def _broker_values(self, key: Key, broker: Mapping[str, Any]) -> list[Any]:
        state = broker.get("state")
        up = state in _UP
        queue, outbuf = _window(broker, "int_latency"), _window(broker, "outbuf_latency")
        rtt, throttle = _window(broker, "rtt"), _window(broker, "throttle")
        waiting = int(broker.get("outbuf_msg_cnt", 0)) + int(broker.get("waitresp_msg_cnt", 0))
        return [
            1,
            int(up),
            int(not up and state != _IDLE),
            *(self._increase(key, name, int(broker.get(name, 0))) for name in _COUNTERS),
            *_count_and_sum(queue, _MICRO),
            *_count_and_sum(outbuf, _MICRO),
            *_count_and_sum(rtt, _MICRO),
            *_count_and_sum(throttle, _MILLI),
            waiting,
            *_highest(queue),
            *_highest(outbuf),
            *_highest(rtt),
            throttle.get("max", 0) * _MILLI,
        ]

    def _increase(self, key: Key, name: str, count: int) -> int:
        before = self._counters.get((key, name), 0)
        self._counters[key, name] = count
        return count - before if count >= before else count

    def _epoch_rises(self, statistics: Mapping[str, Any]) -> int:
        """Return how often the idempotent producer received a new epoch, not counting the first one."""
        epochs = statistics.get("eos", {}).get("epoch_cnt")
        if epochs is None:
            return 0
        before, self._epochs = self._epochs, int(epochs)
        return max(0, int(epochs) - before) if before else 0


def _brokers(statistics: Mapping[str, Any]) -> Iterator[tuple[Key, Mapping[str, Any]]]:
    """Yield the brokers that the client has used, except the logical coordinator and brokers named only in metadata."""
    for broker in statistics.get("brokers", {}).values():
        used = broker.get("connects") or broker.get("state") != _IDLE
        if broker.get("source") != "logical" and "nodeid" in broker and used:
            yield (int(broker["nodeid"]), str(broker.get("nodename", ""))), broker


def _merge(left: list[Any], right: list[Any], kind: RowKind) -> list[Any]:
    if not left:
        return right
    sums = len(kind.sums)
    added = [a + b for a, b in zip(left[:sums], right[:sums], strict=True)]
    return added + [max(a, b) for a, b in zip(left[sums:], right[sums:], strict=True)]


def _window(statistics: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    window: Mapping[str, Any] = statistics.get(name, {})
    return window


def _count_and_sum(window: Mapping[str, Any], unit: float) -> tuple[int, float]:
    return int(window.get("cnt", 0)), window.get("sum", 0) * unit


def _highest(window: Mapping[str, Any]) -> tuple[float, float]:
    return window.get("max", 0) * _MICRO, window.get("p99", 0) * _MICRO


def _fill(statistics: Mapping[str, Any], used: str, limit: str) -> float:
    return float(statistics.get(used, 0) / statistics[limit]) if statistics.get(limit) else 0.0
