"""A replay that looks ahead and goes on by itself: what it stops for, what waits for what, and when it began and ends."""

from __future__ import annotations

import time

import pytest

from producer_core import replay
from producer_core.alerts import AlertChange, AlertLog, alert
from producer_core.dlq import DeadLetterFilter, DeadLetters
from producer_core.replay import preflight
from producer_core.replay.active_cause import is_over
from producer_core.replay.broker_check import BrokerCheck, TopicCheck
from producer_core.replay.claims import ReplayClaims
from producer_core.replay.dry_run import dry_run
from producer_core.replay.operation import end_abandoned
from producer_core.store import Batch, StatisticsRow, Store
from tests.factories import replay_runner
from tests.fixtures.replays import FakeClock, ScriptedSender, alive, answering, buried, dead_letter
from tests.support import eventually

ALL = DeadLetterFilter()
BY = {"who": "ann", "origin": "python"}
CLUSTER = "embedded-1"
"""Of which everybody knows that it has no transactions, so nobody is asked."""


@pytest.fixture
def clock():
    return FakeClock()


@pytest.fixture
def store(tmp_path, clock):
    with_store = Store.open(tmp_path / "store.duckdb", clock=clock)
    yield with_store
    with_store.close()


@pytest.fixture
def sees(monkeypatch):
    """What a look ahead finds, as the test says; by default that nothing is in the way."""

    def found(flags=None, *, stopped=False, **changes):
        known = {
            "topic": "orders", "records": 3, "bytes": 9, "partitions": 4, "max_message_bytes": 1000,
            "cleanup_policy": "delete", "too_large": 0, "newer_keys": 0, "looked_at": 7, "complete": True,
            "text": "No problem found on orders.",
        }  # fmt: skip
        answer = BrokerCheck((TopicCheck(**{**known, **changes}),), 5000.0, stopped)
        monkeypatch.setattr(preflight, "check", lambda *_, **__: (answer, flags or {}))

    found()
    return found


def sender(**choices):
    made = ScriptedSender(**choices)
    made.cluster_id = CLUSTER
    return made


def runner(store, sender, clock, **choices):
    given = {
        "interval": 0.01, "poll_interval": 0.01, "monotonic": clock, "quiet": 0.0, "probe": answering({}),
        "client": {"acks": "all"},
    }  # fmt: skip
    return replay_runner(store, sender, clock=clock, **{**given, **choices})


def clicked(store, clock, selection=ALL, **choices):
    asked = {"check_first": True, "go_by_itself": True, **choices}
    return replay.plan(store, selection, **BY, can_run=CLUSTER, clock=clock, **asked).operation_id


def test_where_nothing_is_to_be_asked_it_goes_on_by_itself(store, clock, sees):
    buried(store, 3, cluster_id=CLUSTER)
    one, sends = clicked(store, clock), sender()

    assert replay.get(store, one).state == "checking"
    done = runner(store, sends, clock).run_one(one, 60)

    assert (done.state, done.acknowledged, len(sends.sent)) == ("done", 3, 3)
    assert "No problem found on orders" in done.checked


@pytest.mark.parametrize(
    "found",
    [
        {"newer_keys": 1},
        {"newer_keys": 1, "cleanup_policy": "compact"},
        {"too_large": 1},
        {"partitions": None},
        {"lost_partitions": 1},
        {"complete": False},
        {"stopped": True},
    ],
)
def test_where_something_is_to_be_asked_nothing_is_sent_before_a_person_said_so(store, clock, sees, found):
    buried(store, 3, cluster_id=CLUSTER)
    sees(**found)
    one, sends = clicked(store, clock), sender()

    waits = runner(store, sends, clock).run_one(one, 60)

    assert (waits.state, waits.owner, sends.sent) == ("ready", None, [])
    replay.go(store, one, **BY, newer="send")
    assert runner(store, sends, clock).run_one(one, 60).state == "done"


def test_letters_in_doubt_are_asked_about_too(store, clock, sees):
    DeadLetters(store).add([dead_letter(1, cluster_id=CLUSTER, verdict="possibly_persisted")])
    one, sends = clicked(store, clock), sender()

    assert runner(store, sends, clock).run_one(one, 60).state == "ready"
    assert sends.sent == []


def test_a_dry_run_never_goes_by_itself(store, clock, sees):
    buried(store, 3, cluster_id=CLUSTER)
    one, sends = clicked(store, clock, go_by_itself=False), sender()

    assert runner(store, sends, clock).run_one(one, 60).state == "ready"
    assert sends.sent == []


def test_a_runner_that_cannot_look_asks(store, clock):
    buried(store, 2, cluster_id=CLUSTER)
    one, sends = clicked(store, clock), sender()

    waits = runner(store, sends, clock, client=None).run_one(one, 60)

    assert waits.state == "ready"
    run = dry_run(store, ALL, operation=waits)
    assert not run.safe
    assert any("could not be checked" in said for said in run.sentences)


