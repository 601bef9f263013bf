"""The replay commands: the dry run, the options, the output, and refusals."""

from __future__ import annotations

import dataclasses
import json
import threading
import time
from contextlib import closing

import click
import pytest
from click.testing import CliRunner

from producer_core import replay
from producer_core.cli import main
from producer_core.cli.dlq import replay_dead_letters
from producer_core.cli.pipeline.reprocess import ReprocessRun
from producer_core.cli.replay.replay_run import ReplayRun
from producer_core.dlq import DeadLetterFilter, DeadLetters
from producer_core.errors import PipelineError
from producer_core.replay.broker_check import BrokerCheck, TopicCheck
from producer_core.store import Store
from tests.factories import replay_runner
from tests.fixtures.replays import (
    CLUSTER,
    FakeClock,
    ScriptedSender,
    add_dead_letters,
    dead_letter,
    message_id,
)

BY = {"who": "ann", "origin": "python"}


@pytest.fixture
def store(tmp_path):
    opened = Store.open(tmp_path / "store.duckdb")
    add_dead_letters(opened, 4)
    DeadLetters(opened).add([dead_letter(9, topic="payments", verdict="possibly_persisted", partition=2)])
    yield opened
    opened.close()


def run(store, *arguments, **options):
    return CliRunner().invoke(main, [*map(str, arguments), "--store", str(store.path)], **options)


def as_json(store, *arguments):
    result = run(store, *arguments, "--json")
    return json.loads(result.stdout), result


def planned(store, **choices):
    return replay.plan(store, DeadLetterFilter(), **BY, can_run=CLUSTER, **choices)


def ready(store, *topics: TopicCheck, **choices):
    operation = planned(store, check_first=True, **choices)
    found = BrokerCheck(topics or (seen(),), 5000.0)
    store.execute(
        "replay_checked",
        operation=operation.operation_id,
        checked=found.to_json(),
        now=time.time(),
        message=None,
    )
    return replay.get(store, operation.operation_id)


def seen(**changes) -> TopicCheck:
    known = {
        "topic": "orders", "records": 4, "bytes": 12, "partitions": 3, "max_message_bytes": 1048588,
        "cleanup_policy": "compact", "too_large": 0, "newer_keys": 2, "looked_at": 9, "complete": True,
        "text": "2 of 4 have a newer record with the same key.",
    }  # fmt: skip
    return TopicCheck(**{**known, **changes})


def test_a_dry_run_is_printed_and_changes_nothing(store):
    result = run(store, "dlq", "replay", "--dry-run", "--rate", "1")

    assert result.exit_code == 0, result.output
    assert "Dry run: 5 records" in result.stdout
    assert "about 5 s at this rate. Nothing was sent." in result.stdout
    assert "possibly_persisted        1  looked up on their topics first" in result.stdout
    assert "1 record may already be on its topic" in result.stdout
    assert "The topics have not been checked yet" in result.stdout
    assert replay.list_operations(store) == []


def test_a_dry_run_as_json_contains_counts_and_sentences(store):
    found, result = as_json(store, "dlq", "replay", "--topic", "payments", "--dry-run")

    assert (result.exit_code, found["total"], found["check"]) == (0, 1, None)
    assert found["by_partition"] == [{"topic": "payments", "partition": 2, "records": 1}]
    assert (found["doubtful"]["possibly_persisted"], found["safe"]) == (1, False)
    assert found["sentences"]


def test_a_dry_run_of_an_empty_selection_reports_that(store):
    result = run(store, "dlq", "replay", "--topic", "nothing", "--dry-run")

    assert (result.exit_code, "Nothing to replay." in result.stdout) == (0, True)


@pytest.mark.slow
@pytest.mark.parametrize("more", [(), ("--dry-run",), ("--json",)])
def test_the_error_for_a_mistyped_topic_lists_topics_with_dead_letters(store, more):
    result = run(store, "dlq", "replay", "--topic", "ordrs", *more)

    assert result.exit_code == 0
    assert (
        "topic 'ordrs' has no dead letters. Topics with dead letters: orders (4), payments (1)."
        in result.output
    )


@pytest.mark.slow
def test_an_empty_selection_is_reported_with_a_few_topics(store, tmp_path):
    DeadLetters(store).add([dead_letter(20 + n, topic=f"topic-{n}") for n in range(6)])
    result = run(store, "dlq", "replay", "--code", "UNKNOWN", "--yes")

    assert (
        result.exit_code,
        result.stdout.startswith("Nothing to replay: the selection matches no dead letter"),
    ) == (
        0,
        True,
    )
    assert (
        "Topics with dead letters: orders (4), payments (1), topic-0 (1), topic-1 (1), topic-2 (1) and 3 more topics."
        in result.stdout
    )

    with closing(Store.open(tmp_path / "empty.duckdb")) as empty:
        assert "Nothing to replay: the store has no dead letters." in run(empty, "dlq", "replay").stdout


