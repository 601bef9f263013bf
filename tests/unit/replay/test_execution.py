"""Replays against a real store, with a sender whose outcomes are written in the test."""

from __future__ import annotations

import re
import threading
from dataclasses import replace

import pytest

from producer_core import replay
from producer_core.dlq import DeadLetterFilter, DeadLetters
from producer_core.errors import (
    InvalidMessage,
    NoReplayRunner,
    OtherCluster,
    QueueFull,
    ReplayError,
    StoreError,
    StoreLocked,
)
from producer_core.events import Attempt
from producer_core.replay.broker_check import BrokerCheck
from producer_core.replay.candidates import Candidates
from producer_core.replay.claims import LeaseState, ReplayClaims
from producer_core.replay.execution import BatchSizer, ReplayPace
from producer_core.replay.outcome import FailedReplay, RecordOutcome
from producer_core.store import Store
from tests.factories import replay_runner
from tests.fixtures.replays import (
    CLUSTER,
    FakeClock,
    ScriptedSender,
    alive,
    answering,
    buried,
    dead_letter,
    in_hand,
    message_id,
)
from tests.support import eventually

ALL = DeadLetterFilter()
BY = {"who": "ann", "origin": "python"}


@pytest.fixture
def clock():
    return FakeClock()


@pytest.fixture
def store(tmp_path, clock):
    with_store = Store.open(tmp_path / "store.duckdb", clock=clock)
    yield with_store
    with_store.close()


def planned(store, clock, selection=ALL, **choices):
    return replay.plan(store, selection, **BY, can_run=CLUSTER, clock=clock, **choices)


def runner(store, sender, clock, **choices):
    return replay_runner(
        store,
        sender,
        clock=clock,
        **{"interval": 0.01, "poll_interval": 0.01, "monotonic": clock, "quiet": 0.0, **choices},
    )


def counts(operation):
    return operation.acknowledged, operation.landed, operation.failed_again, operation.skipped


def records(store, operation):
    return {
        row["message_id"]: (row["state"], row["text"])
        for row in store.rows("operation_records", operation=operation.operation_id)
    }


def states(store):
    with store.borrow() as connection:
        return dict(connection.execute("SELECT message_id, state FROM dead_letters").fetchall())


# planning


def test_a_second_click_with_the_same_selection_is_the_same_operation(store, clock):
    buried(store, 3)

    first = planned(store, clock)
    second = planned(store, clock)

    assert second == first
    assert len(replay.list(store)) == 1


def test_an_undecided_plan_is_made_anew_where_more_wait_by_now(store, clock):
    """It was yesterday's: with yesterday's dead letters only, and nothing said so."""
    buried(store, 3)
    first = planned(store, clock, check_first=True)
    assert planned(store, clock, check_first=True) == first
    DeadLetters(store).add([dead_letter(9)])

    anew = planned(store, clock, check_first=True)

    assert (first.total, anew.total) == (3, 4)
    assert planned(store, clock, check_first=True) == anew
    assert planned(store, clock, check_first=True, limit=3) == first


def test_a_replay_that_was_decided_stays_the_same_where_more_wait_by_now(store, clock):
    buried(store, 3)
    first = planned(store, clock)
    DeadLetters(store).add([dead_letter(9)])

    assert planned(store, clock) == first


def test_a_click_after_the_end_is_a_new_operation(store, clock):
    buried(store, 1)
    first = planned(store, clock)
    runner(store, ScriptedSender(), clock).run_one(first.operation_id, 60)

    buried(store, 2)

    assert planned(store, clock).operation_id != first.operation_id


def test_ids_are_frozen_at_the_plan(store, clock):
    old = buried(store, 2)
    operation = planned(store, clock)

    DeadLetters(store).add([dead_letter(7)])
    sender = ScriptedSender()
    done = runner(store, sender, clock).run_one(operation.operation_id, 60)

    assert sorted(sender.sent_ids) == sorted(old)
    assert done.total == 2
    assert states(store)[message_id(7)] == "dead"


def test_the_oldest_are_sent_first_and_the_sequence_counts_as_a_number(store, clock):
    DeadLetters(store).add([dead_letter(number, accepted_at=1.0) for number in (10, 9, 100, 1)])
    sender = ScriptedSender()

    runner(store, sender, clock).run_one(planned(store, clock).operation_id, 60)

    assert sender.sent_ids == [message_id(number) for number in (1, 9, 10, 100)]


def test_a_limit_leaves_the_rest(store, clock):
    buried(store, 5)

    done = runner(store, ScriptedSender(), clock).run_one(planned(store, clock, limit=2).operation_id, 60)

    assert done.message == "Replayed 2 of 2"
    assert DeadLetters(store).count(ALL) == 3


def test_nothing_to_replay_is_an_answer_and_not_an_error(store, clock):
    operation = planned(store, clock)

    assert (operation.state, operation.message) == ("done", "Nothing to replay")


