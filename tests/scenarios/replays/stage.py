"""The stage of a scenario: brokers behind a fault proxy, a store of dead letters, and the processes that replay them."""

from __future__ import annotations

import contextlib
import json
import os
import random
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from pathlib import Path

from producer_core import replay
from producer_core.dashboard.actions import confirm_replay, start_replay
from producer_core.dlq import DeadLetterFilter, DeadLetters
from producer_core.errors import StoreError
from producer_core.replay.transactional import TRANSACTIONAL_ID
from producer_core.store import Store
from tests.proxy import Rule, Tap
from tests.scenarios.faults.stage import CHAOS, ROOT
from tests.scenarios.replays.dead_letters import Topic, bury
from tests.scenarios.replays.invariants import Evidence, rows_by_number
from tests.scenarios.replays.reading import read
from tests.support import eventually

PATIENCE = 120
LEASE = 4.0
QUIET = 5.0
EVERYTHING = DeadLetterFilter()

POINTS = (
    None,
    ("Produce", False), ("Produce", True), ("AddPartitionsToTxn", True),
    ("EndTxn", False), ("EndTxn", True), ("EndTxn", False), ("EndTxn", True),
)  # fmt: skip
"""Where a process is harmed: at once, or when a request of the replay's passes by (True: when its answer does).
The two ends of EndTxn are what a replay is most easily wrong about, so they are drawn more often."""


class Child:
    """A replaying process, and the names under which it holds operations."""

    def __init__(self, command, said, log, state):
        self.said = said
        environment = {**os.environ, "XDG_STATE_HOME": str(state)}
        self.process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=log, stderr=log, cwd=ROOT, env=environment
        )

    @property
    def alive(self):
        return self.process.poll() is None

    def told(self):
        lines = self.said.read_text().splitlines() if self.said and self.said.exists() else []
        return {name: value for line in lines for name, value in json.loads(line).items()}

    def owns(self, owner):
        mine = self.told().get("owner")
        return bool(owner and mine and owner.startswith(mine))

    def signal(self, number):
        with contextlib.suppress(ProcessLookupError):
            self.process.send_signal(number)

    def kill(self):
        running = self.alive
        self.process.kill()
        self.process.wait(30)
        self.process.stdin.close()
        return running

    def end(self, timeout):
        self.process.stdin.close()
        return self.process.wait(timeout)


