"""The dry run: what a replay would do, counted and reported before anything is sent."""

from __future__ import annotations

import json
import time

import pytest

from producer_core import replay
from producer_core.dashboard.wording import dry_run as told
from producer_core.dlq import DeadLetterFilter, DeadLetters
from producer_core.replay.broker_check import BrokerCheck, TopicCheck
from producer_core.replay.dry_run import dry_run
from tests.fixtures.replays import (
    ALL,
    BY,
    CLUSTER,
    EMBEDDED,
    add_dead_letters,
    dead_letter,
    embedded_runner,
    embedded_sender,
    plan_one_click,
)


def seen(topic="orders", **changes) -> TopicCheck:
    known = {
        "topic": topic, "records": 3, "bytes": 9, "partitions": 4, "max_message_bytes": 1000, "cleanup_policy": "delete",
        "too_large": 0, "newer_keys": 0, "looked_at": 7, "complete": True, "text": f"No problem found on {topic}.",
    }  # fmt: skip
    return TopicCheck(**{**known, **changes})


def checked(*topics: TopicCheck) -> BrokerCheck:
    return BrokerCheck(topics, 5000.0)


def test_the_dry_run_counts_by_topic_verdict_and_partition_and_estimates_the_duration(store):
    add_dead_letters(store, 4)
    dead_letters = [
        dead_letter(number, topic="payments", partition=2, verdict="not_sent") for number in range(10, 16)
    ]
    DeadLetters(store).add(dead_letters)

    run = dry_run(store, ALL, rate=5.0)

    assert (run.total, run.seconds) == (10, 2.0)
    assert run.by_topic == {"payments": 6, "orders": 4}
    assert run.by_verdict == {"not_sent": 6, "rejected": 4}
    assert [tuple(one) for one in run.by_partition] == [("orders", None, 4), ("payments", 2, 6)]
    assert run.bytes == 4 * len(b"kv1") + 6 * len(b"kv10")
    assert "No broker has any of these records, so earlier attempts cannot cause duplicates." in run.sentences


def test_without_a_rate_the_duration_is_unknown(store):
    add_dead_letters(store, 1)

    assert dry_run(store, ALL).seconds is None


def test_a_limit_counts_the_oldest_replayable_dead_letters(store):
    add_dead_letters(store, 5, verdict="possibly_persisted")
    DeadLetters(store).add(
        [dead_letter(9, topic="payments", accepted_at=1.0), dead_letter(8, replayable=False, accepted_at=0.5)]
    )

    run = dry_run(store, ALL, limit=2)

    assert run.by_topic == {"orders": 1, "payments": 1}
    assert run.not_replayable == 1


def test_the_dry_run_reports_doubtful_records_and_how_they_are_handled(store):
    add_dead_letters(store, 3, verdict="possibly_persisted")
    DeadLetters(store).add([dead_letter(7, verdict="inconclusive")])

    doubtful = dry_run(store, ALL).doubtful

    assert (doubtful.count, doubtful.possibly_persisted, doubtful.inconclusive) == (4, 3, 1)
    assert "3 records may already be on their topics: the replay searches for them first." in doubtful.text
    assert "1 record was not found by an earlier search" in doubtful.text


def test_the_dry_run_reports_skipped_records_with_their_reasons(store):
    add_dead_letters(store, 2)
    DeadLetters(store).add(
        [
            dead_letter(5, replayable=False),
            dead_letter(6, quarantined=True),
            dead_letter(7, cluster_id="elsewhere"),
        ]
    )

    run = dry_run(store, ALL)

    assert (run.total, run.not_replayable, run.quarantined, run.other_cluster) == (2, 1, 1, 1)
    assert "1 record is left out: quarantined after repeated failures." in run.sentences
    assert dry_run(store, ALL, allow_quarantined=True, to_cluster="elsewhere").total == 4


def test_the_dry_run_reports_records_that_may_be_on_an_unknown_cluster(store):
    add_dead_letters(store, 2)
    DeadLetters(store).add([dead_letter(7, cluster_id="", verdict="possibly_persisted")])

    run = dry_run(store, ALL)

    assert (run.total, run.unknown_cluster, run.to_dict()["unknown_cluster"]) == (2, 1, 1)
    assert (
        "1 record is left out: possibly on a topic of an unknown cluster. To send it, specify the cluster: "
        "`--to CLUSTER`, or to_cluster= in Python."
    ) in run.sentences
    assert dry_run(store, ALL, to_cluster=CLUSTER).total == 3


