"""Replay with a producer: each record is settled by its own delivery report."""

from __future__ import annotations

import pytest

from producer_core import replay
from producer_core.dlq import DeadLetters, claim_and_settle
from producer_core.errors import InvalidMessage, QueueFull
from tests.fixtures.replays import (
    ALL,
    ScriptedSender,
    add_dead_letters,
    counts,
    planned,
    replay_record,
    runner,
    states,
)
from tests.support import eventually


@pytest.mark.slow
def test_a_record_is_settled_only_by_its_own_delivery_report(store, clock):
    ids = add_dead_letters(store, 3)
    sender = ScriptedSender(hold=True)
    operation = planned(store, clock)
    running = runner(store, sender, clock)
    running.start()

    eventually(lambda: len(sender.sent) == 3)
    assert set(states(store).values()) == {"replaying"}

    sender.release()
    eventually(lambda: replay.get(store, operation.operation_id).ended)
    running.stop()
    assert states(store) == dict.fromkeys(ids, "replayed")


@pytest.mark.slow
def test_a_producer_gets_the_records_of_a_batch_one_by_one(store, clock, monkeypatch):
    monkeypatch.setattr(claim_and_settle, "MIN_BATCH", 2)
    ids = add_dead_letters(store, 40, partition=1, headers=(("trace", b"1"),))
    sender = ScriptedSender()

    done = runner(store, sender, clock).run_one(planned(store, clock).operation_id, 60)

    assert sender.sent == [replay_record(at, partition=1, headers=(("trace", b"1"),)) for at in range(40)]
    assert counts(done) == (40, 0, 0, 0)
    assert states(store) == dict.fromkeys(ids, "replayed")


@pytest.mark.slow
def test_every_byte_and_header_reaches_the_sender(store, clock):
    add_dead_letters(store, 1)
    sender = ScriptedSender()

    runner(store, sender, clock).run_one(planned(store, clock).operation_id, 60)

    assert sender.sent == [replay_record(0)]


@pytest.mark.slow
def test_a_record_that_fails_again_returns_to_dead_and_does_not_count_as_delivered(store, clock):
    ids = add_dead_letters(store, 3)
    sender = ScriptedSender(refuse=[ids[1]])

    done = runner(store, sender, clock).run_one(planned(store, clock).operation_id, 60)

    again = DeadLetters(store).get(ids[1])
    assert (again.state, again.replay_count) == ("dead", 1)
    assert [attempt.failed_at for attempt in again.attempts] == [1000.0, 6000.0]
    assert counts(done) == (2, 0, 1, 0)
    assert done.message == "Replayed 2 of 3; 1 failed again: Broker: Policy violation"


@pytest.mark.slow
def test_a_record_that_can_never_be_sent_fails_with_the_reason(store, clock):
    add_dead_letters(store, 1)

    class Refusing(ScriptedSender):
        def resend(self, one, settled):
            raise InvalidMessage("It is larger than the client may send.")

    done = runner(store, Refusing(), clock).run_one(planned(store, clock).operation_id, 60)

    assert done.message == "Replayed 0 of 1; 1 failed again: It is larger than the client may send"
    assert DeadLetters(store).count(ALL) == 1


@pytest.mark.slow
def test_a_full_client_queue_delays_a_record(store, clock):
    add_dead_letters(store, 2)

    class FullOnce(ScriptedSender):
        full = True

        def resend(self, one, settled):
            if self.full:
                self.full = False
                raise QueueFull
            super().resend(one, settled)

    done = runner(store, FullOnce(), clock).run_one(planned(store, clock).operation_id, 10)

    assert counts(done) == (2, 0, 0, 0)