def test_dead_letters_in_a_replay_are_neither_missing_nor_safe_to_resend(store, tmp_path):
    with closing(Store.open(tmp_path / "one.duckdb")) as other:
        DeadLetters(other).add([dead_letter(1)])
        DeadLetters(other).claim("op", [message_id(1)])

        replayed = run(other, "dlq", "replay")
        listed = run(other, "dlq", "list", "--state", "replaying")

    assert (
        "Nothing to replay: 1 dead letter is in a replay. See producer-core replay status." in replayed.stdout
    )
    assert "(replaying)" in listed.stdout and "rejected" not in listed.stdout


def test_a_replayed_record_is_listed_without_the_verdict_on_its_failure(store):
    planned(store)
    replay_runner(store, ScriptedSender(), clock=FakeClock(), interval=0.01).poll()

    listed = run(store, "dlq", "list", "--state", "any")

    assert "(replayed)" in listed.stdout
    assert "rejected" not in listed.stdout


def test_a_cancelled_replay_does_not_read_as_complete(store):
    operation = planned(store)
    replay.cancel(store, operation.operation_id, **BY)
    replay_runner(store, ScriptedSender(), clock=FakeClock(), interval=0.01).poll()

    shown = run(store, "replay", "status", operation.operation_id).stdout

    assert "0 of 5 before it was cancelled" in shown
    assert "100%" not in shown


def test_a_dry_run_after_a_preflight_shows_its_findings(store):
    ready(store)

    result = run(store, "dlq", "replay", "--dry-run")

    assert "2 records of orders will be skipped" in result.stdout
    assert "3, compacted" in result.stdout
    assert "1.0 MiB" in result.stdout


def test_without_a_terminal_replay_prints_the_dry_run_and_plans_nothing(store):
    result = run(store, "dlq", "replay")

    assert result.exit_code == 2
    assert "Replay 5 dead letters of orders and payments?" in result.stderr
    assert "Dry run: 5 records" in result.stderr
    assert "use --yes to confirm" in result.stderr
    assert replay.list_operations(store) == []


def test_a_rate_of_zero_or_a_percentage_above_100_is_refused(store):
    assert run(store, "dlq", "replay", "--rate", "0", "--yes").exit_code == 2
    assert run(store, "dlq", "replay", "--stop-percent", "101", "--yes").exit_code == 2
    assert run(store, "dlq", "replay", "--newer", "perhaps", "--yes").exit_code == 2


def test_help_documents_the_options_and_the_exit_codes(store):
    text = CliRunner().invoke(main, ["dlq", "replay", "--help"]).output

    for word in (
        "--dry-run",
        "--canary",
        "--stop-percent",
        "--stop-last",
        "--newer",
        "--reason",
        "Exit codes",
    ):
        assert word in text
    assert "Exit codes" in CliRunner().invoke(main, ["replay", "status", "--help"]).output


def test_status_shows_the_options_the_preflight_and_the_next_step(store):
    operation = ready(
        store, canary=3, stop_percent=20.0, stop_last=40, newer="skip", reason="INC-4711", rate=2.0
    )

    result = run(store, "replay", "status", operation.operation_id)

    assert result.exit_code == 0
    assert "ready: waiting for your decision: replay go starts it" in result.output
    assert "INC-4711" in result.output
    assert "a canary of 3 first; stops when more than 20% of the last 40 fail again" in result.output
    assert "records superseded by a newer one are skipped" in result.output
    assert "at most 2 per second" in result.output
    assert "Topics checked" in result.output
    assert "2 records of orders will be skipped" in result.output


def test_status_as_json_contains_the_check_the_reasons_and_doubtful_records(store):
    operation = ready(store)

    found, _ = as_json(store, "replay", "status", operation.operation_id)

    assert found["check"]["topics"][0]["newer_keys"] == 2
    assert (found["reasons"], found["doubtful"], found["left"]) == ([], [], 5)


@pytest.mark.slow
def test_status_shows_why_records_failed_again_and_exits_with_1(store):
    operation = planned(store)
    sender = ScriptedSender(refuse=[message_id(1)])
    clock = FakeClock(operation.created_at + 100)
    replay_runner(
        store, sender, clock=clock, monotonic=clock, interval=0.01, poll_interval=0.01, quiet=0.0
    ).run_one(operation.operation_id, 30)

    result = run(store, "replay", "status")

    assert result.exit_code == 1
    assert "Broker: Policy violation" in result.output
    assert "These records may be on their topic." in result.output
    assert message_id(9) in result.output


