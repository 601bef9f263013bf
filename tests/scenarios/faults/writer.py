"""The writing process: a real producer that numbers its messages and keeps the ledger.

    python -m tests.scenarios.faults.writer '{"servers": …, "topic": …, "ledger": …}'

It sends until `count` numbers are accepted or its input is closed, then closes the producer.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import threading
import time

from tests.scenarios.faults.ledger import Book

DEFAULTS = {
    "kind": "reliable",
    "count": 0,
    "first": 0,
    "rate": 0,
    "keys": 20,
    "size": 100,
    "config": {},
    "retry": {},
    "options": {},
    "close_timeout": 60,
    "bad_topic": None,
    "bad_every": 0,
    "big_every": 0,
    "quiet": None,
    "ahead": 0,
}


class Writer:
    def __init__(self, settings):
        self.settings = {**DEFAULTS, **settings}
        self.book = Book(self.settings["ledger"])
        self.stopping = threading.Event()
        self.number = self.settings["first"]
        threading.Thread(target=self._listen, daemon=True).start()

    def run(self):
        raise NotImplementedError

    def _listen(self):
        sys.stdin.read()
        self.stopping.set()

    def numbers(self):
        """Yield a number each time the rate allows a message."""
        began, rate, sent = time.monotonic(), self.settings["rate"], 0
        while not self.stopping.is_set():
            if self.settings["count"] and sent >= self.settings["count"]:
                return
            if rate and (ahead := began + sent / rate - time.monotonic()) > 0:
                self.stopping.wait(ahead)
                continue
            yield self.number
            sent += 1
            self.number += 1

    def message(self, number):
        key = f"k{number % self.settings['keys']}"
        big = self.settings["big_every"] and number % self.settings["big_every"] == 0
        # Random text, because compressible text would not exceed the broker's limit.
        tail = os.urandom(4000).hex() if big else ""
        return key, (f"{number} ".ljust(self.settings["size"], ".") + tail).encode()

    def is_bad(self, number):
        every = self.settings["bad_every"]
        return every and number % every == every - 1


class Reliable(Writer):
    """Writes with ReliableKafkaProducer."""

    def run(self):
        from producer_core import ReliableKafkaProducer
        from producer_core.config import RetryConfig
        from producer_core.delivery import ambiguity
        from producer_core.errors import Fenced, NotAccepted, ProducerError
        from producer_core.events import Hook

        book, settings = self.book, self.settings
        if settings["ahead"]:  # a clock that is ahead by this many seconds
            true = time.time
            time.time = lambda: true() + settings["ahead"]
        if settings["quiet"] is not None:  # shortens a scenario; no guarantee depends on it
            ambiguity.QUIET_PERIOD_S = settings["quiet"]

        class LedgerHook(Hook):
            def counted(self, topic, what):
                if topic == settings["topic"]:
                    book.write("m", what)

            def notice(self, notice):
                book.write("N", notice.kind, notice.text.replace("\n", " "))

        book.write("p")
        try:
            producer = ReliableKafkaProducer(
                settings["servers"],
                settings["config"],
                RetryConfig(**settings["retry"]),
                store=None,
                hooks=[LedgerHook()],
                run_replays=False,
                **settings["options"],
            )
        except ProducerError as error:
            book.write("N", "refused_to_start", f"{type(error).__name__}: {error}".replace("\n", " "))
            return 3
        for number in self.numbers():
            key, value = self.message(number)
            try:
                if self.is_bad(number):
                    producer.send_message(settings["bad_topic"], value)
                producer.send_message(
                    settings["topic"], value, key, record_id=number, on_delivery=self.on_delivery
                )
                book.write("a", number)
            except Fenced as error:
                book.write("N", "send_refused", error)
                break
            except NotAccepted as error:
                book.write("x", number, type(error).__name__)
            except ProducerError as error:
                book.write("N", "send_refused", f"{type(error).__name__}: {error}".replace("\n", " "))
                break
        if settings.get("hold"):
            self.stopping.wait()
        report = producer.close(settings["close_timeout"])
        result = {
            "acknowledged": report.acknowledged, "dead": report.dead, "journaled": report.journaled,
            "lost": report.lost, "first": settings["first"],
        }  # fmt: skip
        book.write("c", json.dumps(result))
        return 0

    def on_delivery(self, report):
        ok = "ok" if report.error is None else "dead"
        code = (report.error or "-").split()[0] or "-"
        self.book.write(
            "r", report.record_id, ok, report.partition, report.offset, report.verdict or "-", code
        )


class Plain(Writer):
    """Writes with a plain idempotent librdkafka producer, for comparison."""

    def run(self):
        from confluent_kafka import KafkaException, Producer

        settings = self.settings
        self.book.write("p")
        producer = Producer(
            {
                "bootstrap.servers": settings["servers"],
                "enable.idempotence": True,
                "linger.ms": 5,
                "partitioner": "murmur2_random",
                "log_level": 0,
                **settings["config"],
            }
        )

        def on_delivery(number):
            def report(error, message):
                ok = "ok" if error is None else "dead"
                code = error.name() if error else "-"
                self.book.write(
                    "r", number, ok, message.partition(), message.offset(), "possibly_persisted", code
                )

            return report

        for number in self.numbers():
            key, value = self.message(number)
            try:
                if self.is_bad(number):
                    producer.produce(settings["bad_topic"], value)
                producer.produce(settings["topic"], value, key, on_delivery=on_delivery(number))
                self.book.write("a", number)
            except (KafkaException, BufferError):
                self.book.write("x", number, "refused")
            producer.poll(0)
        left = producer.flush(settings["close_timeout"])
        result = {"journaled": 0, "lost": left, "first": settings["first"]}
        self.book.write("c", json.dumps(result))
        return 0


class Progress(Writer):
    """Writes transactions that contain a progress record (kafka-notes 6.2), which loses records (measured)."""

    def run(self):
        from confluent_kafka import KafkaException

        self.book.write("p")
        for number in range(self.settings["count"]):  # simulates a journal
            self.book.write("a", number)
        done = self.recover()
        while done < self.settings["count"] and not self.stopping.is_set():
            last = min(done + 40, self.settings["count"])
            try:
                self.transact(range(done, last), last)
                done = last
            except KafkaException:
                done = self.recover()
        result = {"journaled": 0, "lost": 0, "first": self.settings["first"]}
        self.book.write("c", json.dumps(result))
        return 0

    def recover(self):
        """Create a producer, fence its predecessor, and return the last number of the progress records."""
        from confluent_kafka import Producer

        self.producer = None
        producer = Producer(
            {
                "bootstrap.servers": self.settings["servers"],
                "transactional.id": f"{self.settings['topic']}-p",
                "linger.ms": 5,
                "partitioner": "murmur2_random",
                "log_level": 0,
                **self.settings["config"],
            }
        )
        self._until(lambda: producer.init_transactions(10))
        self.producer = producer
        done = [entry.number for entry in self._progress()]
        return max(done, default=0)

    def _progress(self):
        from tests.scenarios.faults.ledger import read_topic

        return read_topic(self.settings["direct"], self.settings["progress_topic"])

    def transact(self, numbers, last):
        self.producer.begin_transaction()
        for number in numbers:
            key, value = self.message(number)
            self.producer.produce(self.settings["topic"], value, key)
        self.producer.produce(self.settings["progress_topic"], f"{last} ".encode(), "p")
        self._until(lambda: self.producer.commit_transaction(10))

    def _until(self, act):
        from confluent_kafka import KafkaException

        while True:
            try:
                return act()
            except KafkaException as error:
                if not error.args[0].retriable():
                    raise


def main():
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    settings = json.loads(sys.argv[1])
    kinds = {"reliable": Reliable, "plain": Plain, "progress": Progress}
    return kinds[settings.get("kind", "reliable")](settings).run()


if __name__ == "__main__":
    sys.exit(main())
