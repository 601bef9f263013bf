"""The rules of a replay without a prompt (`dlq replay --yes`, `replay_dlq_messages`), and the texts of `dlq replay`."""

from __future__ import annotations

import json
import time

import pytest
from click.testing import CliRunner
from confluent_kafka import Producer

from producer_core import ReliableKafkaProducer, replay
from producer_core.brokers import embedded
from producer_core.cli import main
from producer_core.dlq import DeadLetterFilter, DeadLetters
from producer_core.replay.claims import ReplayClaims
from tests.fixtures.replays import CLUSTER, add_dead_letters, dead_letter, write_heartbeat

ALL = DeadLetterFilter()
BY = {"who": "ann", "origin": "python"}


@pytest.fixture(scope="module")
def broker():
    with embedded.start(brokers=1, topics={"orders": 1, "quiet": 1, "live": 1, "dead": 1}) as running:
        producer = Producer({"bootstrap.servers": running.bootstrap_servers, "linger.ms": 1})
        producer.produce("orders", b"newer", key=b"k")
        for number in range(3):
            producer.produce("live", b"order %d" % number, key=b"a")
            producer.produce("dead", b"order %d" % number, headers=[("dlq.original.topic", b"orders")])
        assert producer.flush(20) == 0
        yield running


@pytest.fixture
def may_compact(monkeypatch):
    """The cluster is not known to be an embedded broker, which keeps every record."""
    monkeypatch.setattr("producer_core.replay.preflight.never_compacts", lambda cluster_id: False)


def add_old_dead_letters(store, topic, count=2):
    now = time.time()
    dead_letters = [
        dead_letter(n, topic=topic, cluster_id="", accepted_at=now - 600 + n, failed_at=now - 500 + n)
        for n in range(count)
    ]
    DeadLetters(store).add(dead_letters)


def run(store, *words):
    return CliRunner().invoke(main, [*map(str, words), "--store", str(store.path)])


# without a prompt


@pytest.mark.slow
def test_yes_prints_the_preflight_findings_and_continues(store, broker, may_compact):
    add_old_dead_letters(store, "orders")

    done = run(store, "dlq", "replay", "--yes", "-b", broker.bootstrap_servers)

    assert done.exit_code == 1, done.output  # it is unknown whether the topic is compacted
    assert (
        "2 records of orders will be skipped: the topic has a newer record with the same key" in done.stderr
    )
    assert "its cleanup policy is unknown" in done.stderr
    assert "Continuing because of --yes." in done.stderr
    assert "Replayed 0 of 2; 2 skipped" in done.stdout


@pytest.mark.slow
def test_yes_with_newer_send_sends_old_values_to_topics_with_an_unknown_policy(store, broker, may_compact):
    add_old_dead_letters(store, "orders")

    done = run(store, "dlq", "replay", "--yes", "--newer", "send", "-b", broker.bootstrap_servers)

    assert done.exit_code == 0, done.output
    assert "2 records of orders have a newer record with the same key" in done.stderr
    assert "Replayed 2 of 2." in done.stdout


@pytest.mark.slow
def test_yes_with_newer_skip_keeps_old_values_dead_and_explains_how_to_send_them(store, broker):
    add_old_dead_letters(store, "orders")

    done = run(store, "dlq", "replay", "--yes", "--newer", "skip", "-b", broker.bootstrap_servers)

    assert done.exit_code == 1
    assert "2 skipped: the topic has a newer record with its key" in done.stdout
    assert "--newer" not in replay.list_operations(store)[0].message
    assert DeadLetters(store).count(ALL) == 2
    assert "replay them again with --newer send" in run(store, "replay", "status").output


@pytest.mark.slow
def test_yes_prints_no_note_without_findings(store, broker):
    add_old_dead_letters(store, "quiet")

    done = run(store, "dlq", "replay", "--yes", "-b", broker.bootstrap_servers)

    assert (done.exit_code, "Goes on" in done.stderr) == (0, False)
    assert "Replayed 2 of 2." in done.stdout


@pytest.mark.slow
def test_newer_keys_on_the_embedded_broker_need_no_decision_and_skip_nothing(store, broker):
    add_old_dead_letters(store, "orders")
    replay_them = ("dlq", "replay", "-b", broker.bootstrap_servers)

    dry_run, done = run(store, *replay_them, "--dry-run"), run(store, *replay_them, "--yes")

    assert (dry_run.exit_code, done.exit_code) == (0, 0), dry_run.output + done.output
    assert "a newer record" not in dry_run.output + done.output
    assert "Replayed 2 of 2." in done.stdout


@pytest.mark.slow
def test_the_python_api_skips_old_values_of_unknown_policy_topics_and_of_deleted_topics(
    store, broker, may_compact
):
    add_old_dead_letters(store, "orders")
    before = {"cluster_id": "", "accepted_at": time.time() - 60}
    DeadLetters(store).add([dead_letter(8, topic="quiet", **before), dead_letter(9, topic="gone", **before)])
    with ReliableKafkaProducer(broker.bootstrap_servers, store=store, run_replays=False) as producer:
        assert producer.replay_dlq_messages("quiet") == 1
        assert producer.replay_dlq_messages("orders") == 0
        assert producer.replay_dlq_messages("gone") == 0
    assert DeadLetters(store).count_by(ALL, "topic") == {"gone": 1, "orders": 2}
    assert "the topic no longer exists" in replay.list_operations(store)[0].message


