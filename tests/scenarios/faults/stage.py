"""The environment of a scenario: brokers behind a fault proxy, the writing processes, and their evidence."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import threading
import time
from contextlib import contextmanager
from pathlib import Path

from producer_core.brokers import embedded, kafka
from tests.proxy import FaultProxy
from tests.scenarios.faults.invariants import Evidence
from tests.scenarios.faults.ledger import Watch, parse, read_topic
from tests.support import ROOT, eventually

TIMEOUT = 120

CHAOS = {
    "request.timeout.ms": 5000,
    "socket.timeout.ms": 6000,
    "reconnect.backoff.max.ms": 500,
    "message.timeout.ms": 60_000,
}
"""The client settings of the measurements in kafka-real-notes: they shorten stalls and change no guarantee."""


class Embedded:
    """librdkafka's mock cluster behind the proxy."""

    name = "embedded"

    def __init__(self):
        self.broker = embedded.start(brokers=3)
        self.servers = self.direct = self.broker.bootstrap_servers
        self.cluster = None

    def create_topic(self, topic, partitions, config=None):
        self.broker.create_topic(topic, partitions)

    def advertise(self, proxy):
        self.broker.advertise(proxy.listen)
        self.servers = proxy.bootstrap_servers

    def restore(self):
        self.broker.up()

    def stop(self):
        self.broker.stop()


class Real:
    """Three nodes of a real Kafka behind the proxy."""

    name = "kafka3"

    def __init__(self, folder=None, properties=None, nodes=3):
        self.proxy = FaultProxy()
        self.cluster = kafka.start(
            nodes=nodes,
            folder=folder,
            auto_create=False,
            advertise=self.proxy.advertise,
            properties={"broker.session.timeout.ms": "6000", **(properties or {})},
        )
        self.broker = None
        self.servers, self.direct = self.cluster.bootstrap_servers, self.cluster.direct_servers

    def create_topic(self, topic, partitions, config=None):
        self.cluster.create_topic(topic, partitions, config or {})

    def restore(self):
        """Start or resume every node, and wait until all replicas are in sync."""
        for node in self.cluster.nodes:
            if not self.cluster.alive(node.number):
                self.cluster.start_node(node.number, wait=False)
            else:
                self.cluster.resume(node.number)
        self.cluster.wait_ready(90)
        eventually(self.in_sync, 90, every=0.3)

    def in_sync(self):
        from confluent_kafka.admin import AdminClient

        found = AdminClient({"bootstrap.servers": self.direct, "log_level": 0}).list_topics(timeout=20)
        return all(
            len(partition.isrs) == len(partition.replicas) and partition.leader >= 0
            for topic in found.topics.values()
            for partition in topic.partitions.values()
        )

    def leader(self, topic, partition=0):
        from confluent_kafka.admin import AdminClient

        found = AdminClient({"bootstrap.servers": self.direct, "log_level": 0}).list_topics(topic, timeout=20)
        return found.topics[topic].partitions[partition].leader

    def stop(self):
        self.cluster.stop()
        self.proxy.stop()


class Child:
    """A writing process."""

    def __init__(self, settings, errors):
        self.process = subprocess.Popen(
            [sys.executable, "-m", "tests.scenarios.faults.writer", json.dumps(settings)],
            stdin=subprocess.PIPE,
            stdout=errors,
            stderr=errors,
            cwd=ROOT,
            env={**os.environ, "XDG_STATE_HOME": str(Path(settings["ledger"]).parent / "state")},
        )

    @property
    def alive(self):
        return self.process.poll() is None

    def kill(self):
        """Kill the process; return whether it was still running."""
        running = self.alive
        self.process.kill()
        self.process.wait(30)
        self.process.stdin.close()
        return running

    def signal(self, number):
        self.process.send_signal(number)

    def end(self, timeout):
        """End the input; the process closes its producer."""
        self.process.stdin.close()
        return self.process.wait(timeout)


