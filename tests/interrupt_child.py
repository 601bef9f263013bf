"""Sends on the main thread, which a signal interrupts at random places, while other threads send too; says what is left.

python -m tests.interrupt_child strict 1500 [journal folder]
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

_LONG = 0.1
"""Seconds without an interrupt after which Python has swallowed it: one that comes in a finalizer only is printed."""


def interrupt(*_):
    raise KeyboardInterrupt


class Run:
    def __init__(self, producer, interrupts):
        self.producer = producer
        self.interrupts = interrupts
        self.ended = Counter()
        self.accepted = []
        self.stopping = False
        self.chance = random.Random(1)

    def send(self, name):
        self.producer.send_message(
            "orders",
            b"v",
            f"k{hash(name) % 3}",
            record_id=name,
            on_delivery=lambda report: self.ended.update([name]),
        )
        self.accepted.append(name)

    def beside(self, thread):
        pause = threading.Event()
        number = 0
        while not self.stopping:
            self.send((thread, number))
            number += 1
            pause.wait(0.001)

    def interrupted(self):
        """Messages whose call was interrupted may have been sent, and are nobody's business."""
        signal.signal(signal.SIGALRM, interrupt)
        number = heard = 0
        while heard < self.interrupts:
            try:
                signal.setitimer(signal.ITIMER_REAL, self.chance.uniform(0.00005, 0.003))
                until = time.monotonic() + _LONG
                while time.monotonic() < until:
                    number += 1
                    self.send(("main", number))
            except KeyboardInterrupt:
                heard += 1
            except TypeError:  # the binding hides an interrupt that comes while it reads headers
                heard += 1
        signal.signal(signal.SIGALRM, signal.SIG_IGN)


def main(ordering, interrupts, folder=None):
    journal = {} if folder is None else {"journal_dir": folder}
    with embedded.start(topics={"orders": 2}) as broker:
        producer = ReliableKafkaProducer(
            broker.bootstrap_servers, {"linger_ms": 1}, store=None, ordering=ordering, **journal
        )
        run = Run(producer, int(interrupts))
        others = [threading.Thread(target=run.beside, args=(name,), daemon=True) for name in ("one", "two")]
        for thread in others:
            thread.start()
        run.interrupted()
        run.stopping = True
        for thread in others:
            thread.join(20)
        stuck = sum(thread.is_alive() for thread in others)
        producer.flush(60)
        pending = producer.pending_count
        report = producer.close(timeout=10)
    told = {
        "stuck": stuck,
        "pending": pending,
        "unheard": sum(not run.ended[name] for name in run.accepted),
        "twice": sum(count > 1 for count in run.ended.values()),
        "dead": report.dead,
        "journaled": report.journaled,
        "fewer": max(0, len(run.accepted) - report.acknowledged),
        "kept": 0,
    }
    if folder is not None:
        with Journal.open(Path(folder)) as left:
            told["kept"] = left.unsettled()
    print(json.dumps(told), flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
