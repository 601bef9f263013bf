"""The environment of a scenario: brokers behind a fault proxy, a store with dead letters, and the replaying processes."""

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
from dataclasses import replace as changed
from pathlib import Path

from producer_core import replay
from producer_core.dashboard.actions import confirm_replay, start_replay
from producer_core.dlq import DeadLetterFilter, DeadLetters
from producer_core.errors import StoreError
from producer_core.replay.guarantee import TRANSACTIONAL_ID
from producer_core.store import Store
from tests.proxy import Rule, Tap
from tests.scenarios.faults.stage import CHAOS, ROOT
from tests.scenarios.replays.dead_letters import Topic, add_dead_letters
from tests.scenarios.replays.invariants import Evidence, rows_by_number
from tests.scenarios.replays.reading import read
from tests.support import eventually

TIMEOUT = 120
LEASE = 4.0
QUIET = 5.0
EVERYTHING = DeadLetterFilter()

POINTS = (
    None,
    ("Produce", False), ("Produce", True), ("AddPartitionsToTxn", True),
    ("EndTxn", False), ("EndTxn", True), ("EndTxn", False), ("EndTxn", True),
)  # fmt: skip
"""The steps at which a process gets a signal: None is at once, else at a request of the replay (True: at its response).
EndTxn is the most error-prone step and therefore occurs more often."""