def test_without_a_live_process_a_replay_is_refused_and_says_what_to_do(store, clock):
    buried(store, 1)

    with pytest.raises(NoReplayRunner, match="Start a producer"):
        replay.plan(store, ALL, **BY, clock=clock)

    alive(store, clock() - 16)
    assert replay.runners(store, clock()) == []
    alive(store, clock() - 1)
    assert replay.runners(store, clock()) == ["p-1"]
    assert replay.plan(store, ALL, **BY, clock=clock).state == "planned"


def test_a_malformed_and_a_quarantined_letter_are_skipped_with_the_reason(store, clock):
    buried(store, 1)
    DeadLetters(store).add(
        [dead_letter(1, replayable=False), dead_letter(2, quarantined=True, replay_count=4)]
    )
    sender = ScriptedSender()

    done = runner(store, sender, clock).run_one(planned(store, clock).operation_id, 60)

    assert counts(done) == (1, 0, 0, 2)
    assert sender.sent_ids == [message_id(0)]
    assert "never sent as a message" in records(store, done)[message_id(1)][1]
    assert "4 replays" in records(store, done)[message_id(2)][1]


def test_a_quarantined_letter_is_sent_when_that_was_asked(store, clock):
    DeadLetters(store).add([dead_letter(2, quarantined=True)])

    done = runner(store, ScriptedSender(), clock).run_one(
        planned(store, clock, allow_quarantined=True).operation_id, 60
    )

    assert done.acknowledged == 1


def test_letters_of_another_cluster_are_refused_unless_told(store, clock):
    buried(store, 2, cluster_id="elsewhere")

    with pytest.raises(OtherCluster, match="elsewhere"):
        planned(store, clock)
    told = planned(store, clock, to_cluster=CLUSTER)

    assert runner(store, ScriptedSender(), clock).run_one(told.operation_id, 60).acknowledged == 2


def test_among_letters_of_two_clusters_only_ours_are_sent(store, clock):
    buried(store, 1)
    DeadLetters(store).add([dead_letter(1, cluster_id="elsewhere"), dead_letter(2, cluster_id="elsewhere")])

    done = runner(store, ScriptedSender(), clock).run_one(planned(store, clock).operation_id, 60)

    assert counts(done) == (1, 0, 0, 2)
    assert "another cluster (elsewhere)" in done.message


def test_a_runner_of_another_cluster_does_not_touch_the_operation(store, clock):
    buried(store, 1)
    operation = planned(store, clock)
    stranger = ScriptedSender()
    stranger.cluster_id = "elsewhere"

    assert not runner(store, stranger, clock).poll()
    with pytest.raises(OtherCluster):
        runner(store, stranger, clock).run_one(operation.operation_id, 1)
    assert stranger.sent == []


# running


def test_a_letter_leaves_only_with_its_own_delivery_report(store, clock):
    ids = buried(store, 3)
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


def test_every_byte_and_header_reaches_the_sender(store, clock):
    buried(store, 1)
    sender = ScriptedSender()

    runner(store, sender, clock).run_one(planned(store, clock).operation_id, 60)

    assert sender.sent == [in_hand(0)]


def test_one_that_fails_again_is_dead_again_and_never_a_success(store, clock):
    ids = buried(store, 3)
    sender = ScriptedSender(refuse=[ids[1]])

    done = runner(store, sender, clock).run_one(planned(store, clock).operation_id, 60)

    again = DeadLetters(store).get(ids[1])
    assert (again.state, again.replay_count) == ("dead", 1)
    assert [attempt.failed_at for attempt in again.attempts] == [1000.0, 6000.0]
    assert counts(done) == (2, 0, 1, 0)
    assert done.message == "Replayed 2 of 3; 1 failed again: Broker: Policy violation"


def test_one_that_can_never_be_sent_failed_again_with_the_reason(store, clock):
    buried(store, 1)

    class Refusing(ScriptedSender):
        def resend(self, one, settled):
            raise InvalidMessage("It is larger than the client may send.")

    done = runner(store, Refusing(), clock).run_one(planned(store, clock).operation_id, 60)

    assert done.message == "Replayed 0 of 1; 1 failed again: It is larger than the client may send"
    assert DeadLetters(store).count(ALL) == 1


def test_a_full_queue_only_makes_it_wait(store, clock):
    buried(store, 2)

    class FullOnce(ScriptedSender):
        full = True

        def resend(self, one, settled):
            if self.full:
                self.full = False
                raise QueueFull
            super().resend(one, settled)

    done = runner(store, FullOnce(), clock).run_one(planned(store, clock).operation_id, 10)

    assert counts(done) == (2, 0, 0, 0)


