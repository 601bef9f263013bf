"""Where the time of a send goes, by what is done on which thread.

    python -m benchmarks.anatomy --rounds 5

Processor time of each thread, read once a turn of a thousand messages, so that reading it costs nothing. What nobody can
save is measured beside it: the call of the client alone, without our header and with it.
"""

from __future__ import annotations

import itertools
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

from benchmarks.frame import Bench, Case, Outcome, Runs, alone, markdown
from benchmarks.guarantees import message
from benchmarks.peers import SETTINGS, orjson
from benchmarks.stage import KINDS

QUESTION = "Where does the CPU time of a send go?"
SHOWS_NOT = (
    "the CPU time of the broker; waiting, which uses no CPU time; messages of other sizes; several senders."
)
_TURN = 1024
_DIFFERENT = 10_000

PARTS: Mapping[str, str] = {
    "send": "on the sender's thread",
    "hear": "reports from the client",
    "settle": "settled and counted",
    "client": "librdkafka's threads, and the rest",
    "whole": "in all",
}


class Bare:
    """The client's call and nothing else; the sender polls, and that is what hearing costs without a thread for it."""

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
                self.turn(0.01)

    def _delivered(self, error: Any, record: Any) -> None:
        self._acknowledged += error is None

    def turn(self, wait: float = 0.0) -> None:
        begun = time.thread_time()
        self._client.poll(wait)
        self.hear += time.thread_time() - begun

    def flush(self) -> None:
        while len(self._client):
            self.turn(0.1)

    def close(self) -> None:
        pass


class Ours:
    """A producer as anybody has it, whose poll thread reads its own clock before and after each step."""

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

    def turn(self) -> None:
        """The producer's own thread hears of it."""

    def flush(self) -> None:
        self._session += 1  # what is numbered anew is no copy
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


def _spent(step: Callable[[], None]) -> float:
    begun = time.thread_time()
    step()
    return time.thread_time() - begun


def one(*, way: str, count: int, servers: str, topic: str) -> dict[str, float]:
    """Microseconds of the processor a message, by part, and messages a second."""
    make, options, dicts = WAYS[way]
    with tempfile.TemporaryDirectory() as folder:
        sender = make(servers, topic, Path(folder), **options)
        for turn in _turns(_TURN, dicts):
            _send(sender, turn)
        sender.flush()
        sender.hear = sender.settle = sending = 0.0
        begun, cpu = time.perf_counter(), time.process_time()
        for turn in _turns(count, dicts):
            heard, started = sender.hear, time.thread_time()
            _send(sender, turn)
            sending += time.thread_time() - started
            if isinstance(sender, Bare):  # it heard on this thread
                sending -= sender.hear - heard
        sender.flush()
        took, whole = time.perf_counter() - begun, time.process_time() - cpu
        parts = {"send": sending, "hear": sender.hear, "settle": sender.settle}
        sender.close()
    parts |= {"client": whole - sum(parts.values()), "whole": whole}
    return {name: 1e6 * spent / count for name, spent in parts.items()} | {"rate": count / took}


def _turns(count: int, dicts: bool) -> Iterator[list[tuple[int, Any, str]]]:
    """Messages that are made before their turn, some at a time."""
    values: list[Any] = [message(number) for number in range(_DIFFERENT)]
    if not dicts:
        values = [orjson.dumps(value) for value in values]
    keys = [f"key-{number}" for number in range(_DIFFERENT)]
    places = itertools.islice(itertools.cycle(range(_DIFFERENT)), count)
    numbered = ((number, values[place], keys[place]) for number, place in enumerate(places))
    while turn := list(itertools.islice(numbered, _TURN)):
        yield turn


def _send(sender: Any, turn: list[tuple[int, Any, str]]) -> None:
    send = sender.send
    for number, value, key in turn:
        send(number, value, key)
    sender.turn()


def measure(bench: Bench) -> Outcome:
    count = bench.size(200_000, 2_000)
    cases = [Case(way, "anatomy:one", {"way": way, "count": count}) for way in WAYS]
    runs = bench.run("embedded", cases, around=lambda case: bench.stage.broker("embedded").topic())
    head = f"On {KINDS['embedded']}, medians, µs of CPU time per message of 195 bytes:"
    return Outcome(f"{head}\n\n{_table(runs)}")


def _table(runs: Runs) -> str:
    rows = [
        (way, *(f"{runs.median(way, part):.2f}" for part in PARTS), f"{runs.median(way, 'rate'):,.0f}")
        for way in WAYS
    ]
    return markdown(("", *PARTS.values(), "msg/s"), rows)


if __name__ == "__main__":
    alone(sys.modules[__name__])