class Child:
    """A replaying process with its event file."""

    def __init__(self, command, events, log, state):
        self._events = events
        environment = {**os.environ, "XDG_STATE_HOME": str(state)}
        self.process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=log, stderr=log, cwd=ROOT, env=environment
        )

    @property
    def alive(self):
        return self.process.poll() is None

    def events(self):
        lines = self._events.read_text().splitlines() if self._events and self._events.exists() else []
        return {name: value for line in lines for name, value in json.loads(line).items()}

    def owns(self, owner):
        own = self.events().get("owner")
        return bool(owner and own and owner.startswith(own))

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
    """One run of a scenario, which adds dead letters, plans, starts processes, injects faults, and calls `finish`."""

    def __init__(self, medium, *, name, delivery, seed, dead_letters, long, folder):
        self.medium, self.name, self.delivery, self.seed = medium, name, delivery, seed
        self.dead_letters, self.long = dead_letters, long
        self.chance = random.Random(f"{name}:{seed}")
        self.folder = Path(folder)
        self.folder.mkdir(parents=True, exist_ok=True)
        self.store = Store.open(self.folder / "store.duckdb")
        self.children, self.operation_id, self.stored = [], "", None
        self.kills = self.stops = self.broker_faults = 0
        self.problems, self.notes = [], {}
        self.claimed_when_paused = set()  # numbers that a process had claimed when it was paused
        self.lease = 2 * LEASE if long else LEASE
        self.proxy = medium.proxy
        self.proxy.seed = seed
        self._faults_before, self._counts_before = self.proxy.faults, self.proxy.counts
        self._log = (self.folder / "children.log").open("ab")
        mark = os.urandom(3).hex()
        self.topics = [Topic(f"{name.lower()}-{seed}-{mark}-{size}", size) for size in (6, 4, 1)]

    # setup

    def add_dead_letters(self, *, config=None, doubtful=True, **changes):
        """Create the topics and the dead letters, some of which are already on their topic."""
        for topic in self.topics:
            self.medium.create_topic(topic.name, topic.partitions, config)
        self.stored = add_dead_letters(
            self.store, self.medium.direct, self.dead_letters, self.topics, self.chance,
            cluster_id=self.medium.cluster.cluster_id, doubtful=doubtful, **changes,
        )  # fmt: skip

    def add_bad_dead_letters(self):
        """Add dead letters that the broker always rejects: without keys, for compacted topics."""
        self.add_dead_letters(config={"cleanup.policy": "compact"}, doubtful=False, bad=True)

    def plan(self, **choices):
        """Plan the replay without credentials, as any process can; a second call must return the same operation."""
        cluster = self.medium.cluster.cluster_id
        rate = max(250, self.dead_letters // 200)  # slow enough that faults occur during the replay
        choices = {"can_run": cluster, "who": "ann", "origin": "python", "rate": rate, **choices}
        if self.delivery == "exactly_once":  # at least once keeps inconclusive messages and lists them
            choices.setdefault("inconclusive", "send")
        planned = replay.plan(self.store, EVERYTHING, **choices)
        again = replay.plan(self.store, EVERYTHING, **choices)
        if again.operation_id != planned.operation_id:
            self.problems.append("R9: a second plan created another operation")
        self.operation_id = planned.operation_id

    def replay(self, kind="runner", **settings):
        """Start a process that replays."""
        events = self.folder / f"events-{len(self.children)}"
        everything = {
            "kind": kind, "servers": self.medium.servers, "store": str(self.store.path), "events": str(events),
            "delivery": self.delivery, "config": CHAOS, "lease": self.lease, "quiet": QUIET, **settings,
        }  # fmt: skip
        command = [sys.executable, "-m", "tests.scenarios.replays.child", json.dumps(everything)]
        return self._start(command, events)

    def shell(self, *arguments):
        """Start a command that replays."""
        command = [sys.executable, "-m", "producer_core.cli", *arguments, "--store", str(self.store.path)]
        return self._start(command, None)

    def _start(self, command, events):
        self.children.append(Child(command, events, self._log, self.folder / "state"))
        return self.children[-1]

    def click(self):
        """Request the replay as the dashboard does, with access to the store only."""
        eventually(lambda: replay.runners(self.store, time.time()), TIMEOUT, every=0.2)
        done = start_replay(self.store, EVERYTHING)
        if done.operation_id is None:
            raise RuntimeError(f"the request had no effect: {done.text}")
        self.notes["click"] = done.text
        self.operation_id = done.operation_id
        checked = eventually(
            lambda: (now := self.operation()).state != "checking" and now, TIMEOUT, every=0.2
        )
        if checked.state == "ready":  # it needs a confirmation
            self.notes["asked"] = confirm_replay(self.store, self.operation_id).text

    def await_plan(self, child):
        """Wait until the command has planned its replay."""

        def planned():
            if not child.alive:
                raise RuntimeError(f"the command ended: {self.errors()}")
            with contextlib.suppress(StoreError):
                return next(iter(replay.list_operations(self.store, limit=1)), None)

        found = eventually(planned, TIMEOUT, every=0.2).operation_id
        if self.operation_id not in ("", found):
            self.problems.append("R9: the repeated command created another operation")
        self.operation_id = found

    # during the replay

    def operation(self):
        return replay.get(self.store, self.operation_id)

    def settled(self):
        now = self.operation()
        return now.total - now.left

    def ended(self):
        return self.operation().ended

    def until(self, check, timeout=TIMEOUT):
        """Wait for a condition, or for the end of the replay; another process may lock the store for a moment."""

        def reached():
            with contextlib.suppress(StoreError):
                return check() or self.ended()

        eventually(reached, timeout, every=0.3 if self.long else 0.1)

    def owner(self):
        """Return the process that owns the operation now, or None."""
        found = self.operation().owner
        return next((child for child in self.children if child.alive and child.owns(found)), None)

    def await_owner(self, other_than=None, timeout=TIMEOUT):
        self.until(lambda: (found := self.owner()) is not None and found is not other_than, timeout)
        return self.owner()

    def signal_owner(self, number, point):
        """Send a signal to the owner at this step of the protocol; return the process, or None after the end."""
        child = self.await_owner()
        if child is None:
            return None
        if point is None:
            self.pause(self.chance.uniform(0, 0.5))
            child.signal(number)
            return child
        api, answer = point
        sent = threading.Event()

        def send(_):
            child.signal(number)
            sent.set()

        own = f"{TRANSACTIONAL_ID}{self.operation_id}".encode()
        skip = self.chance.randrange(3)
        with self.proxy.during(Rule(Tap(send, answer=answer), api=api, containing=own, times=1, skip=skip)):
            with contextlib.suppress(AssertionError):
                self.until(lambda: sent.is_set() or not child.alive, 20)
        if not sent.is_set():
            child.signal(number)
        return child

    def kill(self, point=None):
        child = self.signal_owner(signal.SIGKILL, point)
        if child is not None:
            child.process.wait(30)
            self.kills += 1
            self.notes.setdefault("points", []).append(
                "now" if point is None else f"{point[0]}{' answered' * point[1]}"
            )

    def await_death(self, child, step):
        """Wait until a process has killed itself at this step of a wave, and check that the wave is open."""
        self.until(lambda: not child.alive)
        self.kills += not child.alive
        self.notes.setdefault("points", []).append(step)
        sql = "SELECT count(*) AS open FROM replay_waves WHERE operation_id = ?"
        if not self.ended() and not self.rows(sql, [self.operation_id])[0]["open"]:
            self.problems.append(f"a process that died {step} left no open wave")

    def change_open_wave(self):
        """Archive and claim the dead letters of open waves, and list them: all of them belong to the replay."""
        sql = """SELECT records.message_id FROM operation_records AS records JOIN replay_waves AS waves
                     ON records.operation_id = waves.operation_id AND ord BETWEEN first_ord AND last_ord
                 WHERE state = 'pending'"""
        chosen = DeadLetterFilter(ids=tuple(row["message_id"] for row in self.rows(sql)))
        if not chosen.ids:
            return
        dead, who = DeadLetters(self.store), {"who": "bob", "origin": "cli"}
        if dead.archive(chosen, **who).count:
            self.problems.append("dead letters of an open wave were archived")
        if dead.claim("another replay", chosen.ids):
            self.problems.append("dead letters of an open wave were claimed again")
        if dead.count(changed(chosen, state="replaying")) != len(chosen.ids):
            self.problems.append("dead letters of an open wave are not listed as replaying")

    def pause_owner(self, point=None, seconds=None):
        """Pause the owner (SIGSTOP) past its lease until another process owns the operation, then resume it."""
        child = self.signal_owner(signal.SIGSTOP, point)
        if child is None:
            return
        self.stops += 1
        try:
            self.claimed_when_paused |= {
                number for number, state in self._records().items() if state == "claimed"
            }
            self.await_owner(other_than=child, timeout=8 * self.lease)
            self.pause(self.chance.uniform(0, 2) if seconds is None else seconds)
        except (AssertionError, StoreError):  # it holds the lock of the store, so all others wait
            self.notes["stopped with the store"] = self.notes.get("stopped with the store", 0) + 1
        finally:
            child.signal(signal.SIGCONT)

    def _records(self):
        """Return the state of each record of the operation, by number."""
        records = self.rows(
            "SELECT message_id, state FROM operation_records WHERE operation_id = ?", [self.operation_id]
        )
        return {number: row["state"] for number, row in rows_by_number(records).items()}

    def spread(self, count):
        """Return random moments of the replay as numbers of settled records."""
        return sorted(self.chance.sample(range(self.dead_letters // 20, self.dead_letters * 19 // 20), count))

    @staticmethod
    def pause(seconds):
        """Pause as a part of the scenario, not for a condition."""
        threading.Event().wait(seconds)

    def finish(self, timeout=None):
        """Wait for the end of the replay, and end all processes."""
        eventually(self._ended_or_abandoned, timeout or TIMEOUT + self.dead_letters / 100, every=0.2)
        self.close()

    def close(self):
        """Close the input of every process and wait until it ends."""
        for child in self.children:
            if child.alive:
                try:
                    code = child.end(90)
                except subprocess.TimeoutExpired:
                    self.problems.append("a process did not end after its input was closed")
                    child.kill()
                    continue
                if code:
                    self.problems.append(f"a process ended with {code}: {self.errors()}")

    def _ended_or_abandoned(self):
        # before the state, which the last process may be writing
        running = any(child.alive for child in self.children)
        with contextlib.suppress(StoreError):
            if self.ended():
                return True
            if not running:
                raise RuntimeError(f"every process has ended before the replay: {self.errors()}")
        return False

    def errors(self):
        return (self.folder / "children.log").read_text(errors="replace")[-1500:]

    def until_marked(self, count):
        """Wait until this many messages are no longer dead letters."""

        def marked():
            with contextlib.suppress(StoreError):
                return self.dead_letters - DeadLetters(self.store).count(EVERYTHING) >= count

        eventually(marked, TIMEOUT, every=0.1)

    def restore_store(self, copy):
        """Replace the store with this copy, while no process has it open."""
        self.store.close()
        copy.replace(self.store.path)
        self.store = Store.open(self.store.path)

    def listed(self):
        """Return the ids that the operation lists as doubtful."""
        return {row["message_id"] for row in replay.doubtful(self.store, self.operation_id, limit=10**9)}

    # evidence

    @property
    def faults(self):
        return self.proxy.faults - self._faults_before

    def counts(self):
        found = {name: count - self._counts_before[name] for name, count in self.proxy.counts.items()}
        return {name: count for name, count in found.items() if count}

    def evidence(self, timeout=30):
        """Read until no message is missing, or until the timeout: a transaction may still be ending."""
        self.medium.restore()
        deadline = time.monotonic() + timeout
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
        """Return the number of duplicates, the only result of the naive replay."""
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
            self.stored.dead_letters, self.stored.on_topic, log, rows_by_number(dead_letters),
            self._records(), self.operation(), self.listed(), ends,
            exactly_once=self.delivery == "exactly_once", claimed_when_paused=self.claimed_when_paused,
        )  # fmt: skip

    def rows(self, sql, parameters=()):
        with self.store.borrow(limit=60) as connection:
            found = connection.execute(sql, list(parameters))
            names = [column[0] for column in found.description]
            return [dict(zip(names, row, strict=True)) for row in found.fetchall()]

    def _plan_again(self, found):
        """Plan the same selection again and expect exactly the remaining dead letters."""
        left = sum(state == "dead" for state in found.state.values())
        after = replay.plan(
            self.store, EVERYTHING, who="ann", origin="python", can_run=self.medium.cluster.cluster_id
        )
        if after.total != left:
            self.problems.append(f"R9: the second plan has {after.total} records instead of {left}")

    def end(self):
        for child in self.children:
            if child.alive:
                child.signal(signal.SIGCONT)
            child.kill()
        self.proxy.clear()
        self.store.close()
        self._log.close()