def test_archived_meanwhile_wins_and_the_replay_says_so(store, clock):
    ids = buried(store, 3)
    operation = planned(store, clock)

    DeadLetters(store).archive(DeadLetterFilter(ids=(ids[0],)), **BY)
    done = runner(store, ScriptedSender(), clock).run_one(operation.operation_id, 60)

    assert done.message == "Replayed 2 of 3; 1 skipped: archived after the replay was planned"
    assert states(store)[ids[0]] == "archived"


def test_what_is_being_replayed_cannot_be_archived(store, clock):
    buried(store, 2)
    sender = ScriptedSender(hold=True)
    planned(store, clock)
    running = runner(store, sender, clock)
    running.start()
    eventually(lambda: len(sender.sent) == 2)

    assert DeadLetters(store).archive(ALL, **BY).count == 0

    sender.release()
    running.stop()
    assert set(states(store).values()) == {"replayed"}


def test_two_selections_that_overlap_send_each_record_once(store, clock):
    ids = buried(store, 4)
    one = planned(store, clock)
    two = planned(store, clock, DeadLetterFilter(topic="orders"))
    sender = ScriptedSender()
    running = runner(store, sender, clock)

    running.run_one(one.operation_id, 60)
    second = running.run_one(two.operation_id, 60)

    assert sorted(sender.sent_ids) == sorted(ids)
    assert second.message == "Replayed 0 of 4; 4 skipped: delivered by another replay"


def test_no_more_than_the_bound_are_in_flight(store, clock):
    buried(store, 12)
    sender = ScriptedSender(hold=True)
    operation = planned(store, clock)
    running = runner(store, sender, clock, in_flight=5)
    running.start()

    eventually(lambda: len(sender.sent) == 5)
    assert list(states(store).values()).count("replaying") == 5

    sender.release()
    eventually(lambda: replay.get(store, operation.operation_id).acknowledged == 12)
    running.stop()


def test_a_rate_lets_no_more_go_than_it_says():
    pace = ReplayPace(10.0, now=0.0)

    first = pace.room(0.0, 500)
    pace.spend(first)
    soon = pace.room(0.25, 500)
    pace.spend(soon)

    assert (first, soon) == (1, 2)
    assert pace.room(100.0, 500) == 10
    assert ReplayPace(None, 0.0).room(0.0, 500) == 500


# pause, resume, cancel


def test_pause_finishes_what_is_in_flight_and_resume_goes_on(store, clock):
    ids = buried(store, 10)
    sender = ScriptedSender(hold=True)
    operation = planned(store, clock)
    running = runner(store, sender, clock, in_flight=4)
    running.start()
    eventually(lambda: len(sender.sent) == 4)

    replay.pause(store, operation.operation_id, **BY)
    sender.release()
    eventually(lambda: replay.get(store, operation.operation_id).owner is None)
    paused = replay.get(store, operation.operation_id)
    assert (paused.state, paused.acknowledged, len(sender.sent)) == ("paused", 4, 4)
    assert list(states(store).values()).count("dead") == 6

    replay.resume(store, operation.operation_id, **BY)
    eventually(lambda: replay.get(store, operation.operation_id).state == "done")
    running.stop()
    assert sorted(sender.sent_ids) == sorted(ids)


def test_a_paused_replay_goes_on_at_another_rate_and_its_runner_hears_of_it(store, clock):
    buried(store, 3)
    operation = planned(store, clock, rate=1000.0)
    claims = ReplayClaims(store, operation.operation_id, "r-1", lease=15.0, clock=clock)
    assert claims.take()
    assert claims.settle_and_claim([], want=0, busy=True).rate == 1000.0

    replay.pause(store, operation.operation_id, **BY)
    replay.resume(store, operation.operation_id, rate=2.0, **BY)

    assert replay.get(store, operation.operation_id).rate == 2.0
    assert claims.settle_and_claim([], want=0, busy=True).rate == 2.0
    pace = ReplayPace(1000.0, now=0.0)
    pace.follow(2.0)
    assert pace.room(now=60.0, most=100) == 2


def test_a_rate_is_changed_only_by_whoever_may_resume(store, clock):
    buried(store, 3)
    operation = planned(store, clock, rate=9.0)

    with pytest.raises(ReplayError, match="Cannot resume replay"):
        replay.resume(store, operation.operation_id, rate=2.0, **BY)
    replay.pause(store, operation.operation_id, **BY)
    with pytest.raises(ReplayError, match="must be above 0"):
        replay.resume(store, operation.operation_id, rate=0.0, **BY)

    paused = replay.get(store, operation.operation_id)
    assert (paused.state, paused.rate) == ("paused", 9.0)
    assert replay.resume(store, operation.operation_id, **BY).rate == 9.0


def test_a_selection_within_a_replay_under_way_joins_it_where_that_is_asked_for(store, clock):
    ids = buried(store, 4)
    whole = planned(store, clock)
    some = DeadLetterFilter(ids=tuple(ids[:2]))

    assert planned(store, clock, some, join=True).operation_id == whole.operation_id
    assert [(one.operation_id, count) for one, count in replay.under_way(store, some)] == [
        (whole.operation_id, 2)
    ]
    assert planned(store, clock, some).operation_id != whole.operation_id


