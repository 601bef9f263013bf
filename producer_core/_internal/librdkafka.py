"""Use the C library inside confluent_kafka for functions that its Python API does not offer."""

from __future__ import annotations

import ctypes
import logging
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

import confluent_kafka
from confluent_kafka import KafkaException, cimpl
from confluent_kafka.admin import AdminClient

from producer_core._internal.queued_logger import QueuedLogger

Producer = cimpl.Producer
"""The client itself. opentelemetry-instrumentation-confluent-kafka replaces `confluent_kafka.Producer` by a class whose spans
end when a message is enqueued, and which would write a second context into a record."""

_UNKNOWN, _OK = -2, 0  # RD_KAFKA_CONF_UNKNOWN, RD_KAFKA_CONF_OK


def client_log() -> logging.Logger:
    """Return the logger of our Kafka clients. It is silent unless `producer_core._internal.librdkafka` has a level.

    librdkafka logs connection errors every second, and fatal errors as critical although the producer handles them.
    """
    log = logging.getLogger("producer_core._internal.librdkafka")
    if log.level == logging.NOTSET:
        log.setLevel(logging.CRITICAL + 1)
    return log


def queued_client_log() -> QueuedLogger:
    """Return that logger for a client that sends: the client logs on the thread that polls, so its lines are queued."""
    return QueuedLogger(client_log(), limited=False)


@cache
def library_path() -> str:
    """Return the path, or the name, of the library that confluent_kafka loaded."""
    package = Path(confluent_kafka.__file__).parent
    bundled = sorted(package.parent.glob("confluent_kafka.libs/librdkafka*")) + sorted(
        package.glob(".dylibs/librdkafka*")
    )
    return str(bundled[0]) if bundled else "librdkafka.so.1"


@cache
def library() -> ctypes.CDLL:
    """Return the library instance that confluent_kafka uses: for the same file the loader returns the same instance."""
    lib = ctypes.CDLL(library_path())
    for name in ("rd_kafka_conf_new", "rd_kafka_topic_conf_new", "rd_kafka_new"):
        getattr(lib, name).restype = ctypes.c_void_p
    for name in ("rd_kafka_conf_dump", "rd_kafka_topic_conf_dump"):
        getattr(lib, name).restype = ctypes.POINTER(ctypes.c_char_p)
        getattr(lib, name).argtypes = [ctypes.c_void_p, ctypes.POINTER(ctypes.c_size_t)]
    lib.rd_kafka_conf_destroy.argtypes = lib.rd_kafka_topic_conf_destroy.argtypes = [ctypes.c_void_p]
    lib.rd_kafka_conf_set.argtypes = [ctypes.c_void_p, *[ctypes.c_char_p] * 3, ctypes.c_size_t]
    lib.rd_kafka_conf_dump_free.argtypes = [ctypes.POINTER(ctypes.c_char_p), ctypes.c_size_t]
    return lib


@cache
def property_names() -> frozenset[str]:
    """Return the global and per-topic configuration properties that have a default, for suggestions."""
    lib = library()
    found: set[str] = set()
    for kind in ("conf", "topic_conf"):
        conf, count = getattr(lib, f"rd_kafka_{kind}_new")(), ctypes.c_size_t()
        pairs = getattr(lib, f"rd_kafka_{kind}_dump")(conf, ctypes.byref(count))
        found.update(pairs[i].decode() for i in range(0, count.value, 2))
        lib.rd_kafka_conf_dump_free(pairs, count.value)
        getattr(lib, f"rd_kafka_{kind}_destroy")(conf)
    return frozenset(found)


@cache
def knows_property(name: str) -> bool:
    """Whether the installed library has this configuration property, by this name or as an alias."""
    return _try(name, "")[0] != _UNKNOWN


def refusal(name: str, value: str) -> str | None:
    """Return the library's reason for rejecting this value of a property; None if it accepts it."""
    code, text = _try(name, value)
    return None if code == _OK else text


def client_refusal(settings: Mapping[str, Any]) -> str | None:
    """Return the library's reason for rejecting these connection settings; None if it accepts them. Connects nowhere."""
    alone = {
        name: value
        for name, value in settings.items()
        if name != "bootstrap.servers" and not name.endswith("_cb")
    }
    try:
        AdminClient(alone, logger=client_log())
    except KafkaException as error:
        return str(error.args[0].str()).removeprefix("Failed to create admin client: ")
    return None


def _try(name: str, value: str) -> tuple[int, str]:
    lib = library()
    conf, text = lib.rd_kafka_conf_new(), ctypes.create_string_buffer(512)
    try:
        code = lib.rd_kafka_conf_set(conf, name.encode(), value.encode(), text, len(text))
    finally:
        lib.rd_kafka_conf_destroy(conf)
    return int(code), text.value.decode(errors="replace")