def test_looking_ahead_does_not_wait_for_a_replay_that_is_sent(store, clock, sees):
    buried(store, 2, cluster_id=CLUSTER)
    DeadLetters(store).add([dead_letter(9, cluster_id=CLUSTER, topic="late")])
    sends = sender(hold=True)
    running = runner(store, sends, clock)
    first = replay.plan(
        store, DeadLetterFilter(topic="orders"), **BY, can_run=CLUSTER, clock=clock
    ).operation_id
    running.start()
    eventually(lambda: len(sends.sent) > 0)

    second = clicked(store, clock, DeadLetterFilter(topic="late"), go_by_itself=False)

    eventually(lambda: replay.get(store, second).state == "ready")
    assert replay.get(store, first).state == "running"
    sends.release()
    eventually(lambda: replay.get(store, first).ended)
    running.stop()


def test_what_went_ahead_by_itself_waits_its_turn_to_be_sent(store, clock, sees):
    buried(store, 2, cluster_id=CLUSTER)
    sends = sender()
    running = runner(store, sends, clock)
    running.start()

    one = clicked(store, clock)

    eventually(lambda: replay.get(store, one).ended)
    running.stop()
    assert replay.get(store, one).acknowledged == 2


def test_what_waited_long_for_its_turn_is_looked_ahead_again_and_may_ask_then(store, clock, sees):
    buried(store, 3, cluster_id=CLUSTER)
    one, sends = clicked(store, clock), sender()
    running = runner(store, sends, clock)
    running.poll(preflight=True)
    assert replay.get(store, one).state == "planned"
    sees(newer_keys=1)
    clock.forward(301)

    waits = running.run_one(one, 60)

    assert (waits.state, waits.started_at, sends.sent) == ("ready", None, [])


def test_who_decided_is_not_asked_again(store, clock, sees):
    buried(store, 3, cluster_id=CLUSTER)
    sees(newer_keys=1)
    one, sends = clicked(store, clock), sender()
    running = runner(store, sends, clock)
    running.run_one(one, 60)
    replay.go(store, one, **BY, newer="send", clock=clock)
    clock.forward(301)

    assert running.run_one(one, 60).acknowledged == 3


def test_a_plan_of_which_nobody_is_asked_never_stops_to_ask(store, clock, sees):
    buried(store, 3, cluster_id=CLUSTER)
    sees(newer_keys=1)
    one = replay.plan(store, ALL, **BY, can_run=CLUSTER, clock=clock).operation_id

    assert runner(store, sender(), clock).run_one(one, 60).acknowledged == 3


# when it began


def test_the_time_in_which_a_person_decided_is_not_its_own(store, clock, sees):
    buried(store, 2, cluster_id=CLUSTER)
    one = clicked(store, clock, go_by_itself=False)
    running = runner(store, sender(), clock)
    running.run_one(one, 60)
    clock.forward(3600)
    replay.go(store, one, **BY)
    begun = clock.now

    done = running.run_one(one, 60)

    assert done.started_at == begun


def test_one_that_was_looked_ahead_by_an_older_version_begins_when_it_goes(store, clock, sees):
    buried(store, 2, cluster_id=CLUSTER)
    one = clicked(store, clock, go_by_itself=False)
    runner(store, sender(), clock).run_one(one, 60)
    with store.borrow(write=True) as connection:
        connection.execute("UPDATE operations SET started_at = 1.0")

    replay.go(store, one, **BY)

    assert replay.get(store, one).started_at is None


# its end


def abandoned(store, clock, *, claim):
    """A replay that was cancelled while a runner had it, which died right after."""
    operation = replay.plan(store, ALL, **BY, can_run=CLUSTER, clock=clock)
    claims = ReplayClaims(store, operation.operation_id, "dead/1", lease=15.0, clock=clock)
    assert claims.take()
    if claim:
        claims.settle_and_claim([], want=2, busy=False)
    replay.cancel(store, operation.operation_id, **BY, clock=clock)
    assert not replay.get(store, operation.operation_id).ended
    return operation.operation_id


def test_one_cancelled_before_its_last_runner_died_ends_when_nobody_holds_it(store, clock):
    buried(store, 3, cluster_id=CLUSTER)
    one = abandoned(store, clock, claim=False)

    assert end_abandoned(store, clock.now) == []
    clock.forward(16)
    (ended,) = end_abandoned(store, clock.now)

    assert (ended.operation_id, ended.state, ended.ended) == (one, "cancelled", True)
    assert DeadLetters(store).count(ALL) == 3
    assert end_abandoned(store, clock.now) == []


def test_what_its_dead_runner_had_claimed_is_inconclusive_once_nobody_can_look(store, clock):
    buried(store, 3, cluster_id=CLUSTER)
    one = abandoned(store, clock, claim=True)
    clock.forward(16)
    alive(store, clock.now, cluster=CLUSTER)
    assert end_abandoned(store, clock.now) == []  # who is alive looks for them on the topic

    clock.forward(61)
    (ended,) = end_abandoned(store, clock.now)

    assert ended.ended
    assert DeadLetters(store).count(DeadLetterFilter(verdict="inconclusive")) == 2
    assert replay.get(store, one).skipped == 3