@pytest.mark.slow
def test_without_yes_or_a_terminal_the_dry_run_is_printed_and_nothing_is_sent(store, broker, may_compact):
    add_old_dead_letters(store, "orders")

    refused = run(store, "dlq", "replay", "-b", broker.bootstrap_servers)

    assert (refused.exit_code, refused.stdout) == (2, "")
    assert "Dry run: 2 records" in refused.stderr
    assert (
        "2 records of orders will be skipped: the topic has a newer record with the same key"
        in refused.stderr
    )
    assert "Standard input is not a terminal; use --yes to confirm. Nothing was sent." in refused.stderr
    assert replay.list_operations(store) == []


@pytest.mark.parametrize(
    "options", [(), ("--yes",), ("--yes", "--no-wait"), ("-b", "127.0.0.1:1", "--yes")], ids=" ".join
)
@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"replayable": False}, "3 records are left out because they were never sent as messages."),
        ({"quarantined": True}, "3 records are left out: quarantined after repeated failures."),
    ],
    ids=["not replayable", "quarantined"],
)
def test_a_selection_without_a_replayable_record_says_why_and_exits_with_1(store, options, changes, reason):
    """Regression: the command asked whether to replay 0 dead letters of no topic, or for a process that can send."""
    DeadLetters(store).add([dead_letter(number, **changes) for number in range(3)])

    done = run(store, "dlq", "replay", "--topic", "orders", *options)

    assert (done.exit_code, done.stderr) == (1, "")
    assert done.stdout.startswith(f"Nothing to replay: {reason}")
    assert replay.list_operations(store) == []


def test_the_json_of_a_selection_without_a_replayable_record_has_the_reason(store):
    DeadLetters(store).add([dead_letter(1, replayable=False)])

    done = run(store, "dlq", "replay", "--json")

    assert done.exit_code == 1
    assert json.loads(done.stdout)["message"].startswith("Nothing to replay: 1 record is left out because")


# words


def test_the_help_has_one_default_for_each_option():
    text = " ".join(CliRunner().invoke(main, ["dlq", "replay", "--help"]).output.split())

    assert "default localhost" not in text
    assert "default: a live producer sends" in text
    assert "Default: ask; auto with --yes." in text
    assert "(auto, the default)" not in text


def planned(store):
    add_dead_letters(store, 3)
    return replay.plan(store, ALL, **BY, can_run=CLUSTER).operation_id


@pytest.mark.slow
def test_resume_reports_that_it_waits_for_the_current_lease_owner(store):
    one = planned(store)
    write_heartbeat(store, time.time() + 60)
    assert ReplayClaims(store, one, "somebody/1", lease=15.0, clock=time.time).take()
    run(store, "replay", "pause", one)

    said = run(store, "replay", "resume", one).output

    assert said.startswith("Waiting up to 1")
    assert "Goes on" not in said


@pytest.mark.slow
def test_resume_reports_which_runner_continues_or_that_none_is_available(store):
    one = planned(store)
    run(store, "replay", "pause", one)
    assert run(store, "replay", "resume", one).output.startswith("Waiting for a runner: replay")
    run(store, "replay", "pause", one)
    write_heartbeat(store, time.time() + 60)

    assert "A live producer continues it within seconds: replay" in run(store, "replay", "resume", one).output


@pytest.mark.slow
def test_cancel_reports_whether_the_replay_has_ended(store):
    one = planned(store)
    assert ReplayClaims(store, one, "somebody/1", lease=15.0, clock=time.time).take()

    said = run(store, "replay", "cancel", one, "--yes").output

    assert said.startswith("Cancelling after the records in flight are settled: replay")


@pytest.mark.slow
def test_status_ends_a_cancelled_replay_of_a_dead_runner(store):
    one = planned(store)
    long_ago = time.time() - 1000
    assert ReplayClaims(store, one, "dead/1", lease=15.0, clock=lambda: long_ago).take()
    replay.cancel(store, one, **BY, clock=lambda: long_ago)
    assert not replay.get(store, one).ended

    assert "Cancelled: replayed 0 of 3" in run(store, "replay", "status", one).output


# records that are not dead letters


@pytest.mark.slow
def test_fetch_refuses_an_ordinary_topic_without_yes(store, broker):
    refused = run(store, "dlq", "fetch", "live", "-b", broker.bootstrap_servers)

    assert refused.exit_code == 2
    assert (
        "live does not look like a dead-letter topic: its first 3 records have no dead-letter headers"
        in refused.stderr
    )
    assert DeadLetters(store).count(DeadLetterFilter(state=None)) == 0
    (end, _) = store.rows("audit_latest", action="fetch")
    assert "The fetch failed: live does not look like" in end["outcome"]

    taken = run(store, "dlq", "fetch", "live", "--yes", "-b", broker.bootstrap_servers)
    assert (taken.exit_code, "3 new" in taken.output) == (0, True), taken.output
    again = run(store, "dlq", "fetch", "live", "-b", broker.bootstrap_servers)
    assert again.exit_code == 0, "what was let through once is let through again"


@pytest.mark.slow
def test_fetch_of_a_dead_letter_topic_needs_no_confirmation(store, broker):
    taken = run(store, "dlq", "fetch", "dead", "-b", broker.bootstrap_servers)

    assert (taken.exit_code, "3 new" in taken.output) == (0, True), taken.output


@pytest.mark.slow
def test_an_import_dry_run_needs_no_store_and_creates_none(store, tmp_path):
    add_old_dead_letters(store, "orders")
    assert run(store, "dlq", "export", tmp_path / "out.parquet").exit_code == 0
    nowhere = tmp_path / "nothing" / "store.duckdb"
    command = ["dlq", "import", str(tmp_path / "out.parquet"), "--dry-run", "--store", str(nowhere)]

    done = CliRunner().invoke(main, command)

    assert done.exit_code == 0, done.output
    assert "Would import 2 dead letters" in done.output
    assert not nowhere.parent.exists()
    assert json.loads(CliRunner().invoke(main, [*command, "--json"]).stdout)["new"] == 2
