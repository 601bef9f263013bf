"""A shop: the dead letters of a reprocess scenario, the topics that they go to, and the drivers that send them."""

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
from tests.fixtures import spark_processes as sparks
from tests.fixtures.replays import dead_letter
from tests.scenarios.replays import dead_letters as made
from tests.scenarios.replays.reading import read
from tests.support import ROOT, eventually

SESSIONS = 40
NOWHERE = 50
"""Letters of a topic that is not there any more: they are left out, and stay dead letters."""
PATIENCE = 400


class Shop:
    """The dead letters of a scenario, the topics that they go to, and the drivers that send them."""

    words = ()
    """Of the command, beyond those that every driver gets."""

    def __init__(self, stage, cluster, *, direct=None):
        self.stage, self.cluster = stage, cluster
        self.direct = direct or cluster.bootstrap_servers
        self.dead_letters = stage.size["letters"]
        self.harms = Counter()
        self.store = Store.open(stage.folder / "store.duckdb")
        self.log = stage.folder / "drivers.log"
        mark = self.mark = uuid.uuid4().hex[:6]
        self.topics = [f"reprocess-{stage.scenario.name.lower()}-{mark}-{size}" for size in (6, 3)]
        for topic, size in zip(self.topics, (6, 3), strict=True):
            cluster.create_topic(topic, partitions=size)
        self.give_up()
        self.running = []

    def give_up(self):
        """A tenth is in doubt, and half of those are on their topic."""
        sessions = made.sessions(SESSIONS)
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
                self.one(self.dead_letters + number, sessions, now, topic="gone-for-good")
                for number in range(NOWHERE)
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
        """The same command each time: it plans, or goes on."""
        size = self.stage.size
        words = [
            "pipeline",
            "reprocess",
            "-b",
            self.cluster.bootstrap_servers,
            "--store",
            str(self.store.path),
        ]
        words += ["--yes", "--json", "--wave", str(size["wave"]), "--driver-memory", "1g"]
        words += ["--master", self.stage.master] if self.stage.master else []
        words += self.words
        with self.log.open("ab") as log:
            self.running.append(
                subprocess.Popen(
                    [sys.executable, "-m", "producer_core.cli", *words],
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
        """Until so many are settled; False when its driver ended before."""
        eventually(lambda: self.settled() >= moment or driver.poll() is not None, PATIENCE, every=0.5)
        return driver.poll() is None

    def strike(self, blow, driver):
        """The driver after it: another one where it died of it, and has left something to do."""
        if blow == "driver":
            self.kill_driver(driver)
            return self.another(driver)
        if blow == "jvm":
            self.harms["jvms_killed"] += 1
            for pid in sparks.jvms(driver.pid):
                sparks.kill(pid)
            driver.wait(PATIENCE)
            return self.another(driver)
        below = sparks.tree(os.getpid() if self.stage.master else driver.pid)
        if blow == "executor":
            victims = [pid for pid, text in below.items() if "CoarseGrainedExecutorBackend" in text]
        else:
            victims = sparks.workers(os.getpid() if self.stage.master else driver.pid)
        self.harms[f"{blow}s_killed"] += bool(victims)
        if victims:
            sparks.kill(self.stage.chance.choice(victims))
        return driver

    def another(self, driver):
        """The same command would plan anew what was left out."""
        return driver if (now := self.operation()) is not None and now.ended else self.driver()

    def kill_driver(self, driver):
        self.harms["drivers_killed"] += driver.poll() is None
        driver.kill()
        driver.wait(30)

    # the end

    def finish(self):
        """A driver brings it to its end, which may have come already."""
        stage = self.stage
        for driver in self.running:
            with contextlib.suppress(ProcessLookupError):
                driver.send_signal(signal.SIGCONT)
        last = self.running[-1] if self.running[-1].poll() is None else None
        code = (last or self.driver()).wait(PATIENCE) if last or not self.operation().ended else 1
        if code not in (0, 1):
            said = [line for line in self.log.read_text(errors="replace").splitlines() if "Error" in line]
            stage.problem(f"the last driver ended with {code}: {said[-1:]}")
        for driver in self.running:
            driver.kill()
            driver.wait(30)
        self.judge()

    def judge(self):
        stage = self.stage
        done = [one for one in replay.list_operations(self.store, limit=50) if one.total]
        stage.equal("operations", len(done), 1)
        operation = done[-1]
        found = Counter(record.number for topic in self.topics for record in read(self.direct, topic))
        wanted = Counter(range(self.dead_letters))
        stage.equal("letters that are not there", (wanted - found).total(), 0)
        stage.equal("letters that are there again", (found - wanted).total(), 0)
        stage.equal("settled", operation.acknowledged + operation.landed, self.dead_letters)
        stage.equal("left out", (operation.skipped, operation.failed_again), (NOWHERE, 0))
        stage.equal("still dead", DeadLetters(self.store).count_by(DeadLetterFilter(state=None), "state"),
                    _states(self.dead_letters, operation))  # fmt: skip
        stage.tell(
            dead_letters=self.dead_letters, acknowledged=operation.acknowledged, landed=operation.landed,
            there_before=self.there, **self.harms,
        )  # fmt: skip
        (stage.folder / "operation.json").write_text(json.dumps(operation.message))


def _states(dead_letters, operation):
    counts = {"replayed": operation.acknowledged, "landed": operation.landed, "dead": NOWHERE}
    return {
        name: number for name, number in sorted(counts.items(), key=lambda one: (-one[1], one[0])) if number
    }


class Strained(Shop):
    """A shop with dead letters of 5 MB, dead letters of a topic that is deleted meanwhile, and a progress topic of its own."""

    def __init__(self, stage, cluster):
        super().__init__(stage, cluster)
        self.large, self.doomed, self.progress = (
            f"reprocess-{self.mark}-{what}" for what in ("large", "doomed", "seals")
        )
        self.words = ["--progress-topic", self.progress, "-X", "message.max.bytes=8000000"]
        cluster.create_topic(self.large, partitions=2, config={"max.message.bytes": "8000000"})
        cluster.create_topic(self.doomed, partitions=2)
        first, sizes = self.dead_letters + NOWHERE, (stage.size["large"], stage.size["doomed"])
        self.larges = range(first, first + sizes[0])
        self.dooms = range(first + sizes[0], first + sum(sizes))
        self.total = first + sum(sizes)
        self.bury_more()

    def bury_more(self):
        """Among the others, by their age."""
        among, known, now = random.Random(1), made.sessions(SESSIONS), time.time()
        for numbers, topic, size in ((self.larges, self.large, 5_000_000), (self.dooms, self.doomed, 100)):
            DeadLetters(self.store).add(
                [
                    self.one(
                        number, known, now, topic=topic, value=os.urandom(size), verdict="rejected",
                        accepted_at=now - 1000 + among.uniform(0, self.dead_letters * 0.001),
                    )
                    for number in numbers
                ]
            )  # fmt: skip

    def judge(self):
        stage = self.stage
        (operation,) = [one for one in replay.list_operations(self.store, limit=50) if one.total]
        found = Counter(
            record.number for topic in (*self.topics, self.large) for record in read(self.direct, topic)
        )
        wanted = Counter([*range(self.dead_letters), *self.larges])
        stage.equal("letters that are not there", (wanted - found).total(), 0)
        stage.equal("letters that are there again", (found - wanted).total(), 0)
        states = DeadLetters(self.store).count_by(DeadLetterFilter(state=None), "state")
        stage.equal("states", sorted(states), ["dead", "landed", "replayed"])
        doomed = DeadLetters(self.store).count(DeadLetterFilter(topic=self.doomed))
        stage.equal("left out or failed", operation.skipped + operation.failed_again, NOWHERE + doomed)
        stage.equal("without an end", (operation.left, operation.state), (0, "done"))
        stage.tell(
            dead_letters=self.total, acknowledged=operation.acknowledged, landed=operation.landed,
            of_a_deleted_topic=len(self.dooms), left_of_those=doomed, drivers=len(self.running),
        )  # fmt: skip
