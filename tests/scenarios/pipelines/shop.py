"""The environment of a reprocess scenario: dead letters, their topics, and the drivers that replay them."""

from __future__ import annotations

import contextlib
import json
import os
import random
import signal
import subprocess
import sys
import time
import uuid
from collections import Counter
from dataclasses import replace

from confluent_kafka import Producer

from producer_core import replay
from producer_core.delivery.dead_letter import delivery_of
from producer_core.dlq import DeadLetterFilter, DeadLetters
from producer_core.errors import StoreError
from producer_core.messages import id_bytes, id_text
from producer_core.store import Store
from tests.fixtures import spark_processes
from tests.fixtures.replays import dead_letter
from tests.scenarios.replays.dead_letters import new_sessions
from tests.scenarios.replays.reading import read
from tests.support import ROOT, eventually

SESSIONS = 40
MISSING_TOPIC = 50
"""Dead letters whose topic does not exist: the replay skips them, and they remain dead letters."""
TIMEOUT_S = 400


class Shop:
    """Creates the dead letters and topics of a scenario, starts drivers, and kills processes."""

    options = ()
    """Additional command line options of the drivers."""

    def __init__(self, stage, cluster, *, direct=None):
        self.stage, self.cluster = stage, cluster
        self.direct = direct or cluster.bootstrap_servers
        self.dead_letters = stage.size["dead_letters"]
        self.kills = Counter()
        self.store = Store.open(stage.folder / "store.duckdb")
        self.log = stage.folder / "drivers.log"
        mark = self.mark = uuid.uuid4().hex[:6]
        self.topics = [f"reprocess-{stage.scenario.name.lower()}-{mark}-{size}" for size in (6, 3)]
        for topic, size in zip(self.topics, (6, 3), strict=True):
            cluster.create_topic(topic, partitions=size)
        self.add_dead_letters()
        self.running = []

    def add_dead_letters(self):
        """Add the dead letters: a tenth has an unknown outcome, and half of these are already on their topic."""
        sessions = new_sessions(SESSIONS)
        dead, now = DeadLetters(self.store), time.time()
        there = []
        for start in range(0, self.dead_letters, 10_000):
            some = [
                self.one(number, sessions, now)
                for number in range(start, min(start + 10_000, self.dead_letters))
            ]
            there += [one for one in some if one.verdict == "possibly_persisted"][::2]
            dead.add(some)
        dead.add(
            [
                self.one(self.dead_letters + number, sessions, now, topic="missing-topic")
                for number in range(MISSING_TOPIC)
            ]
        )
        producer = Producer({"bootstrap.servers": self.direct, "queue.buffering.max.messages": 1_000_000})
        for one in there:
            producer.produce(one.topic, one.value, one.key, headers=delivery_of(one).record_headers)
        assert producer.flush(120) == 0
        self.there = len(there)

    def one(self, number, sessions, now, topic=None, **changes):
        known = dead_letter(
            number,
            message_id=id_text(id_bytes(sessions[number % SESSIONS], number)),
            topic=topic or self.topics[number % 3 == 0],
            cluster_id=self.cluster.cluster_id,
            key=None if number % 50 == 7 else b"k%d" % (number % 5_000),
            value=None if number % 100 == 9 else (b"%d " % number).ljust(200, b"."),
            headers=(("n", b"%d" % number),),
            verdict="possibly_persisted" if number % 10 == 3 else "rejected",
            accepted_at=now - 1000 + number * 0.001,
            failed_at=now - 500,
        )
        return replace(known, **changes)

    # drivers

    def driver(self):
        """Start a driver with the same command each time; it plans the replay or resumes it."""
        size = self.stage.size
        arguments = [
            "pipeline",
            "reprocess",
            "-b",
            self.cluster.bootstrap_servers,
            "--store",
            str(self.store.path),
        ]
        arguments += ["--yes", "--json", "--wave", str(size["wave"]), "--driver-memory", "1g"]
        arguments += [
            "--inconclusive",
            "send",
        ]  # otherwise the replay skips messages that a probe does not find
        arguments += ["--master", self.stage.master] if self.stage.master else []
        arguments += self.options
        with self.log.open("ab") as log:
            self.running.append(
                subprocess.Popen(
                    [sys.executable, "-m", "producer_core.cli", *arguments],
                    cwd=ROOT, stdin=subprocess.DEVNULL, stdout=log, stderr=log,
                    env={**os.environ, "PYTHONPATH": str(ROOT)},
                )
            )  # fmt: skip
        return self.running[-1]

    def operation(self):
        with contextlib.suppress(StoreError):
            return next(iter(replay.list_operations(self.store, limit=1)), None)
        return None

    def settled(self):
        now = self.operation()
        return -1 if now is None else now.total - now.left

    def until(self, moment, driver):
        """Wait until this many are settled; return False if the driver has ended."""
        eventually(lambda: self.settled() >= moment or driver.poll() is not None, TIMEOUT_S, every=0.5)
        return driver.poll() is None

    def kill(self, target, driver):
        """Kill a process; return the driver, or a new one if the driver has ended and the replay is incomplete."""
        if target == "driver":
            self.kill_driver(driver)
            return self.restart(driver)
        if target == "jvm":
            self.kills["jvms_killed"] += 1
            for pid in spark_processes.jvms(driver.pid):
                spark_processes.kill(pid)
            driver.wait(TIMEOUT_S)
            return self.restart(driver)
        below = spark_processes.tree(os.getpid() if self.stage.master else driver.pid)
        if target == "executor":
            candidates = [pid for pid, text in below.items() if "CoarseGrainedExecutorBackend" in text]
        else:
            candidates = spark_processes.workers(os.getpid() if self.stage.master else driver.pid)
        self.kills[f"{target}s_killed"] += bool(candidates)
        if candidates:
            spark_processes.kill(self.stage.chance.choice(candidates))
        return driver

    def restart(self, driver):
        """Start a new driver unless the replay has ended; after the end, it would plan a replay of the skipped ones."""
        return driver if (now := self.operation()) is not None and now.ended else self.driver()

    def kill_driver(self, driver):
        self.kills["drivers_killed"] += driver.poll() is None
        driver.kill()
        driver.wait(30)

    # the end

    def finish(self):
        """Let a driver finish the replay, if it is incomplete, and check the results."""
        stage = self.stage
        for driver in self.running:
            with contextlib.suppress(ProcessLookupError):
                driver.send_signal(signal.SIGCONT)
        last = self.running[-1] if self.running[-1].poll() is None else None
        code = (last or self.driver()).wait(TIMEOUT_S) if last or not self.operation().ended else 1
        if code not in (0, 1):
            errors = [line for line in self.log.read_text(errors="replace").splitlines() if "Error" in line]
            stage.problem(f"the last driver ended with {code}: {errors[-1:]}")
        for driver in self.running:
            driver.kill()
            driver.wait(30)
        self.check()

    def check(self):
        stage = self.stage
        done = [one for one in replay.list_operations(self.store, limit=50) if one.total]
        stage.equal("operations", len(done), 1)
        operation = done[-1]
        found = Counter(record.number for topic in self.topics for record in read(self.direct, topic))
        wanted = Counter(range(self.dead_letters))
        stage.equal("missing messages", (wanted - found).total(), 0)
        stage.equal("duplicates", (found - wanted).total(), 0)
        stage.equal("settled", operation.acknowledged + operation.landed, self.dead_letters)
        stage.equal("skipped and failed", (operation.skipped, operation.failed_again), (MISSING_TOPIC, 0))
        stage.equal("states", DeadLetters(self.store).count_by(DeadLetterFilter(state=None), "state"),
                    _states(self.dead_letters, operation))  # fmt: skip
        stage.report(
            dead_letters=self.dead_letters, acknowledged=operation.acknowledged, landed=operation.landed,
            there_before=self.there, **self.kills,
        )  # fmt: skip
        (stage.folder / "operation.json").write_text(json.dumps(operation.message))


