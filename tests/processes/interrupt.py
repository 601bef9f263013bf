"""Send on the main thread, which a signal interrupts at random places, and on other threads; print the outcome.

python -m tests.processes.interrupt strict 1500 [journal folder, journal level]
"""

from __future__ import annotations

import json
import random
import signal
import sys
import threading
import time
from collections import Counter
from pathlib import Path

from producer_core import ReliableKafkaProducer
from producer_core.brokers import embedded
from producer_core.delivery.journal import Journal

_QUIET_S = 0.1
"""Seconds after which an interrupt counts as lost: Python only prints one that occurs in a finalizer."""


def interrupt(*_):
    raise KeyboardInterrupt


class Run:
    def __init__(self, producer, interrupts):
        self.producer = producer
        self.interrupts = interrupts
        self.reports = Counter()
        self.accepted = []
        self.stopping = False
        self.chance = random.Random(1)

    def send(self, name):
        self.producer.send_message(
            "orders",
            b"v",
            f"k{hash(name) % 3}",
            record_id=name,
            on_delivery=lambda report: self.reports.update([name]),
        )
        self.accepted.append(name)

    def send_alongside(self, thread):
        pause = threading.Event()
        number = 0
        while not self.stopping:
            self.send((thread, number))
            number += 1
            pause.wait(0.001)

    def send_interrupted(self):
        """Send until `interrupts` have occurred. A message whose call was interrupted may or may not be sent."""
        signal.signal(signal.SIGALRM, interrupt)
        number = received = 0
        while received < self.interrupts:
            try:
                signal.setitimer(signal.ITIMER_REAL, self.chance.uniform(0.00005, 0.003))
                deadline = time.monotonic() + _QUIET_S
                while time.monotonic() < deadline:
                    number += 1
                    self.send(("main", number))
            except KeyboardInterrupt:
                received += 1
            except TypeError:  # the binding replaces an interrupt that occurs while it reads headers
                received += 1
        signal.signal(signal.SIGALRM, signal.SIG_IGN)


def main(ordering, interrupts, folder=None, level="process"):
    journal = {} if folder is None else {"journal_dir": folder, "journal_level": level}
    with embedded.start(topics={"orders": 2}) as broker:
        producer = ReliableKafkaProducer(
            broker.bootstrap_servers, {"linger_ms": 1}, store=None, ordering=ordering, **journal
        )
        run = Run(producer, int(interrupts))
        others = [
            threading.Thread(target=run.send_alongside, args=(name,), daemon=True) for name in ("one", "two")
        ]
        for thread in others:
            thread.start()
        run.send_interrupted()
        run.stopping = True
        for thread in others:
            thread.join(20)
        stuck = sum(thread.is_alive() for thread in others)
        producer.flush(60)
        pending = producer.pending_count
        report = producer.close(timeout=10)
    result = {
        "stuck": stuck,
        "pending": pending,
        "unreported": sum(not run.reports[name] for name in run.accepted),
        "twice": sum(count > 1 for count in run.reports.values()),
        "dead": report.dead,
        "journaled": report.journaled,
        "fewer": max(0, len(run.accepted) - report.acknowledged),
        "kept": 0,
    }
    if folder is not None:
        with Journal.open(Path(folder)) as journal_left:
            result["kept"] = journal_left.unsettled()
    print(json.dumps(result), flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