def test_a_selection_that_holds_more_is_a_replay_of_its_own(store, clock):
    buried(store, 2)
    first = planned(store, clock, DeadLetterFilter(until=1002.0))
    DeadLetters(store).add([dead_letter(9)])

    both = planned(store, clock, join=True)

    assert both.operation_id != first.operation_id
    assert both.total == 3
    replay.cancel(store, first.operation_id, **BY, clock=clock)
    assert [count for _, count in replay.under_way(store, ALL)] == [3]


def test_cancel_leaves_the_rest_dead_and_settles_what_is_in_flight(store, clock):
    buried(store, 10)
    sender = ScriptedSender(hold=True)
    operation = planned(store, clock)
    running = runner(store, sender, clock, in_flight=4)
    running.start()
    eventually(lambda: len(sender.sent) == 4)

    replay.cancel(store, operation.operation_id, **BY, clock=clock)
    sender.release()
    eventually(lambda: replay.get(store, operation.operation_id).ended)
    running.stop()

    done = replay.get(store, operation.operation_id)
    assert done.message == "Cancelled: replayed 4 of 10; 6 skipped: cancelled before it was sent"
    assert sorted(states(store).values()) == ["dead"] * 6 + ["replayed"] * 4


def test_cancelling_a_dry_run_says_what_another_replay_delivered_meanwhile(store, clock):
    """It said «4 skipped: cancelled before it was sent», of which 2 had been replayed elsewhere."""
    buried(store, 2)
    DeadLetters(store).add([dead_letter(8, topic="payments"), dead_letter(9, topic="payments")])
    dry = replay.plan(store, ALL, **BY, can_run=CLUSTER, check_first=True, clock=clock)
    runner(store, ScriptedSender(), clock).run_one(
        planned(store, clock, DeadLetterFilter(topic="payments")).operation_id, 60
    )

    done = replay.cancel(store, dry.operation_id, **BY, clock=clock)

    assert done.message == (
        "Cancelled: replayed 0 of 4; 2 skipped: cancelled before it was sent; "
        "2 skipped: delivered by another replay"
    )
    assert sorted(states(store).values()) == ["dead"] * 2 + ["replayed"] * 2


def test_cancel_before_anybody_ran_it_ends_it_at_once(store, clock):
    buried(store, 3)
    operation = planned(store, clock)

    done = replay.cancel(store, operation.operation_id, **BY, clock=clock)

    assert done.ended
    assert done.skipped == 3
    assert DeadLetters(store).count(ALL) == 3


def test_what_was_claimed_and_not_sent_is_dead_again_after_a_cancel(store, clock):
    ids = buried(store, 3)
    operation = planned(store, clock)
    claims = ReplayClaims(store, operation.operation_id, "me", lease=15, clock=clock)
    claims.take()
    claims.settle_and_claim([], want=2, busy=False)

    replay.cancel(store, operation.operation_id, **BY, clock=clock)
    assert claims.settle_and_claim(
        [RecordOutcome(one, "pending") for one in ids[:2]], want=5, busy=False
    ).over

    assert states(store) == dict.fromkeys(ids, "dead")
    assert replay.get(store, operation.operation_id).skipped == 3


def test_a_replay_for_a_cluster_that_vanished_does_not_stand_in_the_way(store, clock):
    buried(store, 3, cluster_id="gone")
    stale = replay.plan(store, ALL, **BY, can_run="gone", clock=clock)
    ReplayClaims(store, stale.operation_id, "dead", lease=15, clock=clock).take()
    ReplayClaims(store, stale.operation_id, "dead", lease=15, clock=clock).settle_and_claim(
        [], want=2, busy=False
    )
    DeadLetters(store).add([dead_letter(9)])

    fresh = planned(store, clock)
    assert fresh.operation_id != stale.operation_id
    clock.forward(3600)
    done = replay.cancel(store, stale.operation_id, **BY, clock=clock)

    assert done.ended
    assert done.skipped == 3
    assert DeadLetters(store).count_by(ALL, "verdict") == {"inconclusive": 2, "rejected": 2}


def test_what_cannot_be_done_is_said(store, clock):
    buried(store, 1)
    operation = planned(store, clock)
    replay.cancel(store, operation.operation_id, **BY, clock=clock)

    with pytest.raises(ReplayError, match="is cancelled"):
        replay.pause(store, operation.operation_id, **BY)
    with pytest.raises(ReplayError, match="no replay nonsense"):
        replay.get(store, "nonsense")