def test_any_runner_ends_it_whatever_its_cluster(store, clock):
    buried(store, 1, cluster_id=CLUSTER)
    one = abandoned(store, clock, claim=False)
    clock.forward(100)
    elsewhere = ScriptedSender()
    running = runner(store, elsewhere, clock)

    running.start()
    eventually(lambda: replay.get(store, one).ended)
    running.stop()


def test_one_that_is_cancelled_while_it_is_looked_ahead_ends_with_the_look(store, clock, monkeypatch, sees):
    buried(store, 1, cluster_id=CLUSTER)
    one = clicked(store, clock)
    given = preflight.check(None, None)

    def cancelled_meanwhile(*_, **__):
        replay.cancel(store, one, **BY, clock=clock)
        return given

    monkeypatch.setattr(preflight, "check", cancelled_meanwhile)
    runner(store, sender(), clock).poll()

    assert replay.get(store, one).ended


# one truth


def test_the_dry_run_and_the_replay_say_the_same_of_how_it_is_delivered(store, clock, sees):
    buried(store, 3, cluster_id=CLUSTER)
    why = "because the embedded broker has no fencing and no read_committed"
    before = dry_run(store, ALL)
    assert any(f"Sent at least once, {why}" in said for said in before.sentences)
    one = clicked(store, clock, go_by_itself=False)
    running = runner(store, sender(), clock)
    waits = running.run_one(one, 60)

    run = dry_run(store, ALL, operation=waits)

    assert any(f"Sent at least once, {why}" in said for said in run.sentences)
    assert not any("exactly once" in said.lower() for said in run.sentences)
    replay.go(store, one, **BY)
    assert running.run_one(one, 60).delivery == "at_least_once"


# a cause that is there still


def test_a_group_that_still_grows_is_said_in_the_dry_run(store):
    now = time.time()
    DeadLetters(store).add([dead_letter(1, failed_at=now - 4000), dead_letter(2, failed_at=now - 30)])
    DeadLetters(store).add([dead_letter(3, failed_at=now - 3000, topic="payments")])

    (said,) = [one for one in dry_run(store, ALL).sentences if "The cause" in one]
    assert said.startswith("The cause may still be active: 1 new dead letter within 2 min, the last 3")
    assert "(POLICY_VIOLATION)" in said and "may fail the same way." in said
    assert (
        "after 10 more messages are delivered on orders without a new dead letter, or after 2 min without one ("
        in said
    )
    assert not dry_run(store, DeadLetterFilter(topic="payments")).active


def test_a_cause_is_gone_once_enough_was_delivered_since(store):
    """One of four failed, so a row of twelve deliveries without a failure shows that it is over."""
    now = float(int(time.time()))
    DeadLetters(store).add([dead_letter(number, failed_at=now - 30) for number in range(5)])
    burns = alert(
        "error_budget_fast",
        "orders",
        now - 60,
        value=0.2,
        threshold=0.01,
        long="1 h",
        factor="2",
        objective="99.9 %",
    )
    AlertLog(store).record([AlertChange("fired", burns)])

    def delivered(batch, at, count):
        store.append(
            Batch(
                "p",
                batch,
                (StatisticsRow(int(at), "c", "p", "orders", count, count, 0, 0, 0, 0, 0, 0, 10, 0.1),),
            )
        )
        return dry_run(store, ALL).active

    assert "1 more" not in delivered(0, now - 60, 15)
    said = delivered(1, now - 20, 11)
    assert "1 more message is delivered on orders" in said and "an alert is firing" in said
    assert delivered(2, now - 10, 1) == ""


@pytest.mark.parametrize(
    ("silent", "died", "before", "since", "over"),
    [
        (36, 1, 9, 30, True),
        (36, 1, 9, 29, False),
        (5, 1, 9, 900, False),
        (36, 9, 0, 9, False),
        (36, 9, 0, 10, True),
    ],
)
def test_a_fault_is_over_by_the_row_of_deliveries_that_it_would_have_broken(
    silent, died, before, since, over
):
    assert is_over(silent, died=died, before=before, since=since) is over


def test_an_alert_of_their_topic_that_fires_is_said(store):
    buried(store, 2)
    assert not dry_run(store, ALL).active
    found = alert("dead_letters_growing", "orders", 5000.0, value=2000.0, window="15 min")
    AlertLog(store).record([AlertChange("fired", found)])

    assert (
        'an alert is firing: "orders: 2,000 dead letters of the last 15 min are pending'
        in dry_run(store, ALL).active
    )
    assert not dry_run(store, DeadLetterFilter(topic="payments")).active


def test_an_alert_that_letters_wait_says_nothing_of_their_cause(store):
    buried(store, 2)
    found = alert("dead_letters_old", "orders", 5000.0, says="a dead letter waits for 2 d")
    AlertLog(store).record([AlertChange("fired", found)])

    assert not dry_run(store, ALL).active