def test_the_most_severe_finding_comes_first(store):
    add_dead_letters(store, 3, verdict="possibly_persisted")
    found = checked(
        seen(too_large=1),
        seen("gone", partitions=None, text="There is no topic gone."),
        seen("state", cleanup_policy="compact", newer_keys=2),
    )

    said = dry_run(store, ALL, check=found, newer="send").sentences

    assert "2 records of state will permanently replace a newer record with the same key" in said[0]
    assert said[1] == "3 records cannot be sent: the topic gone does not exist. They remain dead letters."
    assert said[2].startswith(
        "1 record of orders will probably fail again: it is larger than the topic allows (1,000 bytes)"
    )
    assert "may already be on their topic" in said[3]


@pytest.mark.parametrize(
    ("policy", "why"),
    [
        (None, "The cleanup policy of state is unknown"),
        ("compact", "state is compacted: an old value sent now permanently replaces the newer one."),
        ("delete", "state is not compacted, so no record is replaced."),
    ],
)
def test_the_reason_for_skipping_old_values_depends_on_the_cleanup_policy(store, policy, why):
    add_dead_letters(store, 3)
    run = dry_run(store, ALL, check=checked(seen("state", cleanup_policy=policy, newer_keys=2)), newer="skip")
    assert told.newer_reason(run).startswith(why)
    assert "they remain dead letters and can be sent later" in told.newer_reason(run)
    unknown = "its cleanup policy is unknown: on a compacted topic the old value would permanently replace it"
    for newer in ("skip", "send"):
        said = dry_run(
            store, ALL, check=checked(seen("state", cleanup_policy=policy, newer_keys=2)), newer=newer
        ).sentences
        assert (unknown in " ".join(said)) == (policy is None)


def test_the_counts_of_a_dry_run_add_up_and_later_dead_letters_are_counted_separately():
    assert told.frozen(200, "22:31:05", 38).endswith("38 more have failed since and are not included.")
    assert told.frozen(1, "22:31:05", 0) == "1 record selected at 22:31:05."


@pytest.mark.parametrize(
    ("newer", "policy", "skipped", "words"),
    [
        ("auto", "compact,delete", 2, "will be skipped"),
        ("auto", None, 2, "its cleanup policy is unknown"),
        ("auto", "delete", 0, "You can skip them."),
        ("skip", "delete", 2, "will be skipped"),
        ("send", "compact", 0, "will permanently replace a newer record with the same key"),
    ],
)
def test_newer_keys_are_skipped_or_sent_according_to_the_newer_option(store, newer, policy, skipped, words):
    add_dead_letters(store, 3)

    run = dry_run(store, ALL, check=checked(seen(cleanup_policy=policy, newer_keys=2)), newer=newer)

    assert (run.skipped_newer, run.newer_keys) == (skipped, 2)
    assert any(words in sentence for sentence in run.sentences)


def test_each_selected_record_is_sent_skipped_or_in_doubt(store, clock, sees):
    add_dead_letters(store, 3, cluster_id=EMBEDDED)
    doubtful = [dead_letter(number, cluster_id=EMBEDDED, verdict="possibly_persisted") for number in (5, 6)]
    never_sent = dead_letter(7, cluster_id=EMBEDDED, replayable=False)
    DeadLetters(store).add([*doubtful, never_sent])
    newer = {dead_letter(number).message_id: "newer_key" for number in (0, 5)}
    sees(newer, newer_keys=2)
    one = plan_one_click(store, clock)
    operation = embedded_runner(store, embedded_sender(), clock).run_one(one, 60)

    skips = dry_run(store, ALL, operation=operation, newer="skip")
    sends = dry_run(store, ALL, operation=operation, newer="send")

    assert (skips.to_send, skips.to_skip, skips.in_doubt) == (2, 3, 1)
    assert (sends.to_send, sends.to_skip, sends.in_doubt) == (3, 1, 2)
    assert told.numbers(skips) == [
        ("Send", "2", "no broker has them"),
        ("Skip", "3", "2 newer record with the same key, 1 malformed, not edited"),
        ("In doubt", "1", "searched on their topics; kept if not found"),
    ]


def test_records_of_a_missing_topic_are_skipped_with_their_doubts(store):
    add_dead_letters(store, 3, verdict="possibly_persisted")

    run = dry_run(store, ALL, check=checked(seen(partitions=None)))

    assert (run.to_send, run.to_skip, run.in_doubt) == (0, 3, 0)
    assert told.warning(run) == run.sentences[0]


def test_a_finding_that_no_choice_covers_is_shown_beside_the_numbers(store):
    add_dead_letters(store, 3)

    def warning(newer="skip", **changes):
        return told.warning(dry_run(store, ALL, check=checked(seen(**changes)), newer=newer))

    assert warning() == warning(newer_keys=2, cleanup_policy="compact") == ""
    assert "permanently replace" in warning("send", newer_keys=2, cleanup_policy="compact")
    assert "larger than the topic allows" in warning(too_large=1)
    assert warning(complete=False) == "The check of the topics is incomplete. Reasons shows what is unknown."
    assert told.warning(dry_run(store, ALL)) == ""


