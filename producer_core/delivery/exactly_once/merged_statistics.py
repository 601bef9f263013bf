"""One set of client statistics for several clients, in librdkafka's own shape."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

_TOTALS = (
    "replyq", "msg_cnt", "msg_size", "msg_max", "msg_size_max", "txmsgs", "txmsg_bytes", "tx", "tx_bytes",
)  # fmt: skip
_COUNTS = (
    "tx", "txretries", "req_timeouts", "connects", "disconnects", "outbuf_msg_cnt", "waitresp_msg_cnt",
)  # fmt: skip
_WINDOWS = ("int_latency", "outbuf_latency", "rtt", "throttle")
_BATCHES = ("batchcnt", "batchsize")


def merged(all_of: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """What one client would say that did the work of all.

    Without `eos`: each recovery takes a new epoch, so its rise means nothing here.
    """
    if not all_of:
        return {}
    result = {name: value for name, value in all_of[0].items() if name != "eos"}
    for name in _TOTALS:
        result[name] = sum(int(one.get(name, 0)) for one in all_of)
    result["brokers"] = _brokers(all_of)
    result["topics"] = _topics(all_of)
    return result


def _brokers(all_of: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for one in all_of:
        for name, broker in one.get("brokers", {}).items():
            known = found.get(name)
            found[name] = broker if known is None else _both(known, broker)
    return found


def _both(left: Mapping[str, Any], right: Mapping[str, Any]) -> dict[str, Any]:
    requests = dict(left.get("req", {}))
    for name, count in right.get("req", {}).items():
        requests[name] = requests.get(name, 0) + count
    up = left if left.get("state") == "UP" else right
    counts = {name: int(left.get(name, 0)) + int(right.get(name, 0)) for name in _COUNTS if name in up}
    windows = {name: _window(left.get(name, {}), right.get(name, {})) for name in _WINDOWS if name in up}
    return {**up, **counts, **windows, "req": requests}


def _window(left: Mapping[str, Any], right: Mapping[str, Any]) -> dict[str, Any]:
    """Counts and sums of both, and of what cannot be added up the higher."""
    both = {name: left.get(name, 0) + right.get(name, 0) for name in ("cnt", "sum")}
    return both | {name: max(left.get(name, 0), right.get(name, 0)) for name in ("max", "p99")}


def _topics(all_of: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Each partition as the client shows it that wrote most to it, for it belongs to one shard; of equals, the one that
    knows the latest leader."""
    found: dict[str, Any] = {}
    for one in all_of:
        for name, topic in one.get("topics", {}).items():
            known = found.get(name)
            both = {at: _window((known or {}).get(at, {}), topic[at]) for at in _BATCHES if at in topic}
            kept = {} if known is None else known["partitions"]
            found[name] = {**topic, **both, "partitions": kept}
            for number, partition in topic.get("partitions", {}).items():
                if _rank(partition) >= _rank(kept.get(number, {})):
                    kept[number] = partition
    return found


def _rank(partition: Mapping[str, Any]) -> tuple[int, int]:
    return partition.get("txmsgs", 0), partition.get("leader_epoch", -1)