class Stage:
    """One run of one scenario, which calls `write`, injects faults, and calls `finish`."""

    def __init__(self, medium, *, name, guarantee, seed, long, folder, partitions=4, topic_config=None):
        self.medium, self.name, self.guarantee, self.seed, self.long = medium, name, guarantee, seed, long
        self.chance = random.Random(f"{name}:{seed}")
        self.folder = Path(folder)
        self.folder.mkdir(parents=True, exist_ok=True)
        self.topic = f"{name.lower()}-{guarantee.replace('_', '-')}-{seed}-{os.urandom(3).hex()}"
        self.ledger = self.folder / "ledger"
        self.watch = Watch(self.ledger)
        self.journal = None
        self.kills = self.broker_faults = 0
        self.removed, self.excused, self.ordered = {}, set(), True
        self.once = medium.name != "embedded"  # the embedded broker writes retries again
        self.problems = []
        self.notes = {}
        self.allowed_losses = 0  # losses that are reported and cannot be recovered
        self.unclean = None
        self.ledgers = []  # of other writers
        self.children = []  # every writing process
        self.child = None
        self._errors = (self.folder / "writer.log").open("ab")
        medium.create_topic(self.topic, partitions, topic_config)
        if medium.name == "embedded":
            self.proxy = FaultProxy(seed=seed)
            medium.advertise(self.proxy)
        else:
            self.proxy = medium.proxy
            self.proxy.seed = seed
        self._before = self.proxy.counts
        self._faults_before = self.proxy.faults

    # writing

    def options(self):
        """Return the producer's arguments for the guarantee."""
        if self.guarantee == "exactly_once":
            self.journal = self.journal or self.folder / "journal"
            return {
                "delivery": "exactly_once",
                "journal_dir": str(self.journal),
                "transactional_id": f"{self.topic}-tx",
            }
        return {} if self.journal is None else {"journal_dir": str(self.journal)}

    def write(self, **settings):
        """Start the writing process; it continues after the last number of the previous one."""
        config = {**CHAOS, **settings.pop("config", {})}
        options = {**self.options(), **settings.pop("options", {})}
        self.watch.look()
        settings.setdefault("first", self.watch.last + 2 if self.watch.last >= 0 else 0)
        everything = {
            "servers": self.medium.servers, "topic": self.topic, "ledger": str(self.ledger),
            "config": config, "options": options, **settings,
        }  # fmt: skip
        self._settings = everything
        self.child = Child(everything, self._errors)
        self.children.append(self.child)
        return self.child

    def second(self, ledger, **settings):
        """Start another writing process with its own ledger."""
        self.children.append(Child({**self._settings, "ledger": str(ledger), **settings}, self._errors))
        return self.children[-1]

    @staticmethod
    def watch_of(ledger):
        return Watch(ledger).look()

    @staticmethod
    def notices_in(ledger):
        return [notice for life in parse(ledger) for notice in life.notices]

    def accepted(self):
        return self.watch.look()["a"]

    def reported(self):
        return self.watch.look()["r"]

    def until(self, check, timeout=TIMEOUT):
        """Wait for a condition, or for the writer to end."""
        eventually(lambda: check() or not self.child.alive, timeout, every=0.05)

    def kill_writer(self):
        self.kills += self.child.kill()

    def finish(self, timeout=TIMEOUT):
        """Stop the writer and wait until its producer is closed."""
        code = self.child.end(timeout)
        if code:
            self.problems.append(f"the writer ended with {code}: {self.notices()[-3:]} {self.errors()}")

    def drain(self, rate=50, timeout=TIMEOUT):
        """Run a last writer without faults, until the journal is empty."""
        self.write(count=1, rate=rate)
        self.finish(timeout)

    def errors(self):
        return (self.folder / "writer.log").read_text(errors="replace")[-600:]

    def notices(self):
        return [notice for life in parse(self.ledger) for notice in life.notices]

    # faults

    @contextmanager
    def inject(self, *rules):
        with self.proxy.during(*rules):
            yield

    @property
    def faults(self):
        return self.proxy.faults - self._faults_before

    def pause(self, seconds):
        """Pause as a part of the scenario, not for a condition."""
        threading.Event().wait(seconds)

    # evidence

    def evidence(self, timeout=20):
        """Read until no accepted record is missing, or until the timeout: a transaction may still be ending."""
        if self.medium.name == "kafka3":
            self.medium.restore()
        lives = [life for ledger in [*self.ledgers, self.ledger] for life in parse(ledger)]
        if self.medium.name == "embedded":
            self.excused |= (without_offset := unseen(lives))
            if without_offset:
                self.notes["without an offset"] = len(without_offset)
        deadline = time.monotonic() + timeout
        while True:
            log = read_topic(self.medium.direct, self.topic)
            found = Evidence(
                self.guarantee, lives, log, self.removed, self.excused, self.journal is not None, self.ordered, self.once,
            )  # fmt: skip
            silent = found.accepted - set(found.dead) - found.counts.keys()
            explained = self.removed or self.excused or self.allowed_losses or self.unclean
            if not silent or explained or time.monotonic() > deadline:
                return found
            self.pause(0.5)

    def counts(self):
        return {name: number - self._before[name] for name, number in self.proxy.counts.items()}

    def end(self):
        for child in self.children:
            if child.alive:
                child.signal(signal.SIGCONT)
            child.kill()
        self.proxy.clear()
        if self.medium.name == "embedded":
            self.proxy.stop()
        self._errors.close()


def unseen(lives):
    """Return numbers acknowledged without an offset, which the embedded broker may not have.

    Either librdkafka infers from a later request that an earlier one arrived: a real broker would have rejected the later
    one, but the embedded broker does not check sequences. Or, in S1, the broker answers DUPLICATE_SEQUENCE_NUMBER for
    records that it does not have, which a client cannot detect; the loss is reported later.
    """
    return {report.number for life in lives for report in life.reports if report.ok and report.offset is None}