def test_stop_gives_the_operation_back_at_once(store, clock):
    buried(store, 4)
    sender = ScriptedSender(hold=True)
    operation = planned(store, clock)
    running = runner(store, sender, clock, in_flight=2)
    running.start()
    eventually(lambda: len(sender.sent) == 2)

    stopping = threading.Thread(target=running.stop)
    stopping.start()
    sender.release()
    stopping.join()

    left = replay.get(store, operation.operation_id)
    assert (left.state, left.owner, left.acknowledged) == ("running", None, 2)
    next_one = ScriptedSender("sender-2")
    assert runner(store, next_one, clock).run_one(operation.operation_id, 60).message == "Replayed 4 of 4"
    assert len(next_one.sent) == 2


def test_every_act_is_audited(store, clock):
    buried(store, 2)
    operation = planned(store, clock)
    replay.pause(store, operation.operation_id, **BY)
    replay.resume(store, operation.operation_id, **BY)
    runner(store, ScriptedSender(), clock).run_one(operation.operation_id, 60)

    actions = [(row["action"], row["who"]) for row in store.rows("audit_latest")]

    assert sorted(actions) == [
        ("replay", "ann"),
        ("replay_end", "ann"),
        ("replay_pause", "ann"),
        ("replay_resume", "ann"),
    ]


# doubt


def test_possibly_persisted_ones_are_looked_for_first(store, clock):
    ids = buried(store, 3, verdict="possibly_persisted")
    sender, asked = ScriptedSender(), []
    probe = answering({ids[0]: "found", ids[1]: "not_found", ids[2]: "inconclusive"}, asked)

    done = runner(store, sender, clock, probe=probe).run_one(planned(store, clock).operation_id, 60)

    assert sorted(asked) == sorted(ids)
    assert sender.sent_ids == []
    assert counts(done) == (0, 1, 0, 2)
    assert states(store) == {ids[0]: "landed", ids[1]: "dead", ids[2]: "dead"}
    assert [DeadLetters(store).get(one).verdict for one in ids[1:]] == ["inconclusive"] * 2
    assert "choose to send it anyway" in done.message


def test_safe_ones_are_not_looked_for(store, clock):
    buried(store, 2)
    asked = []

    runner(store, ScriptedSender(), clock, probe=answering({}, asked)).run_one(
        planned(store, clock).operation_id, 60
    )

    assert asked == []


def test_an_inconclusive_one_is_sent_only_when_an_operator_chooses_it(store, clock):
    ids = buried(store, 2, verdict="possibly_persisted")
    sender = ScriptedSender()
    running = runner(store, sender, clock, probe=answering({ids[0]: "inconclusive"}))

    for _ in range(2):
        kept = running.run_one(planned(store, clock).operation_id, 60)
        assert (kept.skipped, sender.sent) == (2, [])
    sent = running.run_one(planned(store, clock, inconclusive="send").operation_id, 60)

    assert sent.acknowledged == 2


def test_one_answer_sends_thousands_that_were_not_found_and_the_audit_keeps_it(store, clock):
    buried(store, 3000, verdict="possibly_persisted")
    sender = ScriptedSender()
    operation = planned(store, clock, check_first=True)
    ReplayClaims(store, operation.operation_id, "looks", lease=15, clock=clock).save_check(
        BrokerCheck((), 0.0), {}, ""
    )

    replay.go(store, operation.operation_id, who="ann", origin="test", inconclusive="send", clock=clock)
    done = runner(store, sender, clock, probe=answering({})).run_one(operation.operation_id, 60)

    assert (done.acknowledged, done.skipped) == (3000, 0)
    (said,) = [row["outcome"] for row in store.rows("replay_acts") if row["action"] == "replay_go"]
    assert "which may create duplicates" in said


def test_without_permission_to_read_nothing_is_sent_twice_silently(store, clock):
    buried(store, 1, verdict="possibly_persisted")
    sender = ScriptedSender()

    done = runner(store, sender, clock).run_one(planned(store, clock).operation_id, 60)

    assert sender.sent == []
    assert "cannot read the topic" in done.message


def test_doubt_stays_when_the_resend_fails_in_a_safe_way(store, clock):
    ids = buried(store, 1, verdict="inconclusive", verdict_reason="The topic could not be read.")
    sender = ScriptedSender(refuse=ids)
    sender_outcome = sender.outcome
    sender.outcome = lambda one: replace(
        sender_outcome(one),
        dead_letter=replace(sender_outcome(one).dead_letter, verdict="not_sent", verdict_reason="Local."),
    )

    runner(store, sender, clock, probe=answering({ids[0]: "inconclusive"})).run_one(
        planned(store, clock, inconclusive="send").operation_id, 60
    )

    again = DeadLetters(store).get(ids[0])
    assert again.verdict == "inconclusive"
    assert "Local." in again.verdict_reason


# takeover


