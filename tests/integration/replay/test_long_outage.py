"""Test replays under long or severe faults, with real processes and three real brokers; kcat counts the records."""

from __future__ import annotations

import contextlib
import signal
import threading
from collections import Counter

import pytest
from confluent_kafka import TopicPartition
from confluent_kafka.admin import AdminClient, AlterConfigOpType, ConfigEntry, ConfigResource

from producer_core import replay
from producer_core.dlq import DeadLetterFilter, DeadLetters
from producer_core.store import Store
from tests.conftest import needs
from tests.scenarios.faults.run import Media
from tests.scenarios.replays.dead_letters import message_id, number_of
from tests.scenarios.replays.invariants import check
from tests.scenarios.replays.stage import LEASE, Stage
from tests.support import eventually

pytestmark = pytest.mark.kafka3

COUNT = 600


@pytest.fixture(scope="module")
def media():
    needs("kcat", "kcat")
    needs("java", "openjdk-17-jre-headless")
    with Media() as started:
        yield started


@pytest.fixture
def stage(media, tmp_path):
    """Create dead letters, topics and a store. The replay is slow enough that faults occur while it runs."""
    one = Stage(
        media.get("kafka3"), name="day", delivery="exactly_once", seed=1, dead_letters=COUNT, long=False,
        folder=tmp_path,
    )  # fmt: skip
    one.add_dead_letters()
    yield one
    one.end()


def checked_evidence(stage):
    """Check the invariants over the store and the log, and return the evidence."""
    found = stage.evidence()
    wrong = [f"{one.invariant}: {one.text}" for one in check(found)] + stage.problems
    assert not wrong, (wrong, found.operation.message, stage.errors())
    return found


def begin(stage, processes=1, *, stop_percent=None, inconclusive="send", **settings):
    stage.plan(rate=150, stop_percent=stop_percent, inconclusive=inconclusive)
    for _ in range(processes):
        stage.replay(**settings)
    stage.until(lambda: stage.settled() > 100)
    assert not stage.ended()


def text_of(stage, state):
    """Return the number of the operation's records in this state by text, which gives the reason."""
    sql = (
        "SELECT text, count(*) AS n FROM operation_records WHERE operation_id = ? AND state = ? GROUP BY text"
    )
    return {row["text"]: row["n"] for row in stage.rows(sql, [stage.operation_id, state])}


def delete_records(stage):
    """Delete all current records, as retention does."""
    admin = AdminClient({"bootstrap.servers": stage.medium.direct, "log_level": 0})
    everything = [TopicPartition(one.name, n, -1) for one in stage.topics for n in range(one.partitions)]
    for future in admin.delete_records(everything).values():
        future.result(30)


# the store


def test_a_replay_survives_a_store_locked_past_the_lease(stage):
    begin(stage, 2)

    locked = Store.open(stage.store.path)
    with locked.borrow(write=True, timeout=60):
        threading.Event().wait(2 * LEASE)
    locked.close()
    stage.finish()

    assert checked_evidence(stage).operation.left == 0


def test_a_replay_continues_after_the_disk_was_full(stage):
    begin(stage)
    first = stage.children[0]
    first.signal(signal.SIGUSR1)
    before = eventually(lambda: settled_if_unchanged(stage), 30, every=0)
    first.signal(signal.SIGUSR2)
    stage.until(lambda: stage.settled() > before)
    stage.finish()

    assert checked_evidence(stage).operation.left == 0


def settled_if_unchanged(stage):
    """Return the number of settled records if it does not change for three seconds, else None."""
    before = stage.settled()
    threading.Event().wait(3)
    return before if stage.settled() == before else None


# processes


def test_a_record_committed_before_a_kill_is_found_and_not_sent_twice(stage):
    begin(stage)

    stage.kill(("EndTxn", True))
    stage.replay()
    stage.finish()

    checked_evidence(stage)
    assert any("exited before reporting it" in (text or "") for text in text_of(stage, "landed"))


def test_a_killed_owner_is_replaced_after_the_clock_stepped_back_an_hour(stage, tmp_path):
    clock = tmp_path / "clock"
    begin(stage, 2, clock=str(clock))

    clock.write_text("-3600")
    stage.until(lambda: stage.settled() > 200)
    stage.kill()
    stage.finish()

    assert checked_evidence(stage).operation.left == 0


def test_a_live_owner_keeps_its_lease_when_the_clock_steps_forward_an_hour(stage, tmp_path):
    clock = tmp_path / "clock"
    begin(stage, 2, clock=str(clock))
    owner = stage.operation().owner

    clock.write_text("3600")
    stage.until(lambda: stage.settled() > 400)
    assert stage.operation().owner in (owner, None)
    stage.finish()

    checked_evidence(stage)


# the topics