def test_an_incomplete_check_is_reported_and_not_safe(store):
    add_dead_letters(store, 3)
    text = "Only 7 of about 90 records written since noon were scanned for keys with newer records: the time for it was up."

    run = dry_run(store, ALL, check=checked(seen(complete=False, text=text)))

    assert f"orders: {text}" in run.sentences
    assert not run.safe
    assert dry_run(store, ALL, check=checked(seen())).safe


def test_the_dry_run_reports_that_the_topics_are_not_checked_yet(store):
    add_dead_letters(store, 1)

    run = dry_run(store, ALL)

    assert run.check is None
    assert not run.safe
    assert any(sentence.startswith("The topics have not been checked yet") for sentence in run.sentences)


def test_an_empty_selection_is_reported_in_one_sentence(store):
    assert dry_run(store, ALL).sentences == ("Nothing to replay.",)


def test_the_dry_run_of_an_operation_uses_its_frozen_records_and_the_preflight_result(store):
    add_dead_letters(store, 3)
    planned = replay.plan(store, ALL, **BY, can_run=CLUSTER, check_first=True, newer="skip", rate=1.0)
    found = checked(seen(newer_keys=1))
    store.execute(
        "replay_checked", operation=planned.operation_id, checked=found.to_json(), now=5000.0, message=None
    )
    DeadLetters(store).add([dead_letter(20)])

    run = dry_run(store, ALL, operation=replay.get(store, planned.operation_id))

    assert (run.total, run.seconds, run.check, run.skipped_newer) == (3, 3.0, found, 1)


def test_the_dry_run_warns_that_read_uncommitted_consumers_may_see_aborted_attempts(store):
    add_dead_letters(store, 1)

    assert any(
        "not use read_committed may see copies" in sentence for sentence in dry_run(store, ALL).sentences
    )


def test_records_archived_after_the_plan_are_skipped_and_reported(store):
    ids = add_dead_letters(store, 3)
    planned = replay.plan(store, ALL, **BY, can_run=CLUSTER, check_first=True)
    DeadLetters(store).archive(DeadLetterFilter(ids=(ids[0],)), **BY)

    run = dry_run(store, ALL, operation=planned)

    assert (run.total, run.changed) == (2, 1)
    assert "1 record is left out: archived or replayed after this replay was planned." in run.sentences


def test_a_check_round_trips_through_json():
    found = checked(seen(), seen("gone", partitions=None))

    assert BrokerCheck.from_json(found.to_json()) == found
    newer_version = json.loads(found.to_json())
    newer_version["topics"][0]["unheard_of"] = 1
    assert BrokerCheck.from_json(json.dumps(newer_version)) == found


def test_the_dry_run_converts_to_a_json_serialisable_dict(store):
    add_dead_letters(store, 2)

    found = dry_run(store, ALL, check=checked(seen(too_large=1))).to_dict()

    assert json.loads(json.dumps(found))["by_partition"] == [
        {"topic": "orders", "partition": None, "records": 2}
    ]
    assert (found["too_large"], found["safe"]) == (1, False)


@pytest.mark.slow
def test_the_dry_run_and_the_replay_report_the_same_delivery_guarantee(store, clock, sees):
    add_dead_letters(store, 3, cluster_id=EMBEDDED)
    why = "because the embedded broker has no fencing and no read_committed"
    before = dry_run(store, ALL)
    assert any(f"Sent at least once, {why}" in said for said in before.sentences)
    one = plan_one_click(store, clock, go_by_itself=False)
    running = embedded_runner(store, embedded_sender(), clock)
    waits = running.run_one(one, 60)

    run = dry_run(store, ALL, operation=waits)

    assert any(f"Sent at least once, {why}" in said for said in run.sentences)
    assert not any("exactly once" in said.lower() for said in run.sentences)
    replay.go(store, one, **BY)
    assert running.run_one(one, 60).delivery == "at_least_once"


def test_the_dry_run_reports_a_group_that_is_still_growing(store):
    now = time.time()
    DeadLetters(store).add([dead_letter(1, failed_at=now - 4000), dead_letter(2, failed_at=now - 30)])
    DeadLetters(store).add([dead_letter(3, failed_at=now - 3000, topic="payments")])

    (said,) = [one for one in dry_run(store, ALL).sentences if "The cause" in one]
    assert said.startswith("The cause may still be active: 1 new dead letter 3")
    assert "(POLICY_VIOLATION)" in said and "may fail the same way." in said
    assert (
        "after 10 more messages are delivered to orders without a new dead letter, or after 2 min without one ("
        in said
    )
    assert not dry_run(store, DeadLetterFilter(topic="payments")).active