def claimed_by_a_dead_runner(store, clock, **choices):
    """An operation whose owner claimed two of its records and died."""
    operation = planned(store, clock, **choices)
    dead = ReplayClaims(store, operation.operation_id, "dead", lease=15, clock=clock)
    assert dead.take()
    turn = dead.settle_and_claim([], want=2, busy=False)
    return operation, dead, [one.message_id for one in turn.dead_letters]


def heir(store, sender, clock, *, after=16, **choices):
    """A runner that has watched the dead owner's lease for a while."""
    watching = runner(store, sender, clock, **choices)
    assert not watching.poll()
    clock.forward(after)
    return watching


def test_nobody_takes_an_operation_before_its_lease_has_run_out(store, clock):
    buried(store, 3)
    operation, _, _ = claimed_by_a_dead_runner(store, clock)
    sender = ScriptedSender()
    running = heir(store, sender, clock, probe=answering({}), after=14)

    assert not running.poll()
    assert sender.sent == []
    clock.forward(2)
    assert running.poll()
    assert counts(replay.get(store, operation.operation_id)) == (1, 0, 0, 2)


def test_a_living_owner_keeps_his_operation_when_the_clock_is_set(store, clock):
    buried(store, 3)
    operation, owner, _ = claimed_by_a_dead_runner(store, clock)
    monotonic = FakeClock()
    watching = runner(store, ScriptedSender(), clock, monotonic=monotonic)

    for step in (3600, -7200, 3600):
        assert not watching.poll()
        clock.forward(step)
        assert not watching.poll()
        monotonic.forward(5)
        assert owner.renew()

    assert not watching.poll()
    assert replay.get(store, operation.operation_id).owner == "dead"


def test_a_dead_owner_is_followed_although_the_clock_was_set_back(store, clock):
    buried(store, 3)
    claimed_by_a_dead_runner(store, clock)
    clock.forward(-3600)

    assert heir(store, ScriptedSender(), clock, probe=answering({})).poll()


def test_what_a_dead_runner_left_claimed_is_looked_for_before_it_is_sent(store, clock):
    buried(store, 4)
    operation, _, (landed, missing) = claimed_by_a_dead_runner(store, clock)
    sender, asked = ScriptedSender(), []

    running = heir(store, sender, clock, probe=answering({landed: "found"}, asked))
    done = running.run_one(operation.operation_id, 60)

    assert sorted(asked) == sorted([landed, missing])
    assert not {landed, missing} & {*sender.sent_ids}
    assert counts(done) == (2, 1, 0, 1)
    assert states(store)[landed] == "landed"
    assert [row["message_id"] for row in replay.doubtful(store, operation.operation_id)] == [missing]


def test_what_a_dead_runner_left_claimed_is_sent_again_where_an_operator_chose_that(store, clock):
    buried(store, 4)
    operation, _, (landed, missing) = claimed_by_a_dead_runner(store, clock, inconclusive="send")
    sender = ScriptedSender()

    done = heir(store, sender, clock, probe=answering({landed: "found"})).run_one(operation.operation_id, 60)

    assert sender.sent_ids.count(missing) == 1
    assert counts(done) == (3, 1, 0, 0)


def test_an_orphan_nobody_can_look_for_is_never_sent_again_silently(store, clock):
    buried(store, 3)
    operation, _, orphans = claimed_by_a_dead_runner(store, clock)
    sender = ScriptedSender()

    done = heir(store, sender, clock).run_one(operation.operation_id, 60)

    assert counts(done) == (1, 0, 0, 2)
    assert not {*orphans} & {*sender.sent_ids}
    assert [DeadLetters(store).get(one).verdict for one in orphans] == ["inconclusive"] * 2


def test_a_runner_that_lost_its_lease_settles_nothing(store, clock):
    buried(store, 3)
    operation, dead, (first, second) = claimed_by_a_dead_runner(store, clock)
    took = LeaseState(operation.operation_id, "dead", replay.get(store, operation.operation_id).lease_until)
    assert ReplayClaims(store, operation.operation_id, "heir", lease=15, clock=clock).take(took)

    turn = dead.settle_and_claim(
        [RecordOutcome(first, "acknowledged"), RecordOutcome(second, "pending")], want=5, busy=False
    )

    assert turn.over
    assert turn.dead_letters == ()
    assert {records(store, operation)[one][0] for one in (first, second)} == {"claimed"}
    assert counts(replay.get(store, operation.operation_id)) == (0, 0, 0, 0)


def test_a_visit_to_the_store_claims_more_while_visits_are_short():
    portion = BatchSizer(10_000)
    sizes = [portion.now]
    for seconds, claimed in (
        (0.1, 500),
        (0.1, 2000),
        (0.4, 4000),
        (0.4, 8000),
        (0.7, 10_000),
        (1.5, 10_000),
        (3.0, 5000),
        (3.0, 2500),
    ):
        portion.took(seconds, claimed)
        sizes.append(portion.now)

    assert sizes == [2000, 2000, 4000, 8000, 10_000, 10_000, 5000, 2500, 2000]
    small = BatchSizer(500)
    small.took(9.0, 500)
    assert small.now == 500


