"""Call the entry points of the native core at random from several threads, and end without a crash.

    python -m tests.processes.native_fuzz SECONDS SEED [CORE]

Each thread has clients of its own, which it creates, uses, closes and drops in any order, with valid and invalid
messages. Meanwhile the main thread forks, collects garbage and receives signals. CORE is another build of the core, for
example with a sanitizer:

    python scripts/build_native.py /tmp/core.so -fsanitize=address,undefined
    ASAN_OPTIONS=detect_leaks=0 LD_PRELOAD=$(gcc -print-file-name=libasan.so) python -m tests.processes.native_fuzz 60 1 /tmp/core.so
"""

from __future__ import annotations

import contextlib
import gc
import os
import random
import signal
import sys
import threading
import time
from collections import Counter
from pathlib import Path

from confluent_kafka import KafkaException

from producer_core._internal.librdkafka import Producer, client_log
from producer_core.brokers import embedded
from producer_core.native import library, transaction_core
from producer_core.native.transaction_core import TransactionCore
from tests.fixtures.native_core import message
from tests.support import eventually

EXPECTED = (TypeError, ValueError, AttributeError, IndexError, OverflowError, AssertionError, SystemError)
JUNK = (None, 1, -1, 1.5, "text", b"bytes", (), [], {}, object(), [("a", 1)], [("a", b"b")], (0, 0), 1 << 70)


class Odd:
    """A message with random attributes, some of which run code or raise."""

    def __init__(self, rng, valid):
        for name in ("id", "topic", "value", "key", "headers", "placement"):
            setattr(self, name, getattr(valid, name) if rng.random() < 0.8 else rng.choice(JUNK))

    def __getattr__(self, name):
        gc.collect(0)
        raise AttributeError(name)


class Fuzzer:
    """One thread's clients."""

    def __init__(self, servers, rng, name):
        self.rng, self.name, self.servers = rng, name, servers
        self.calls = Counter()
        self.core = None
        self.seq = 0

    def step(self):
        if self.core is None:
            return self.create()
        step = self.rng.choices(
            (self.produce, self.produce_junk, self.transact, self.columns, self.poll, self.purge, self.close, self.drop),
            (6, 3, 6, 2, 6, 1, 0.2, 0.3),
        )[0]  # fmt: skip
        self.calls[step.__name__] += 1
        with contextlib.suppress(*EXPECTED, KafkaException, RuntimeError):
            step()
        return None

    def create(self):
        settings = {
            "bootstrap.servers": self.servers, "transactional.id": self.name, "logger": client_log(),
            "linger.ms": self.rng.choice((0, 1, 50)), "message.timeout.ms": 2000, "transaction.timeout.ms": 5000,
            "queue.buffering.max.messages": self.rng.choice((10, 10_000)),
        }  # fmt: skip
        with contextlib.suppress(KafkaException):
            core = TransactionCore(Producer, settings)
            core.client.init_transactions(5)
            core.client.begin_transaction()
            core.begin()
            self.core = core

    def messages(self):
        count = self.rng.choice((0, 1, 10, 500))
        start, self.seq = self.seq, self.seq + count
        return [
            message(
                self.rng.randrange(seq + 1) if self.rng.random() < 0.01 else seq,
                self.rng.choice((None, b"", b"v" * self.rng.randrange(300))),
                self.rng.choice((None, b"", b"key")),
                partition=self.rng.choice((0, 1, 2, 3, 3, 99 if self.rng.random() < 0.05 else 0)),
                headers=self.rng.choice(((), [("a", None)], [("h", b"1")] * self.rng.randrange(64))),
            )
            for seq in range(start, start + count)
        ]

    def produce(self):
        sent = self.messages()
        self.core.produce(sent, self.rng.choice((0, 0, 0, len(sent), len(sent) // 2)))

    def produce_junk(self):
        sent = [Odd(self.rng, one) if self.rng.random() < 0.3 else one for one in self.messages()]
        self.core.produce(self.rng.choice((sent, sent, sent, *JUNK)), self.rng.choice((0, 0, 1, -1, 1 << 40)))

    def transact(self):
        deadline = time.monotonic() + 3
        while self.core.missing()[0] and time.monotonic() < deadline:
            self.core.client.poll(0.02)
        try:
            self.core.client.commit_transaction(3)
            self.core.client.begin_transaction()
            self.core.begin()
        except (KafkaException, AssertionError):
            self.drop()

    def columns(self):
        self.core.columns(self.rng.choice((0, 1, 10, 100_000)))

    def poll(self):
        self.core.client.poll(self.rng.choice((0, 0.001)))
        self.core.missing()

    def purge(self):
        self.core.client.purge()

    def close(self):
        end_transaction(self.core.client)
        self.core.client.close()
        with contextlib.suppress(*EXPECTED):
            self.core.produce(self.messages(), 0)
        self.core.missing()
        self.core = None

    def drop(self):
        end_transaction(self.core.client)
        self.core = None


def end_transaction(client):
    """Do what TransactionalClient.destroy does before a client is destroyed."""
    client.purge()
    with contextlib.suppress(KafkaException):
        client.abort_transaction(0.001)


def fork():
    """Fork, use nothing of the core in the child, and collect its garbage there."""
    child = os.fork()
    if not child:
        os._exit(0)
    os.waitpid(child, 0)


def main(seconds, seed, core=None):
    if core is not None:
        library.CORE_PATH = transaction_core.CORE_PATH = Path(core)
    signal.signal(signal.SIGALRM, lambda *_: None)
    signal.setitimer(signal.ITIMER_REAL, 0.05, 0.05)
    rng, ended = random.Random(seed), threading.Event()
    errors = []
    with embedded.start(brokers=1, topics={"t": 4}) as broker:
        fuzzers = [
            Fuzzer(broker.bootstrap_servers, random.Random(rng.random()), f"fuzz-{number}")
            for number in range(3)
        ]

        def run(fuzzer):
            try:
                while not ended.is_set():
                    fuzzer.step()
            except BaseException as error:
                errors.append(error)
                raise

        threads = [threading.Thread(target=run, args=(fuzzer,)) for fuzzer in fuzzers]
        for thread in threads:
            thread.start()
        until = time.monotonic() + seconds
        while time.monotonic() < until:
            time.sleep(0.05)
            rng.choice((gc.collect, fork, lambda: None))()
        ended.set()
        for thread in threads:
            thread.join()
        for fuzzer in fuzzers:
            if fuzzer.core is not None:
                fuzzer.drop()
        signal.setitimer(signal.ITIMER_REAL, 0)
    gc.collect()
    assert not errors, errors
    assert eventually(lambda: library.core_library().core_live() == 0), "a core was not freed"
    print(sum((fuzzer.calls for fuzzer in fuzzers), Counter()), flush=True)


if __name__ == "__main__":
    main(float(sys.argv[1]), int(sys.argv[2]), *sys.argv[3:])
