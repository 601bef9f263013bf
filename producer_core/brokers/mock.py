"""librdkafka's mock cluster: its C functions as methods of an object that can be closed once."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Iterable
from functools import cache
from itertools import count
from threading import Event, RLock
from typing import Any

from producer_core._internal.librdkafka import library
from producer_core.errors import BrokerError, MissingTool

PRODUCE = 0  # ApiKey of the Produce request
_BATCH = 100  # errors pushed in one variadic call; ctypes takes at most 1,024 arguments
# The mock's thread runs a command before it reads the byte that woke it. The byte of a command that arrives in
# between is consumed with it, and that command waits for the thread's timer: one second. This pause avoids that.
_PAUSE = 0.001
_WITHOUT_COMMAND = (
    "broker_push_request_error_rtts",
    "broker_error_stack_cnt",
)  # not run by the mock's thread
_UNKNOWN_PARTITION = 3  # UNKNOWN_TOPIC_OR_PART
_ALREADY_EXISTS = 36  # TOPIC_ALREADY_EXISTS

_void, _int, _id, _text, _size = (
    ctypes.c_void_p,
    ctypes.c_int,
    ctypes.c_int32,
    ctypes.c_char_p,
    ctypes.c_size_t,
)
_SIGNATURES: dict[str, tuple[Any, list[Any]]] = {
    "rd_kafka_new": (_void, [_int, _void, _text, _size]),
    "rd_kafka_destroy": (None, [_void]),
    "rd_kafka_err2str": (_text, [_int]),
    "rd_kafka_mock_cluster_new": (_void, [_void, _int]),
    "rd_kafka_mock_cluster_destroy": (None, [_void]),
    "rd_kafka_mock_cluster_bootstraps": (_text, [_void]),
    "rd_kafka_mock_topic_create": (_int, [_void, _text, _int, _int]),
    "rd_kafka_mock_partition_set_leader": (_int, [_void, _text, _id, _id]),
    "rd_kafka_mock_broker_add": (_int, [_void, _id]),
    "rd_kafka_mock_broker_set_down": (_int, [_void, _id]),
    "rd_kafka_mock_broker_set_up": (_int, [_void, _id]),
    "rd_kafka_mock_broker_set_rtt": (_int, [_void, _id, _int]),
    "rd_kafka_mock_broker_set_host_port": (None, [_void, _id, _text, _int]),
    "rd_kafka_mock_broker_push_request_error_rtts": (_int, [_void, _id, ctypes.c_int16, _size]),
    "rd_kafka_mock_broker_error_stack_cnt": (_int, [_void, _id, ctypes.c_int16, ctypes.POINTER(_size)]),
    "rd_kafka_mock_group_initial_rebalance_delay_ms": (None, [_void, _id]),
    "rd_kafka_mock_set_controller_id": (_int, [_void, _id]),
}


@cache
def _library() -> ctypes.CDLL:
    """Return the C library with the signatures of the functions used; they are not part of its stable interface."""
    lib = library()
    missing = [name for name in _SIGNATURES if not hasattr(lib, name)]
    if missing:
        raise MissingTool(
            f"The embedded broker is not available: this librdkafka lacks parts of the mock cluster ({', '.join(missing)}).",
            fix="Install confluent-kafka 2.16 or newer from its wheel, or use a real Kafka (producer-core broker start).",
        )
    for name, (result, arguments) in _SIGNATURES.items():
        getattr(lib, name).restype = result
        getattr(lib, name).argtypes = arguments
    return lib


class MockCluster:
    """A mock cluster with brokers 1 to `brokers`; safe for any thread, and closed at most once.

    Each call waits until the mock's own thread has run it. After `close()` each call raises BrokerError, because the
    memory behind the handles is freed.
    """

    def __init__(self, brokers: int) -> None:
        self._lib = _library()
        self._never = Event()
        self._lock = RLock()  # guards the two handles
        self._client: int | None = self._new_client()
        self._cluster: int | None = self._lib.rd_kafka_mock_cluster_new(self._client, brokers)
        if not self._cluster:
            self.close()
            raise BrokerError("librdkafka could not start its mock cluster.")
        self.bootstrap_servers: str = self._lib.rd_kafka_mock_cluster_bootstraps(self._cluster).decode()
        self._lib.rd_kafka_mock_group_initial_rebalance_delay_ms(self._cluster, 0)
        self._do("set_controller_id", 1)

    def create_topic(self, topic: str, partitions: int, replicas: int) -> bool:
        """Create a topic; return False when it existed already (its partitions stay as they are)."""
        with self._lock:
            error = self._call("topic_create", topic.encode(), partitions, replicas)
            if error not in (0, _ALREADY_EXISTS):
                self._fail("topic_create", error)
            return error == 0

    def lead(self, topic: str, broker: int) -> None:
        """Make `broker` the leader of every partition; a missing topic is created, with 4 partitions."""
        for partition in count():
            error = self._call("partition_set_leader", topic.encode(), partition, broker)
            if error == _UNKNOWN_PARTITION:
                return
            if error:
                self._fail("partition_set_leader", error)

    def add_broker(self, broker: int) -> None:
        self._do("broker_add", broker)

    def set_up(self, broker: int, up: bool) -> None:
        self._do("broker_set_up" if up else "broker_set_down", broker)

    def set_latency(self, broker: int, seconds: float) -> None:
        self._do("broker_set_rtt", broker, round(seconds * 1000))

    def push_errors(self, broker: int, codes: Iterable[int]) -> None:
        """Answer the next Produce requests to this broker with these codes, in order."""
        pending = list(codes)
        for start in range(0, len(pending), _BATCH):
            batch = pending[start : start + _BATCH]
            pairs = [_int(number) for code in batch for number in (code, 0)]  # 0: the broker's own latency
            self._do("broker_push_request_error_rtts", broker, PRODUCE, len(batch), *pairs)

    def advertise(self, broker: int, host: str, port: int) -> None:
        """Advertise this address to clients from now on; the broker's own address stays."""
        with self._lock:
            if self._cluster is None:
                raise BrokerError("The embedded broker was stopped. Start a new one.")
            self._lib.rd_kafka_mock_broker_set_host_port(self._cluster, broker, host.encode(), port)

    def errors_left(self, broker: int) -> int:
        left = _size(0)
        self._do("broker_error_stack_cnt", broker, PRODUCE, ctypes.byref(left))
        return left.value

    def close(self) -> None:
        with self._lock:
            cluster, self._cluster = self._cluster, None
            client, self._client = self._client, None
            if cluster:
                self._lib.rd_kafka_mock_cluster_destroy(cluster)
            if client:
                self._lib.rd_kafka_destroy(client)

    def _new_client(self) -> int:
        """Create the client that hosts the mock; it never connects, so only its errors are logged."""
        conf, text = self._lib.rd_kafka_conf_new(), ctypes.create_string_buffer(512)
        self._lib.rd_kafka_conf_set(conf, b"log_level", b"3", text, 512)
        client = self._lib.rd_kafka_new(0, conf, text, 512)
        if not client:
            self._lib.rd_kafka_conf_destroy(conf)
            raise BrokerError(
                f"librdkafka could not start a client for its mock cluster: {text.value.decode()}."
            )
        return int(client)

    def _call(self, name: str, *arguments: Any) -> int:
        function: Callable[..., Any] = getattr(self._lib, f"rd_kafka_mock_{name}")
        with self._lock:
            if self._cluster is None:
                raise BrokerError("The embedded broker was stopped. Start a new one.")
            error = int(function(self._cluster, *arguments))
            if name not in _WITHOUT_COMMAND:
                self._never.wait(_PAUSE)
            return error

    def _do(self, name: str, *arguments: Any) -> None:
        if error := self._call(name, *arguments):
            self._fail(name, error)

    def _fail(self, name: str, error: int) -> None:
        reason = self._lib.rd_kafka_err2str(error).decode()
        raise BrokerError(f"The embedded broker rejected the call {name}: {reason}.")