@pytest.mark.slow
def test_go_prompts_with_the_findings_and_starts_the_replay(store):
    operation = ready(store)

    refused = run(store, "replay", "go", operation.operation_id)
    begun = run(
        store,
        "replay",
        "go",
        operation.operation_id,
        "--newer",
        "send",
        "--rate",
        "7",
        "--stop-percent",
        "20",
        "--yes",
    )
    now = replay.get(store, operation.operation_id)

    assert refused.exit_code == 2
    assert "2 records of orders will be skipped" in refused.stderr
    assert "No live producer on this store can run replays. Start one" in begun.stderr
    assert (begun.exit_code, now.state, now.newer, now.rate) == (0, "planned", "send", 7.0)
    assert now.stop_percent == 20.0
    assert run(store, "replay", "go", operation.operation_id, "--yes").exit_code == 2


@pytest.mark.slow
def test_replay_actions_support_json_output(store):
    operation = planned(store)

    paused, _ = as_json(store, "replay", "pause", operation.operation_id)
    resumed, _ = as_json(store, "replay", "resume", operation.operation_id)
    cancelled, _ = as_json(store, "replay", "cancel", operation.operation_id, "--yes")

    assert [one["state"] for one in (paused, resumed, cancelled)] == ["paused", "planned", "cancelled"]
    assert run(store, "replay", "resume", operation.operation_id).exit_code == 2


def test_resume_changes_the_rate_of_a_paused_replay(store):
    operation = planned(store)
    run(store, "replay", "pause", operation.operation_id)

    resumed, _ = as_json(store, "replay", "resume", operation.operation_id, "--rate", "7")

    assert (resumed["state"], resumed["rate"]) == ("planned", 7.0)


def test_list_selects_by_application_and_cluster(store):
    DeadLetters(store).add([dead_letter(20, application="checkout", topic="carts")])
    one = replay.plan(store, DeadLetterFilter(topic="carts"), **BY, can_run=CLUSTER).operation_id
    other = replay.plan(store, DeadLetterFilter(topic="payments"), **BY, can_run=CLUSTER).operation_id

    def listed(*arguments):
        return [found["operation_id"] for found in as_json(store, "replay", "list", *arguments)[0]]

    assert listed("--application", "checkout") == [one]
    assert listed("--application", "") == [other]
    assert set(listed("--cluster", CLUSTER)) == {one, other}
    assert listed("--cluster", "another") == []
    assert "No replay of this application" in run(store, "replay", "list", "--application", "billing").output


def test_list_describes_the_state_of_each_replay(store):
    ready(store)

    assert "awaiting decision" in run(store, "replay", "list").output
    assert as_json(store, "replay", "list")[0][0]["state"] == "ready"


@pytest.mark.parametrize(
    ("kind", "words"),
    [
        (ReplayRun, "Waiting for the records in flight"),
        (ReprocessRun, "Spark has 8 s to finish its current batch"),
    ],
)
def test_ctrl_c_reports_at_once_why_the_command_is_still_waiting(store, capsys, monkeypatch, kind, words):
    operation = planned(store)
    job, before = kind(store, DeadLetterFilter(), None), []

    def interrupted(*_):
        yield operation
        raise KeyboardInterrupt

    def pause():
        before.append(capsys.readouterr().err)
        return replay.pause(store, operation.operation_id, **BY)

    monkeypatch.setattr(job, "watch", interrupted)
    monkeypatch.setattr(job, "pause", pause)
    with click.Context(click.Command("replay")), pytest.raises(click.exceptions.Exit) as left:
        replay_dead_letters.follow(job, operation)

    assert (left.value.exit_code, words in before[0]) == (130, True)
    assert "is paused with 5 of 5 left" in capsys.readouterr().err


def test_unchanged_progress_is_printed_once(store, capsys, monkeypatch):
    monkeypatch.setattr(replay_dead_letters, "_CHANGE_EVERY", 0.0)
    operation = planned(store)
    further = dataclasses.replace(operation, acknowledged=1)
    job = ReplayRun(store, DeadLetterFilter(), None)
    monkeypatch.setattr(job, "watch", lambda planned: iter((operation, operation, operation, further)))

    replay_dead_letters.follow(job, operation)

    assert len(capsys.readouterr().err.splitlines()) == 2


def test_an_error_that_ends_the_runner_is_raised_without_a_retry(store, monkeypatch):
    monkeypatch.setattr("producer_core.cli.replay.replay_run._POLL_INTERVAL", 0.0)
    operation, go, ran = planned(store), threading.Event(), []

    class Runner:
        def run_one(self, operation_id, _):
            ran.append(operation_id)
            go.wait(20)
            raise PipelineError("Spark is gone.")

    job = ReplayRun(store, DeadLetterFilter(), None)
    job._runner = Runner()
    looks = job.watch(operation)
    next(looks)
    next(looks)
    go.set()
    job._runner_thread.join(20)

    with pytest.raises(PipelineError, match="Spark is gone"):
        next(looks)
    assert len(ran) == 1
