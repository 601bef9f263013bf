"""Measure the CPU time of a send by thread and step.

    python -m benchmarks.anatomy --rounds 5

Each thread reads its CPU clock once per batch of about a thousand messages, so that the measurement costs nothing. For
comparison, the client's own `produce()` call is measured without a header and with one.
"""

from __future__ import annotations

import itertools
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

from benchmarks.frame import Bench, Case, Outcome, Runs, main, markdown
from benchmarks.guarantees import message
from benchmarks.peers import SETTINGS, orjson
from benchmarks.stage import KINDS

QUESTION = "Where does the CPU time of a send go?"
LIMITATIONS = (
    "the CPU time of the broker; waiting, which uses no CPU time; messages of other sizes; several senders."
)
_BATCH = 1024
_DIFFERENT = 10_000

PARTS: Mapping[str, str] = {
    "send": "on the sender's thread",
    "hear": "delivery reports",
    "settle": "settling and counting",
    "client": "librdkafka's threads and other",
    "whole": "total",
}


class Bare:
    """Calls `produce()` only. The sender polls, which shows the cost of delivery reports without a poll thread."""

    def __init__(self, servers: str, topic: str, folder: Path, *, header: bool) -> None:
        import confluent_kafka

        self._client = confluent_kafka.Producer({"bootstrap.servers": servers, **SETTINGS})
        self._topic, self._header, self._acknowledged = topic, header, 0
        self.hear = self.settle = 0.0

    def send(self, number: int, value: bytes, key: str) -> None:
        headers = [("pc-id", b"%024d" % number)] if self._header else None
        while True:
            try:
                self._client.produce(self._topic, value, key, -1, self._delivered, None, 0, headers)
                return
            except BufferError:
                self.poll(0.01)

    def _delivered(self, error: Any, record: Any) -> None:
        self._acknowledged += error is None

    def poll(self, wait: float = 0.0) -> None:
        started = time.thread_time()
        self._client.poll(wait)
        self.hear += time.thread_time() - started

    def flush(self) -> None:
        while len(self._client):
            self.poll(0.1)

    def close(self) -> None:
        pass


class Ours:
    """A default producer whose poll thread reads its CPU clock before and after each step."""

    def __init__(
        self, servers: str, topic: str, folder: Path, *, once: bool = False, journal: str = ""
    ) -> None:
        from producer_core import ReliableKafkaProducer
        from producer_core.delivery.transport import KafkaTransport

        self.hear = self.settle = 0.0
        ours = self

        class Timed(KafkaTransport):
            def _poll(self, timeout: float) -> None:
                ours.hear += _spent(lambda: super(Timed, self)._poll(timeout))

            def _settle_reports(self) -> None:
                ours.settle += _spent(super()._settle_reports)

        options: dict[str, Any] = (
            {"journal_dir": folder / "journal", "journal_level": journal} if journal else {}
        )
        self._producer = ReliableKafkaProducer(
            servers, store=folder / "store.duckdb", transport=Timed, enable_deduplication=once, **options
        )
        self._topic, self._once, self._session = topic, once, 0

    def send(self, number: int, value: Any, key: str) -> None:
        if self._once:
            self._producer.send_message(self._topic, value, key, dedup_key=f"{self._session}-{number}")
        else:
            self._producer.send_message(self._topic, value, key)

    def poll(self) -> None:
        """Do nothing: the producer polls on its own thread."""

    def flush(self) -> None:
        self._session += 1  # restarted numbers are not duplicates
        self._producer.flush(300)

    def close(self) -> None:
        self._producer.close()


WAYS: Mapping[str, tuple[Callable[..., Any], Mapping[str, Any], bool]] = {
    "the client's call alone": (Bare, {"header": False}, False),
    "with a header of 24 bytes": (Bare, {"header": True}, False),
    "ours: `send_message(bytes)`": (Ours, {}, False),
    "ours: `send_message(dict)`": (Ours, {}, True),
    "the same with a `dedup_key`": (Ours, {"once": True}, True),
    "the same with a journal, `buffered`": (Ours, {"journal": "buffered"}, True),
    "the same with a journal, `process`": (Ours, {"journal": "process"}, True),
}

TITLES: Mapping[str, str] = {
    "the client's call alone": "`produce()` only",
    "with a header of 24 bytes": "`produce()` with a header of 24 bytes",
    "ours: `send_message(bytes)`": "`send_message(bytes)`",
    "ours: `send_message(dict)`": "`send_message(dict)`",
    "the same with a `dedup_key`": "`send_message(dict)` with a `dedup_key`",
    "the same with a journal, `buffered`": '`send_message(dict)`, `journal_level="buffered"`',
    "the same with a journal, `process`": '`send_message(dict)`, `journal_level="process"`',
}
"""The row titles; the keys are the names of the cases in saved results."""


def _spent(step: Callable[[], None]) -> float:
    started = time.thread_time()
    step()
    return time.thread_time() - started


def one(*, way: str, count: int, servers: str, topic: str) -> dict[str, float]:
    """Return the CPU time per message in microseconds, by part, and messages per second."""
    make, options, dicts = WAYS[way]
    with tempfile.TemporaryDirectory() as folder:
        sender = make(servers, topic, Path(folder), **options)
        for batch in _batches(_BATCH, dicts):
            _send(sender, batch)
        sender.flush()
        sender.hear = sender.settle = sending = 0.0
        started, cpu = time.perf_counter(), time.process_time()
        for batch in _batches(count, dicts):
            heard, at = sender.hear, time.thread_time()
            _send(sender, batch)
            sending += time.thread_time() - at
            if isinstance(sender, Bare):  # it polled on this thread
                sending -= sender.hear - heard
        sender.flush()
        took, whole = time.perf_counter() - started, time.process_time() - cpu
        parts = {"send": sending, "hear": sender.hear, "settle": sender.settle}
        sender.close()
    parts |= {"client": whole - sum(parts.values()), "whole": whole}
    return {name: 1e6 * spent / count for name, spent in parts.items()} | {"rate": count / took}


def _batches(count: int, dicts: bool) -> Iterator[list[tuple[int, Any, str]]]:
    """Yield batches of messages; each batch is created before it is sent."""
    values: list[Any] = [message(number) for number in range(_DIFFERENT)]
    if not dicts:
        values = [orjson.dumps(value) for value in values]
    keys = [f"key-{number}" for number in range(_DIFFERENT)]
    places = itertools.islice(itertools.cycle(range(_DIFFERENT)), count)
    numbered = ((number, values[place], keys[place]) for number, place in enumerate(places))
    while batch := list(itertools.islice(numbered, _BATCH)):
        yield batch


def _send(sender: Any, batch: list[tuple[int, Any, str]]) -> None:
    send = sender.send
    for number, value, key in batch:
        send(number, value, key)
    sender.poll()


def measure(bench: Bench) -> Outcome:
    count = bench.size(200_000, 2_000)
    cases = [Case(way, "anatomy:one", {"way": way, "count": count}) for way in WAYS]
    runs = bench.run("embedded", cases, around=lambda case: bench.stage.broker("embedded").topic())
    head = f"On {KINDS['embedded']}, medians, µs of CPU time per message of 195 bytes:"
    return Outcome(f"{head}\n\n{_table(runs)}")


def _table(runs: Runs) -> str:
    rows = [
        (
            TITLES[way],
            *(f"{runs.median(way, part):.2f}" for part in PARTS),
            f"{runs.median(way, 'rate'):,.0f}",
        )
        for way in WAYS
    ]
    return markdown(("", *PARTS.values(), "msg/s"), rows)


if __name__ == "__main__":
    main(sys.modules[__name__])