def test_a_runner_that_lost_its_lease_sends_nothing_more(store, clock):
    buried(store, 5)
    operation = planned(store, clock)

    class Robbed(ScriptedSender):
        def resend(self, one, settled):
            super().resend(one, settled)
            now = replay.get(store, operation.operation_id)
            thief = ReplayClaims(store, operation.operation_id, "thief", lease=15, clock=clock)
            assert thief.take(LeaseState(operation.operation_id, now.owner, now.lease_until))
            eventually(lambda: "replay-lease" not in {thread.name for thread in threading.enumerate()})

    sender = Robbed()
    runner(store, sender, clock, lease=3).poll()

    assert len(sender.sent) == 1
    assert replay.get(store, operation.operation_id).owner == "thief"
    assert counts(replay.get(store, operation.operation_id)) == (0, 0, 0, 0)


def test_a_cancelled_operation_of_a_dead_runner_is_cleared_up_without_sending(store, clock):
    buried(store, 4)
    operation, _, (landed, absent) = claimed_by_a_dead_runner(store, clock)
    replay.cancel(store, operation.operation_id, **BY, clock=clock)
    assert not replay.get(store, operation.operation_id).ended
    sender = ScriptedSender()

    assert heir(store, sender, clock, probe=answering({landed: "found"})).poll()

    done = replay.get(store, operation.operation_id)
    assert sender.sent == []
    assert counts(done) == (0, 1, 0, 3)
    assert states(store)[absent] == "dead"


def test_a_cancelled_operation_of_a_dead_runner_is_cleared_up_though_there_is_something_to_wait_for(
    store, clock
):
    buried(store, 4)
    operation, _, (landed, _) = claimed_by_a_dead_runner(store, clock)
    replay.cancel(store, operation.operation_id, **BY, clock=clock)

    running = heir(store, ScriptedSender(), clock, quiet=16.2, probe=answering({landed: "found"}))
    done = running.run_one(operation.operation_id, 60)

    assert (done.ended, counts(done)) == (True, (0, 1, 0, 3))
    assert sorted(states(store).values()) == ["dead", "dead", "dead", "landed"]


def test_a_replay_that_waits_for_old_attempts_says_so_and_takes_it_back(store, clock):
    buried(store, 3, verdict="possibly_persisted", failed_at=clock())
    sender = ScriptedSender(hold=True)
    operation = planned(store, clock, inconclusive="send")
    running = runner(store, sender, clock, quiet=20.0, probe=answering({}))
    running.start()

    def said():
        return replay.get(store, operation.operation_id).message or ""

    eventually(lambda: re.match(r"Waiting up to \d+ s: an old request of the next records may", said()))
    assert sender.sent == []
    eventually(lambda: len(sender.sent) == 3)
    eventually(lambda: said() == "")
    sender.release()
    eventually(lambda: replay.get(store, operation.operation_id).ended)
    running.stop()
    assert said() == "Replayed 3 of 3"


def test_two_runners_at_once_share_nothing(store, clock):
    ids = buried(store, 40)
    operation = planned(store, clock)
    senders = [ScriptedSender(f"s{number}") for number in range(3)]
    threads = [
        threading.Thread(
            target=runner(store, sender, clock, in_flight=5).run_one, args=(operation.operation_id, 20)
        )
        for sender in senders
    ]

    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    sent = [one for sender in senders for one in sender.sent_ids]
    assert sorted(sent) == sorted(ids)
    assert replay.get(store, operation.operation_id).message == "Replayed 40 of 40"


# bad days


def test_outcomes_wait_in_memory_while_the_store_is_locked(store, clock, tmp_path, monkeypatch):
    from producer_core.errors import StoreLocked

    buried(store, 6)
    sender = ScriptedSender(hold=True)
    operation = planned(store, clock)
    running = runner(store, sender, clock, in_flight=3)
    running.start()
    eventually(lambda: len(sender.sent) == 3)

    away, borrow, refused = threading.Event(), store.borrow, threading.Event()

    def refusing(**choices):
        if away.is_set():
            refused.set()
            raise StoreLocked
        return borrow(**choices)

    monkeypatch.setattr(store, "borrow", refusing)
    away.set()
    sender.release()
    assert refused.wait(5)
    away.clear()

    eventually(lambda: replay.get(store, operation.operation_id).ended)
    running.stop()
    assert replay.get(store, operation.operation_id).message == "Replayed 6 of 6"
    assert len(sender.sent) == 6


