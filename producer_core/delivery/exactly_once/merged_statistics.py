"""Merge the statistics of several clients into the structure that librdkafka emits for one."""

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


def merge_statistics(clients: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Return the statistics of one client that does the work of all these clients.

    `eos` is left out: each recovery takes a new epoch, so a rise of the epoch has no meaning here.
    """
    if not clients:
        return {}
    result = {name: value for name, value in clients[0].items() if name != "eos"}
    for name in _TOTALS:
        result[name] = sum(int(client.get(name, 0)) for client in clients)
    result["brokers"] = _brokers(clients)
    result["topics"] = _topics(clients)
    return result


def _brokers(clients: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    merged: dict[str, Any] = {}
    for client in clients:
        for name, broker in client.get("brokers", {}).items():
            earlier = merged.get(name)
            merged[name] = broker if earlier is None else _merge_brokers(earlier, broker)
    return merged


def _merge_brokers(left: Mapping[str, Any], right: Mapping[str, Any]) -> dict[str, Any]:
    requests = dict(left.get("req", {}))
    for name, count in right.get("req", {}).items():
        requests[name] = requests.get(name, 0) + count
    up = left if left.get("state") == "UP" else right
    counts = {name: int(left.get(name, 0)) + int(right.get(name, 0)) for name in _COUNTS if name in up}
    windows = {
        name: _merge_windows(left.get(name, {}), right.get(name, {})) for name in _WINDOWS if name in up
    }
    return {**up, **counts, **windows, "req": requests}


def _merge_windows(left: Mapping[str, Any], right: Mapping[str, Any]) -> dict[str, Any]:
    """Add up counts and sums; take the maximum of values that cannot be added."""
    both = {name: left.get(name, 0) + right.get(name, 0) for name in ("cnt", "sum")}
    return both | {name: max(left.get(name, 0), right.get(name, 0)) for name in ("max", "p99")}


def _topics(clients: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Merge the partitions of all topics.

    A partition belongs to one shard, so its values come from the client that wrote most to it; among equals, from the
    client with the latest leader epoch.
    """
    merged: dict[str, Any] = {}
    for client in clients:
        for name, topic in client.get("topics", {}).items():
            earlier = merged.get(name)
            both = {
                name: _merge_windows((earlier or {}).get(name, {}), topic[name])
                for name in _BATCHES
                if name in topic
            }
            partitions = {} if earlier is None else earlier["partitions"]
            merged[name] = {**topic, **both, "partitions": partitions}
            for number, partition in topic.get("partitions", {}).items():
                if _activity(partition) >= _activity(partitions.get(number, {})):
                    partitions[number] = partition
    return merged


def _activity(partition: Mapping[str, Any]) -> tuple[int, int]:
    return partition.get("txmsgs", 0), partition.get("leader_epoch", -1)
