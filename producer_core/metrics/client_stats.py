"""The client's view: what librdkafka's statistics say of a window, as sums that can be merged.

librdkafka gives percentiles of one second of one broker. They cannot be merged, so what is kept of them is count, sum
and maximum, and the highest p99 of any second. Counters of librdkafka only rise while a client lives; a lower number
is a new client, which began at zero.
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
_CUT_OFF = 1  # place in a row of the client
_UP_LOOKS, _DISCONNECTS = 1, 6  # places in a row of a broker

Key = tuple[int, str]
"""A broker: its id and its address."""


class ClientStats:
    """Statistics come on the poll thread, once a second; rows are taken by another."""

    def __init__(self) -> None:
        self._lock = threading.Lock()  # guards the two fields below
        self._client: list[Any] = []
        self._brokers: dict[Key, list[Any]] = {}
        # touched on the poll thread only
        self._counted: dict[tuple[Key, str], int] = {}
        self._epochs: int | None = None
        self._known: dict[Key, bool] = {}  # brokers of the cluster, and whether each was up at the last look

    def add(self, statistics: Mapping[str, Any], now: float) -> None:
        """Add one second of statistics, as librdkafka gave them; of an empty mapping nothing is known."""
        if "msg_cnt" not in statistics:
            return
        client = self._of_client(statistics, now)
        brokers = {key: self._of_broker(key, broker) for key, broker in _brokers(statistics)}
        # In an outage librdkafka drops its brokers and goes back to the bootstrap addresses (measured): when they come
        # again they count from zero.
        self._counted = {at: count for at, count in self._counted.items() if at[0] in brokers}
        brokers |= self._dropped(brokers, cut_off=bool(client[_CUT_OFF]))
        with self._lock:
            self._client = _joined(self._client, client, KINDS["client_statistics"])
            for key, values in brokers.items():
                earlier = self._brokers.get(key, [])
                self._brokers[key] = _joined(earlier, values, KINDS["broker_statistics"])

    def take(self, where: tuple[int, str, str]) -> tuple[tuple[ClientRow, ...], tuple[BrokerRow, ...]]:
        """The rows of what was added since the last time; none where nothing was."""
        with self._lock:
            client, self._client = self._client, []
            brokers, self._brokers = self._brokers, {}
        return (
            (ClientRow(*where, *client),) if client else (),
            tuple(BrokerRow(*where, *key, *values) for key, values in sorted(brokers.items())),
        )

    def _dropped(self, brokers: Mapping[Key, list[Any]], *, cut_off: bool) -> dict[Key, list[Any]]:
        """Return rows of brokers that librdkafka dropped in an outage: down, and disconnected where they were up.

        A broker that is missing while others are up has left the cluster.
        """
        missing = {key: up for key, up in self._known.items() if key not in brokers} if cut_off else {}
        here = {key: bool(values[_UP_LOOKS]) for key, values in brokers.items() if key[0] >= 0}
        self._known = here | dict.fromkeys(missing, False)
        rows = {key: self._of_broker(key, {"state": "DOWN"}) for key in missing}
        for key, was_up in missing.items():
            rows[key][_DISCONNECTS] += was_up
        return rows

    def _of_client(self, statistics: Mapping[str, Any], now: float) -> list[Any]:
        batches = [_window(topic, "batchcnt") for topic in statistics.get("topics", {}).values()]
        sizes = [_window(topic, "batchsize") for topic in statistics.get("topics", {}).values()]
        states = [broker.get("state") for _, broker in _brokers(statistics)]
        wanted = statistics["msg_cnt"] > 0 or any(state not in (*_UP, _IDLE) for state in states)
        return [
            1,
            int(wanted and not any(state in _UP for state in states)),
            int(statistics["msg_cnt"]),
            int(statistics.get("msg_max", 0)),
            sum(int(window.get("cnt", 0)) for window in batches),
            sum(int(window.get("sum", 0)) for window in batches),
            sum(int(window.get("sum", 0)) for window in sizes),
            self._epoch_rises(statistics),
            max(_fill(statistics, "msg_cnt", "msg_max"), _fill(statistics, "msg_size", "msg_size_max")),
            int(statistics.get("replyq", 0)),
            # Of librdkafka's whole seconds the first may have been a whole one already.
            max(0.0, now - statistics["time"] - 1.0) if statistics.get("time") else 0.0,
        ]

    def _of_broker(self, key: Key, broker: Mapping[str, Any]) -> list[Any]:
        state = broker.get("state")
        up = state in _UP
        queue, outbuf = _window(broker, "int_latency"), _window(broker, "outbuf_latency")
        rtt, throttle = _window(broker, "rtt"), _window(broker, "throttle")
        waiting = int(broker.get("outbuf_msg_cnt", 0)) + int(broker.get("waitresp_msg_cnt", 0))
        return [
            1,
            int(up),
            int(not up and state != _IDLE),
            *(self._risen(key, name, int(broker.get(name, 0))) for name in _COUNTERS),
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

    def _risen(self, key: Key, name: str, count: int) -> int:
        before = self._counted.get((key, name), 0)
        self._counted[key, name] = count
        return count - before if count >= before else count

    def _epoch_rises(self, statistics: Mapping[str, Any]) -> int:
        """How often the idempotent producer got a new epoch; its first one, when it connects, is none."""
        epochs = statistics.get("eos", {}).get("epoch_cnt")
        if epochs is None:
            return 0
        before, self._epochs = self._epochs, int(epochs)
        return max(0, int(epochs) - before) if before else 0


def _brokers(statistics: Mapping[str, Any]) -> Iterator[tuple[Key, Mapping[str, Any]]]:
    """Brokers that the client ever had to do with; not the coordinator's second name, nor what only stands in the
    metadata."""
    for broker in statistics.get("brokers", {}).values():
        touched = broker.get("connects") or broker.get("state") != _IDLE
        if broker.get("source") != "logical" and "nodeid" in broker and touched:
            yield (int(broker["nodeid"]), str(broker.get("nodename", ""))), broker


def _joined(left: list[Any], right: list[Any], kind: RowKind) -> list[Any]:
    if not left:
        return right
    sums = len(kind.sums)
    added = [a + b for a, b in zip(left[:sums], right[:sums], strict=True)]
    return added + [max(a, b) for a, b in zip(left[sums:], right[sums:], strict=True)]


def _window(of: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    found: Mapping[str, Any] = of.get(name, {})
    return found


def _count_and_sum(window: Mapping[str, Any], unit: float) -> tuple[int, float]:
    return int(window.get("cnt", 0)), window.get("sum", 0) * unit


def _highest(window: Mapping[str, Any]) -> tuple[float, float]:
    return window.get("max", 0) * _MICRO, window.get("p99", 0) * _MICRO


def _fill(statistics: Mapping[str, Any], used: str, room: str) -> float:
    return float(statistics.get(used, 0) / statistics[room]) if statistics.get(room) else 0.0
