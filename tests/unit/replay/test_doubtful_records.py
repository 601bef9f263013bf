"""Records that may be on the topic are looked up before they are sent."""

from __future__ import annotations

from dataclasses import replace

import pytest

from producer_core import replay
from producer_core.dlq import DeadLetters, claim_and_settle
from producer_core.replay.broker_check import BrokerCheck
from producer_core.replay.claims import ReplayClaims
from tests.fixtures.replays import (
    ScriptedSender,
    add_dead_letters,
    claimed_by_a_dead_runner,
    counts,
    planned,
    probe_with,
    runner,
    states,
    successor,
)


@pytest.mark.slow
def test_possibly_persisted_records_are_looked_up_first(store, clock):
    ids = add_dead_letters(store, 3, verdict="possibly_persisted")
    sender, asked = ScriptedSender(), []
    probe = probe_with({ids[0]: "found", ids[1]: "not_found", ids[2]: "inconclusive"}, asked)

    done = runner(store, sender, clock, probe=probe).run_one(planned(store, clock).operation_id, 60)

    assert sorted(asked) == sorted(ids)
    assert sender.sent_ids == []
    assert counts(done) == (0, 1, 0, 2)
    assert states(store) == {ids[0]: "landed", ids[1]: "dead", ids[2]: "dead"}
    assert [DeadLetters(store).get(one).verdict for one in ids[1:]] == ["inconclusive"] * 2
    assert "to send anyway" in done.message


@pytest.mark.slow
def test_a_doubtful_record_among_many_safe_ones_is_looked_up(store, clock, monkeypatch):
    monkeypatch.setattr(claim_and_settle, "MIN_BATCH", 2)
    ids = add_dead_letters(store, 12)
    with store.borrow(write=True) as connection:
        connection.execute(
            "UPDATE dead_letters SET verdict = 'possibly_persisted' WHERE message_id = ?", [ids[11]]
        )
    sender, asked = ScriptedSender(), []
    probe = probe_with({ids[11]: "found"}, asked)

    done = runner(store, sender, clock, probe=probe).run_one(planned(store, clock).operation_id, 60)

    assert asked == [ids[11]]
    assert sender.sent_ids == ids[:11]
    assert counts(done) == (11, 1, 0, 0)


@pytest.mark.slow
def test_safe_records_are_not_looked_up(store, clock):
    add_dead_letters(store, 2)
    asked = []

    runner(store, ScriptedSender(), clock, probe=probe_with({}, asked)).run_one(
        planned(store, clock).operation_id, 60
    )

    assert asked == []


@pytest.mark.slow
def test_an_inconclusive_record_is_sent_only_at_the_request_of_the_operator(store, clock):
    ids = add_dead_letters(store, 2, verdict="possibly_persisted")
    sender = ScriptedSender()
    running = runner(store, sender, clock, probe=probe_with({ids[0]: "inconclusive"}))

    for _ in range(2):
        kept = running.run_one(planned(store, clock).operation_id, 60)
        assert (kept.skipped, sender.sent) == (2, [])
    sent = running.run_one(planned(store, clock, inconclusive="send").operation_id, 60)

    assert sent.acknowledged == 2


@pytest.mark.slow
def test_one_decision_resends_thousands_of_records_that_were_not_found_and_is_audited(store, clock):
    add_dead_letters(store, 3000, verdict="possibly_persisted")
    sender = ScriptedSender()
    operation = planned(store, clock, check_first=True)
    ReplayClaims(store, operation.operation_id, "looks", lease=15, clock=clock).save_check(
        BrokerCheck((), 0.0), {}, ""
    )

    replay.go(store, operation.operation_id, who="ann", origin="test", inconclusive="send", clock=clock)
    done = runner(store, sender, clock, probe=probe_with({})).run_one(operation.operation_id, 60)

    assert (done.acknowledged, done.skipped) == (3000, 0)
    (said,) = [row["outcome"] for row in store.rows("replay_acts") if row["action"] == "replay_go"]
    assert "which may create duplicates" in said


@pytest.mark.slow
def test_without_read_permission_no_record_is_sent_twice_silently(store, clock):
    add_dead_letters(store, 1, verdict="possibly_persisted")
    sender = ScriptedSender()

    done = runner(store, sender, clock).run_one(planned(store, clock).operation_id, 60)

    assert sender.sent == []
    assert "cannot read the topic" in done.message


@pytest.mark.slow
def test_a_doubtful_record_stays_doubtful_after_a_resend_with_a_safe_failure(store, clock):
    ids = add_dead_letters(store, 1, verdict="inconclusive", verdict_reason="The topic could not be read.")
    sender = ScriptedSender(refuse=ids)
    sender_outcome = sender.outcome
    sender.outcome = lambda one: replace(
        sender_outcome(one),
        dead_letter=replace(sender_outcome(one).dead_letter, verdict="not_sent", verdict_reason="Local."),
    )

    runner(store, sender, clock, probe=probe_with({ids[0]: "inconclusive"})).run_one(
        planned(store, clock, inconclusive="send").operation_id, 60
    )

    again = DeadLetters(store).get(ids[0])
    assert again.verdict == "inconclusive"
    assert "Local." in again.verdict_reason


@pytest.mark.slow
def test_records_claimed_by_a_dead_runner_are_looked_up_before_they_are_sent(store, clock):
    add_dead_letters(store, 4)
    operation, _, (landed, missing) = claimed_by_a_dead_runner(store, clock)
    sender, asked = ScriptedSender(), []

    running = successor(store, sender, clock, probe=probe_with({landed: "found"}, asked))
    done = running.run_one(operation.operation_id, 60)

    assert sorted(asked) == sorted([landed, missing])
    assert not {landed, missing} & {*sender.sent_ids}
    assert counts(done) == (2, 1, 0, 1)
    assert states(store)[landed] == "landed"
    assert [row["message_id"] for row in replay.doubtful(store, operation.operation_id)] == [missing]


@pytest.mark.slow
def test_records_claimed_by_a_dead_runner_are_sent_again_at_the_request_of_the_operator(store, clock):
    add_dead_letters(store, 4)
    operation, _, (landed, missing) = claimed_by_a_dead_runner(store, clock, inconclusive="send")
    sender = ScriptedSender()

    done = successor(store, sender, clock, probe=probe_with({landed: "found"})).run_one(
        operation.operation_id, 60
    )

    assert sender.sent_ids.count(missing) == 1
    assert counts(done) == (3, 1, 0, 0)


@pytest.mark.slow
def test_a_claimed_record_that_cannot_be_looked_up_is_never_sent_again_silently(store, clock):
    add_dead_letters(store, 3)
    operation, _, orphans = claimed_by_a_dead_runner(store, clock)
    sender = ScriptedSender()

    done = successor(store, sender, clock).run_one(operation.operation_id, 60)

    assert counts(done) == (1, 0, 0, 2)
    assert not {*orphans} & {*sender.sent_ids}
    assert [DeadLetters(store).get(one).verdict for one in orphans] == ["inconclusive"] * 2