class Stage:
    """One run of one scenario. It buries, plans, starts processes, does harm, and calls `finish`."""

    def __init__(self, medium, *, name, delivery, seed, dead_letters, long, folder):
        self.medium, self.name, self.delivery, self.seed = medium, name, delivery, seed
        self.dead_letters, self.long = dead_letters, long
        self.chance = random.Random(f"{name}:{seed}")
        self.folder = Path(folder)
        self.folder.mkdir(parents=True, exist_ok=True)
        self.store = Store.open(self.folder / "store.duckdb")
        self.children, self.operation_id, self.buried = [], "", None
        self.kills = self.stops = self.broker_faults = 0
        self.problems, self.notes = [], {}
        self.slept_with = set()  # numbers that a process had claimed when it was stopped
        self.lease = 2 * LEASE if long else LEASE
        self.proxy = medium.proxy
        self.proxy.seed = seed
        self._faults_before, self._counts_before = self.proxy.faults, self.proxy.counts
        self._log = (self.folder / "children.log").open("ab")
        mark = os.urandom(3).hex()
        self.topics = [Topic(f"{name.lower()}-{seed}-{mark}-{size}", size) for size in (6, 4, 1)]

    # before

    def give_up(self, *, config=None, doubtful=True, **changes):
        """The dead letters, and the topics that have a part of them already."""
        for topic in self.topics:
            self.medium.create_topic(topic.name, topic.partitions, config)
        self.buried = bury(
            self.store, self.medium.direct, self.dead_letters, self.topics, self.chance,
            cluster_id=self.medium.cluster.cluster_id, doubtful=doubtful, **changes,
        )  # fmt: skip

    def bury_bad(self):
        """Dead letters that are refused again, whatever one does: no keys, on compacted topics."""
        self.give_up(config={"cleanup.policy": "compact"}, doubtful=False, bad=True)

    def plan(self, **choices):
        """As any process does it: no credentials here. Asked twice, it is the same operation."""
        cluster = self.medium.cluster.cluster_id
        rate = max(250, self.dead_letters // 200)  # a replay that is over before it was harmed shows nothing
        choices = {"can_run": cluster, "who": "ann", "origin": "python", "rate": rate, **choices}
        if self.delivery == "exactly_once":  # at least once keeps what is not found, and lists it
            choices.setdefault("inconclusive", "send")
        planned = replay.plan(self.store, EVERYTHING, **choices)
        again = replay.plan(self.store, EVERYTHING, **choices)
        if again.operation_id != planned.operation_id:
            self.problems.append("R9: asked twice, it is two operations")
        self.operation_id = planned.operation_id

    def replay(self, kind="runner", **settings):
        """Start a process that replays."""
        said = self.folder / f"said-{len(self.children)}"
        everything = {
            "kind": kind, "servers": self.medium.servers, "store": str(self.store.path), "said": str(said),
            "delivery": self.delivery, "config": CHAOS, "lease": self.lease, "quiet": QUIET, **settings,
        }  # fmt: skip
        command = [sys.executable, "-m", "tests.scenarios.replays.child", json.dumps(everything)]
        return self._start(command, said)

    def shell(self, *words):
        """The same from a shell."""
        command = [sys.executable, "-m", "producer_core.cli", *words, "--store", str(self.store.path)]
        return self._start(command, None)

    def _start(self, command, said):
        self.children.append(Child(command, said, self._log, self.folder / "state"))
        return self.children[-1]

    def click(self):
        """The button of the dashboard, which knows the store and nothing else."""
        eventually(lambda: replay.runners(self.store, time.time()), PATIENCE, every=0.2)
        done = start_replay(self.store, EVERYTHING)
        if done.operation_id is None:
            raise RuntimeError(f"the click did nothing: {done.text}")
        self.notes["click"] = done.text
        self.operation_id = done.operation_id
        looked = eventually(
            lambda: (now := self.operation()).state != "checking" and now, PATIENCE, every=0.2
        )
        if looked.state == "ready":  # there was something to ask
            self.notes["asked"] = confirm_replay(self.store, self.operation_id).text

    def await_plan(self, child):
        """Until the process that plans for itself has done so."""

        def planned():
            if not child.alive:
                raise RuntimeError(f"it ended: {self.errors()}")
            with contextlib.suppress(StoreError):
                return next(iter(replay.list_operations(self.store, limit=1)), None)

        found = eventually(planned, PATIENCE, every=0.2).operation_id
        if self.operation_id not in ("", found):
            self.problems.append("R9: asked again, it is another operation")
        self.operation_id = found

    # while it runs

    def operation(self):
        return replay.get(self.store, self.operation_id)

    def settled(self):
        now = self.operation()
        return now.total - now.left

    def over(self):
        return self.operation().ended

    def until(self, check, timeout=PATIENCE):
        """Wait for a condition, or for the end of the replay; the store may be somebody else's for a moment."""

        def asked():
            with contextlib.suppress(StoreError):
                return check() or self.over()

        eventually(asked, timeout, every=0.3 if self.long else 0.1)

    def owner(self):
        """The process that has the operation now."""
        found = self.operation().owner
        return next((child for child in self.children if child.alive and child.owns(found)), None)

    def await_owner(self, other_than=None, timeout=PATIENCE):
        self.until(lambda: (found := self.owner()) is not None and found is not other_than, timeout)
        return self.owner()

    def harm(self, number, point):
        """Send a signal to the owner at this point of its protocol: the process, or None when the replay was over."""
        child = self.await_owner()
        if child is None:
            return None
        if point is None:
            self.pause(self.chance.uniform(0, 0.5))
            child.signal(number)
            return child
        api, answer = point
        struck = threading.Event()

        def strike(_):
            child.signal(number)
            struck.set()

        mine = f"{TRANSACTIONAL_ID}{self.operation_id}".encode()
        skip = self.chance.randrange(3)
        with self.proxy.during(
            Rule(Tap(strike, answer=answer), api=api, containing=mine, times=1, skip=skip)
        ):
            with contextlib.suppress(AssertionError):
                self.until(lambda: struck.is_set() or not child.alive, 20)
        if not struck.is_set():
            child.signal(number)
        return child

    def kill(self, point=None):
        child = self.harm(signal.SIGKILL, point)
        if child is not None:
            child.process.wait(30)
            self.kills += 1
            self.notes.setdefault("points", []).append(
                "now" if point is None else f"{point[0]}{' answered' * point[1]}"
            )

    def stop(self, point=None, seconds=None):
        """SIGSTOP past the lease, until somebody else has the operation; then it wakes."""
        child = self.harm(signal.SIGSTOP, point)
        if child is None:
            return
        self.stops += 1
        try:
            self.slept_with |= {number for number, state in self._records().items() if state == "claimed"}
            self.await_owner(other_than=child, timeout=8 * self.lease)
            self.pause(self.chance.uniform(0, 2) if seconds is None else seconds)
        except (AssertionError, StoreError):  # it holds the store's lock: all wait until it wakes
            self.notes["stopped with the store"] = self.notes.get("stopped with the store", 0) + 1
        finally:
            child.signal(signal.SIGCONT)

    def _records(self):
        """By number: the state in which the operation has it."""
        records = self.rows(
            "SELECT message_id, state FROM operation_records WHERE operation_id = ?", [self.operation_id]
        )
        return {number: row["state"] for number, row in rows_by_number(records).items()}

    def spread(self, count):
        """So many random moments of the replay, each as a number of settled records."""
        return sorted(self.chance.sample(range(self.dead_letters // 20, self.dead_letters * 19 // 20), count))

    @staticmethod
    def pause(seconds):
        """Part of a scenario's timetable, not a wait for something."""
        threading.Event().wait(seconds)

    def finish(self, timeout=None):
        """Until the replay is over and its processes have ended by themselves."""
        eventually(self._over_or_alone, timeout or PATIENCE + self.dead_letters / 100, every=0.2)
        self.close()

    def close(self):
        """Every process ends by itself."""
        for child in self.children:
            if child.alive:
                try:
                    code = child.end(90)
                except subprocess.TimeoutExpired:
                    self.problems.append("a process did not end when it was told to")
                    child.kill()
                    continue
                if code:
                    self.problems.append(f"a process ended with {code}: {self.errors()}")

    def _over_or_alone(self):
        with contextlib.suppress(StoreError):
            if self.over():
                return True
        if not any(child.alive for child in self.children):
            raise RuntimeError(f"every process is gone, and the replay is not over: {self.errors()}")
        return False

    def errors(self):
        return (self.folder / "children.log").read_text(errors="replace")[-1500:]

    def until_noted(self, count):
        """Until so many dead letters are no dead letters any more, whoever did that."""

        def noted():
            with contextlib.suppress(StoreError):
                return self.dead_letters - DeadLetters(self.store).count(EVERYTHING) >= count

        eventually(noted, PATIENCE, every=0.1)

    def put_back(self, copy):
        """The store is this copy of it; no process has it open."""
        self.store.close()
        copy.replace(self.store.path)
        self.store = Store.open(self.store.path)

    def listed(self):
        """The ids of whom nobody can say whether they are on their topic."""
        return {row["message_id"] for row in replay.doubtful(self.store, self.operation_id, limit=10**9)}

    # judging

    @property
    def faults(self):
        return self.proxy.faults - self._faults_before

    def counts(self):
        found = {name: count - self._counts_before[name] for name, count in self.proxy.counts.items()}
        return {name: count for name, count in found.items() if count}

    def evidence(self, patience=30):
        """Read until nothing is missing, or for so long: a transaction may still be ending."""
        self.medium.restore()
        deadline = time.monotonic() + patience
        while True:
            found = self.evidence_now()
            if not found.missing() or time.monotonic() > deadline:
                break
            self.pause(0.5)
        copies = sum(len(read(self.medium.direct, topic.name, committed=False)) for topic in self.topics)
        self.notes["aborted copies"] = copies - len(found.log)
        self._plan_again(found)
        return found

    def duplicates(self):
        """How many records are there more than once; all that is asked of what we are compared with."""
        log = Counter(
            record.number for topic in self.topics for record in read(self.medium.direct, topic.name)
        )
        return sum(count - 1 for count in log.values())

    def evidence_now(self):
        log = [record for topic in self.topics for record in read(self.medium.direct, topic.name)]
        dead_letters = self.rows(
            "SELECT message_id, topic, state, verdict, landed_partition, landed_offset FROM dead_letters"
        )
        ends = self.rows("SELECT count(*) AS n FROM audit WHERE action = 'replay_end'")[0]["n"]
        return Evidence(
            self.buried.dead_letters, self.buried.there, log, rows_by_number(dead_letters),
            self._records(), self.operation(), self.listed(), ends,
            exactly_once=self.delivery == "exactly_once", slept_with=self.slept_with,
        )  # fmt: skip

    def rows(self, sql, parameters=()):
        with self.store.borrow(limit=60) as connection:
            found = connection.execute(sql, list(parameters))
            names = [column[0] for column in found.description]
            return [dict(zip(names, row, strict=True)) for row in found.fetchall()]

    def _plan_again(self, found):
        """The same selection again is what is dead now, and no more."""
        left = sum(state == "dead" for state in found.state.values())
        after = replay.plan(
            self.store, EVERYTHING, who="ann", origin="python", can_run=self.medium.cluster.cluster_id
        )
        if after.total != left:
            self.problems.append(f"R9: planned again it has {after.total} records, and {left} are dead")

    def end(self):
        for child in self.children:
            if child.alive:
                child.signal(signal.SIGCONT)
            child.kill()
        self.proxy.clear()
        self.store.close()
        self._log.close()