def test_a_topic_deleted_before_the_replay_is_skipped_and_reported(stage):
    gone = stage.topics.pop()
    stage.medium.cluster.delete_topic(gone.name)
    stage.plan(rate=None)
    stage.replay()
    stage.finish()

    found = stage.evidence()
    ours = [n for n, row in found.states.items() if row["topic"] == gone.name]
    assert found.operation.state == "done"
    assert {found.state[n] for n in ours} == {"dead"}
    assert Counter(n for n in found.counts.elements()) == Counter(set(found.states) - set(ours))
    assert all("no longer exists" in text for text in text_of(stage, "skipped"))


def test_a_topic_deleted_during_the_replay_does_not_affect_other_topics(stage):
    gone = stage.topics.pop()
    begin(stage, config={"transaction.timeout.ms": 12_000})
    stage.medium.cluster.delete_topic(gone.name)
    stage.finish(300)

    found = stage.evidence()
    others = {n for n, row in found.states.items() if row["topic"] != gone.name}
    assert Counter(found.counts) == Counter(others)
    assert {found.state[n] for n in others} == {"replayed", "landed"}
    assert stage.operation().left == 0


def test_records_above_a_lowered_size_limit_fail_and_all_others_are_delivered(stage):
    admin = AdminClient({"bootstrap.servers": stage.medium.direct, "log_level": 0})
    smaller = ConfigEntry("max.message.bytes", "2000", incremental_operation=AlterConfigOpType.SET)
    for topic in stage.topics:
        resource = ConfigResource(ConfigResource.Type.TOPIC, topic.name, incremental_configs=[smaller])
        for future in admin.incremental_alter_configs([resource]).values():
            future.result(30)
    stage.plan(rate=None, stop_percent=100.0, canary=0)
    stage.replay(config={"compression.type": "none"})
    stage.finish(300)

    found = checked_evidence(stage)
    large = {n for n, one in enumerate(stage.stored.dead_letters) if len(one.value or b"") > 2000}
    assert {n for n, state in found.state.items() if state == "dead"} == large - stage.stored.on_topic
    assert found.operation.failed_again == len(large - stage.stored.on_topic) > 0


def test_records_removed_by_retention_before_they_were_settled_are_not_sent_again(stage):
    begin(stage, inconclusive=None)
    stage.kill(("EndTxn", True))
    claimed = {
        row["message_id"]
        for row in stage.rows("SELECT message_id FROM operation_records WHERE state = 'claimed'")
    }
    seen = stage.evidence_now()
    delete_records(stage)
    stage.replay()
    stage.finish()

    after = stage.evidence_now()
    twice = [n for n in after.counts if seen.counts[n]]
    assert not twice, "consumers could already read these records"
    listed = stage.listed()
    assert {one for one in claimed if seen.counts[number_of(one)]} <= listed


def test_possibly_persisted_records_are_not_resent_silently_after_retention(stage):
    delete_records(stage)
    stage.plan(rate=None, inconclusive=None)
    stage.replay()
    stage.finish()

    found = stage.evidence_now()
    assert not [n for n in stage.stored.on_topic if found.counts[n]], (
        "consumers could already read these records"
    )
    assert {message_id(n) for n in stage.stored.on_topic} <= stage.listed()


# operators


def test_the_first_of_a_concurrent_archive_and_replay_wins_for_each_record(stage):
    begin(stage)

    late = DeadLetterFilter(ids=tuple(message_id(n) for n in range(COUNT - 100, COUNT)))
    early = DeadLetterFilter(ids=tuple(message_id(n) for n in range(20)))
    dead = DeadLetters(stage.store)
    assert dead.archive(late, who="bea", origin="python").count == 100
    assert dead.archive(early, who="bea", origin="python").count == 0
    stage.finish()

    found = stage.evidence(5)
    archived = set(range(COUNT - 100, COUNT))
    assert {n for n, state in found.state.items() if state == "archived"} == archived
    assert not [n for n in archived - stage.stored.on_topic if found.counts[n]]
    assert not found.duplicated()
    assert text_of(stage, "skipped") == {"archived after the replay was planned": 100}


def test_a_cancelled_replay_leaves_the_rest_dead_and_sends_no_record_partially(stage):
    begin(stage, 2)
    replay.cancel(stage.store, stage.operation_id, who="bea", origin="python")
    stage.finish()

    found = checked_evidence(stage)
    assert found.operation.state == "cancelled"
    assert found.operation.skipped > 0


def test_a_paused_replay_whose_owner_was_killed_continues_after_resume(stage):
    begin(stage)
    replay.pause(stage.store, stage.operation_id, who="bea", origin="python")
    stage.kills += stage.children[0].kill()
    stage.replay()
    with contextlib.suppress(AssertionError):
        eventually(lambda: stage.operation().owner is None, 3 * LEASE)
    replay.resume(stage.store, stage.operation_id, who="bea", origin="python")
    stage.finish()

    assert checked_evidence(stage).operation.left == 0