def test_an_attempt_that_is_told_twice_is_counted_once(store, clock):
    ids = buried(store, 1)
    operation = planned(store, clock)
    claims = ReplayClaims(store, operation.operation_id, "me", lease=15, clock=clock)
    claims.take()
    claims.settle_and_claim([], want=1, busy=False)
    death = dead_letter(0, failed_at=6000.0, attempts=(Attempt(6000.0, "X", "x"),))
    outcome = RecordOutcome(ids[0], "failed", "x", death=FailedReplay.again(death))

    claims.settle_and_claim([outcome], want=0, busy=True)
    claims.settle_and_claim([outcome], want=0, busy=True)

    assert replay.get(store, operation.operation_id).failed_again == 1
    assert DeadLetters(store).get(ids[0]).replay_count == 1


def test_a_store_that_another_process_holds_is_waited_for(store, clock, monkeypatch):
    buried(store, 3)
    operation = planned(store, clock)
    running = runner(store, ScriptedSender(), clock)
    answers, look = iter([StoreLocked("held"), StoreLocked("held")]), running._candidates.ask

    def waiting(cluster, operation_id):
        if (error := next(answers, None)) is not None:
            raise error
        return look(cluster, operation_id)

    monkeypatch.setattr(running._candidates, "ask", waiting)

    assert running.run_one(operation.operation_id, 30).acknowledged == 3


def test_a_letter_that_may_be_on_a_cluster_nobody_knows_is_sent_only_where_one_says_so(store, clock):
    buried(store, 2, cluster_id="", verdict="possibly_persisted")
    DeadLetters(store).add([dead_letter(number, cluster_id="", verdict="not_sent") for number in (7, 8)])

    asked = planned(store, clock)
    told = planned(store, clock, DeadLetterFilter(verdict="possibly_persisted"), to_cluster=CLUSTER)

    assert (asked.total, asked.skipped) == (4, 2)
    assert (told.total, told.skipped) == (2, 0)


@pytest.mark.parametrize("dead_letters", [10, 40])
def test_a_letter_that_was_in_many_replays_is_claimed_and_settled_in_the_next_one(store, clock, dead_letters):
    """An index's limit once hid its newest record behind the others: it was sent, and its outcome lost."""
    buried(store, dead_letters)
    for _ in range(11):
        before = planned(store, clock)
        replay.cancel(store, before.operation_id, **BY, clock=clock)
    operation = planned(store, clock)
    claims = ReplayClaims(store, operation.operation_id, "me", lease=15, clock=clock)
    assert claims.take()

    while claimed := claims.settle_and_claim([], want=10, busy=False).dead_letters:
        claims.settle_and_claim(
            [RecordOutcome(one.message_id, "acknowledged", None, 0, 1) for one in claimed], want=0, busy=True
        )

    assert replay.get(store, operation.operation_id).acknowledged == dead_letters
    assert DeadLetters(store).count(DeadLetterFilter(state="replayed")) == dead_letters


def test_the_store_is_asked_for_replays_only_when_somebody_wrote_to_it(store, clock, monkeypatch):
    buried(store, 1)
    passed, asked = FakeClock(), []
    ask = Store.rows
    monkeypatch.setattr(Store, "rows", lambda *known, **given: asked.append(known[1]) or ask(*known, **given))
    candidates = Candidates(store, by_spark=False, monotonic=passed)

    assert [candidates.of(CLUSTER), candidates.of(CLUSTER)] == [[], []]
    assert asked == ["replay_candidates"]

    elsewhere = Store.open(store.path, clock=clock)  # as another process has it
    operation = planned(elsewhere, clock)
    elsewhere.close()
    assert [held.operation_id for held, _ in candidates.of(CLUSTER)] == [operation.operation_id]

    del asked[:]
    assert candidates.of(CLUSTER) == candidates.of(CLUSTER) != candidates.of("another")
    assert asked == ["replay_candidates"]  # of the other cluster
    passed.forward(20)
    candidates.of("another")
    assert asked == ["replay_candidates"] * 2


def test_where_the_store_cannot_be_had_the_next_look_asks_again(store, clock):
    candidates = Candidates(store, by_spark=False)
    away = store.path.rename(store.path.with_suffix(".away"))
    store.path.mkdir()
    for _ in range(2):
        with pytest.raises(StoreError):
            candidates.of(CLUSTER)
    store.path.rmdir()
    away.rename(store.path)
    assert candidates.of(CLUSTER) == []


def test_what_is_given_back_is_claimed_again_in_another_transaction(store, clock):
    """In the same one its row was written anew by a trigger, and DuckDB damaged the file when it was claimed again."""
    buried(store, 3)
    claims = ReplayClaims(store, planned(store, clock).operation_id, "me", lease=15, clock=clock)
    claims.take()
    first, second, _ = claims.settle_and_claim([], want=3, busy=False).dead_letters

    given_back = [
        RecordOutcome(first.message_id, "acknowledged"),
        RecordOutcome(second.message_id, "pending"),
    ]
    assert claims.settle_and_claim(given_back, want=3, busy=True).dead_letters == ()
    assert claims.settle_and_claim([], want=3, busy=True).dead_letters == (second,)
