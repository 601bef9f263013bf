"""A state machine of deliveries: each message is in exactly one place, whatever the order of events."""

from __future__ import annotations

import shutil
import tempfile
from collections import Counter
from pathlib import Path

import pytest
from confluent_kafka import KafkaError
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from producer_core import ReliableKafkaProducer, RetryConfig
from producer_core.delivery.journal import Journal
from producer_core.events import Hook
from producer_core.testing import InMemoryTransport
from tests.support import eventually

QUICK = RetryConfig(max_retries=2, initial_delay_ms=1, max_delay_ms=3, jitter=False)
CODES = [
    KafkaError.REQUEST_TIMED_OUT,
    KafkaError.NOT_ENOUGH_REPLICAS,
    KafkaError._MSG_TIMED_OUT,
    KafkaError.MSG_SIZE_TOO_LARGE,
    KafkaError._PURGE_QUEUE,
]


class Outcomes(Hook):
    def __init__(self):
        self.acked, self.dead = Counter(), Counter()

    def acknowledged(self, batch):
        self.acked.update(item.seq for item in batch)

    def died(self, dead_letter):
        self.dead[int(dead_letter.message_id.rpartition("-")[2])] += 1


class Deliveries(RuleBasedStateMachine):
    """Runs a producer whose transport keeps messages in flight until a rule reports them."""

    journaled = False

    @initialize(
        ordering=st.sampled_from(["key", "strict", "none"]), policy=st.sampled_from(["retry", "dead_letter"])
    )
    def begin(self, ordering, policy):
        self.folder = Path(tempfile.mkdtemp())
        self.options = {"ordering": ordering, "on_ambiguous": policy}
        self.accepted = set()
        self.outcomes = Outcomes()
        self.start()

    def start(self):
        made = []
        self.producer = ReliableKafkaProducer(
            "memory:1", None, QUICK, store=self.folder / "s.duckdb" if self.journaled else None,
            journal_dir=self.folder / "journal" if self.journaled else None,
            transport=InMemoryTransport.factory(made, script=lambda delivery: "hold", capacity=20),
            hooks=(self.outcomes,), health_check_interval=3600, run_replays=False, **self.options,
        )  # fmt: skip
        self.transport = made[0]
        self.producer.connection.acknowledged()

    @rule(key=st.sampled_from([None, "a", "b"]), count=st.integers(1, 4))
    def send(self, key, count):
        if not self.journaled and self.transport.outstanding() + count > 15:
            return
        for _ in range(count):
            message_id = self.producer.send_message("orders", b"x", key)
            self.accepted.add(int(message_id.rpartition("-")[2]))

    @rule(outcomes=st.lists(st.none() | st.sampled_from(CODES), min_size=1, max_size=6), landed=st.booleans())
    def report(self, outcomes, landed):
        with self.transport._changed:
            held, self.transport._held = self.transport._held, []
        outcomes = (outcomes * len(held))[: len(held)]
        for delivery, code in zip(held, outcomes, strict=True):
            if code is not None and landed:
                self.transport.log["orders"].append(delivery)
        self.transport._report(list(zip(held, outcomes, strict=True)))

    @rule(blind=st.booleans())
    def set_probes_answered(self, blind):
        self.transport.blind = blind

    @rule()
    def fail_client(self):
        self.transport.break_client(KafkaError(KafkaError.OUT_OF_ORDER_SEQUENCE_NUMBER))

    @rule(timeout=st.sampled_from([0.0, 0.05]))
    def restart(self, timeout):
        self.close(timeout)
        self.start()

    def close(self, timeout):
        before = Counter(self.outcomes.acked) + Counter(self.outcomes.dead)
        report = self.producer.close(timeout=timeout)
        assert report.lost == 0
        if not self.journaled:
            assert report.journaled == 0
            assert set(self.outcomes.acked) | set(self.outcomes.dead) == self.accepted
            assert report.acknowledged + report.dead == len(self.accepted)
            self.accepted, self.outcomes = set(), Outcomes()
            return
        with Journal.open(self.folder / "journal") as journal:
            kept = {record.seq for record in journal.read()}
        assert kept | set(self.outcomes.acked) | set(self.outcomes.dead) == self.accepted
        assert not kept & (set(self.outcomes.acked) | set(self.outcomes.dead))
        assert report.journaled == len(kept)
        assert before <= Counter(self.outcomes.acked) + Counter(self.outcomes.dead)

    @invariant()
    def each_message_has_one_outcome(self):
        if hasattr(self, "outcomes"):
            settled = Counter(self.outcomes.acked) + Counter(self.outcomes.dead)
            assert not [seq for seq, times in settled.items() if times > 1]
            assert set(settled) <= self.accepted

    def teardown(self):
        if hasattr(self, "producer"):
            self.transport._script = lambda delivery: None
            self.transport.release()
            if self.options["on_ambiguous"] == "retry":
                eventually(lambda: self.producer.pending_count == 0, timeout=30)
            self.close(0.1)
            shutil.rmtree(self.folder)


class DeliveriesWithJournal(Deliveries):
    journaled = True


@pytest.mark.parametrize("machine", [Deliveries, DeliveriesWithJournal])
def test_each_message_is_in_exactly_one_state_after_any_sequence_of_events(machine):
    from hypothesis.stateful import run_state_machine_as_test

    steps = settings(max_examples=12, stateful_step_count=15, deadline=None, derandomize=True)
    run_state_machine_as_test(machine, settings=steps)