def _states(dead_letters, operation):
    counts = {"replayed": operation.acknowledged, "landed": operation.landed, "dead": MISSING_TOPIC}
    return {
        name: number for name, number in sorted(counts.items(), key=lambda one: (-one[1], one[0])) if number
    }


class FaultyShop(Shop):
    """A shop with dead letters of 5 MB, a target topic and a progress topic that the scenario deletes."""

    def __init__(self, stage, cluster):
        super().__init__(stage, cluster)
        self.large, self.doomed, self.progress = (
            f"reprocess-{self.mark}-{name}" for name in ("large", "doomed", "seals")
        )
        self.options = ["--progress-topic", self.progress, "-X", "message.max.bytes=8000000"]
        cluster.create_topic(self.large, partitions=2, config={"max.message.bytes": "8000000"})
        cluster.create_topic(self.doomed, partitions=2)
        first, sizes = self.dead_letters + MISSING_TOPIC, (stage.size["large"], stage.size["doomed"])
        self.large_numbers = range(first, first + sizes[0])
        self.doomed_numbers = range(first + sizes[0], first + sum(sizes))
        self.total = first + sum(sizes)
        self.add_more()

    def add_more(self):
        """Add the other dead letters, with random times among the first ones."""
        chance, sessions, now = random.Random(1), new_sessions(SESSIONS), time.time()
        for numbers, topic, size in (
            (self.large_numbers, self.large, 5_000_000),
            (self.doomed_numbers, self.doomed, 100),
        ):
            DeadLetters(self.store).add(
                [
                    self.one(
                        number, sessions, now, topic=topic, value=os.urandom(size), verdict="rejected",
                        accepted_at=now - 1000 + chance.uniform(0, self.dead_letters * 0.001),
                    )
                    for number in numbers
                ]
            )  # fmt: skip

    def check(self):
        stage = self.stage
        (operation,) = [one for one in replay.list_operations(self.store, limit=50) if one.total]
        found = Counter(
            record.number for topic in (*self.topics, self.large) for record in read(self.direct, topic)
        )
        wanted = Counter([*range(self.dead_letters), *self.large_numbers])
        stage.equal("missing messages", (wanted - found).total(), 0)
        stage.equal("duplicates", (found - wanted).total(), 0)
        states = DeadLetters(self.store).count_by(DeadLetterFilter(state=None), "state")
        stage.equal("states", sorted(states), ["dead", "landed", "replayed"])
        doomed = DeadLetters(self.store).count(DeadLetterFilter(topic=self.doomed))
        stage.equal("skipped or failed", operation.skipped + operation.failed_again, MISSING_TOPIC + doomed)
        stage.equal("left, and the state", (operation.left, operation.state), (0, "done"))
        stage.report(
            dead_letters=self.total, acknowledged=operation.acknowledged, landed=operation.landed,
            of_a_deleted_topic=len(self.doomed_numbers), left_of_those=doomed, drivers=len(self.running),
        )  # fmt: skip
