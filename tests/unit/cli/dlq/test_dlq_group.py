"""The `dlq` commands on a store: their output for scripts and for people, and their prompts."""

from __future__ import annotations

import json
import re
import time

import pytest
from click.testing import CliRunner

from producer_core.cli import main
from producer_core.cli.dlq.dlq_group import dlq
from producer_core.dlq import DeadLetterFilter, DeadLetters
from producer_core.events import Attempt, DeadLetter
from producer_core.messages import id_bytes, id_text, new_session
from producer_core.store import Store

SESSION = new_session()


def dead_letter(number, **changes):
    code = changes.get("code", "POLICY_VIOLATION")
    values = {
        "message_id": id_text(id_bytes(SESSION, number)),
        "cluster_id": "c1",
        "producer_id": str(SESSION),
        "topic": "orders",
        "key": b"k%d" % number,
        "value": b'{"card": "4111111111111111", "password": "hunter2", "n": %d}' % number,
        "headers": (("authorization", b"Bearer abcdef"), ("trace", None)),
        "partition": None,
        "timestamp_ms": None,
        "verdict": "rejected",
        "verdict_reason": "The broker refused it.",
        "kind": "permanent",
        "code": code,
        "error_text": "Broker: Policy violation for ann.lee@example.com",
        "fingerprint": "aaaabbbbcccc",
        "attempts": (Attempt(time.time(), code, "Broker: Policy violation"),),
        "accepted_at": time.time() - 5 + number / 1000,
        "failed_at": time.time() - 4 + number / 1000,
        "host": "here",
        "version": "0.1.0",
    }
    return DeadLetter(**{**values, **changes})


@pytest.fixture
def path(tmp_path):
    store = Store.open(tmp_path / "store.duckdb")
    DeadLetters(store).add(
        [
            dead_letter(1),
            dead_letter(2),
            dead_letter(3, topic="payments", verdict="possibly_persisted", fingerprint="ddddeeeeffff"),
            dead_letter(
                4, topic="payments", value=b"\xff", replayable=False, source="line 17 of a.csv", key=None
            ),
        ]
    )
    return store.path


def run(path, *arguments, **options):
    return CliRunner().invoke(main, [*map(str, arguments), "--store", str(path)], **options)


def as_json(path, *arguments):
    result = run(path, *arguments, "--json")
    return json.loads(result.stdout), result


def waiting(path):
    return DeadLetters(Store.open(path)).count(DeadLetterFilter())


# looking


def test_list_json_contains_the_total_and_the_records(path):
    found, result = as_json(path, "dlq", "list", "--limit", 2)

    assert result.exit_code == 0
    assert found["total"] == 4
    assert [record["source"] for record in found["records"]] == ["line 17 of a.csv", None]
    assert {"message_id", "topic", "key", "state", "verdict", "code", "error_text", "group", "failed_at", "attempts",
            "value_size", "replay_count"} <= found["records"][0].keys()  # fmt: skip


@pytest.mark.slow
def test_list_and_archive_apply_filters_identically(path):
    for options in (["--topic", "payments"], ["--verdict", "possibly_persisted"], ["--group", "ddddeeeeffff"], ["--key", "k1"], ["--since", "1h"], ["--until", "1h"], ["--text", "POLICY"]):  # fmt: skip
        total = as_json(path, "dlq", "list", *options)[0]["total"]
        archived = as_json(path, "dlq", "archive", *options, "--yes")[0]["count"]
        run(path, "dlq", "restore", "--yes")

        assert archived == total


@pytest.mark.slow
def test_show_masks_values_and_audits_a_reveal(path):
    message = dead_letter(1).message_id

    masked = run(path, "dlq", "show", message).output
    revealed = run(path, "dlq", "show", message, "--reveal").output

    assert "hunter2" not in masked
    assert "4111111111111111" not in masked
    assert "abcdef" not in masked
    assert "ann.lee@" not in masked
    assert "hunter2" in revealed
    assert "abcdef" in revealed
    assert [row["action"] for row in as_json(path, "audit")[0]] == ["reveal"]


def test_revealed_json_contains_the_original_bytes(path):
    found, _ = as_json(path, "dlq", "show", dead_letter(4).message_id, "--reveal")

    assert found["value_base64"] == "/w=="
    assert found["source"] == "line 17 of a.csv"


PARENT = b"00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"


def test_show_prints_the_trace_with_its_link(path):
    traced = dead_letter(8, headers=(("traceparent", PARENT),))
    unsampled = dead_letter(9, headers=(("traceparent", PARENT[:-1] + b"0"),))
    DeadLetters(Store.open(path)).add([traced, unsampled])
    trace_id = "4bf92f3577b34da6a3ce929d0e0e4736"

    assert f"{trace_id}\n" in run(path, "dlq", "show", traced.message_id).stdout
    assert run(path, "store", "set", "trace_link=https://t.example/trace/{trace_id}").exit_code == 0
    assert f"https://t.example/trace/{trace_id}" in run(path, "dlq", "show", traced.message_id).stdout
    assert f"{trace_id} (not sampled)" in run(path, "dlq", "show", unsampled.message_id).stdout
    found, _ = as_json(path, "dlq", "show", traced.message_id)
    assert found["trace"] == {
        "trace_id": trace_id,
        "sampled": True,
        "link": f"https://t.example/trace/{trace_id}",
    }
    assert as_json(path, "dlq", "show", dead_letter(1).message_id)[0]["trace"] is None


@pytest.mark.parametrize(
    "link", ["javascript:alert({trace_id})", "https://t.example/", "t", 'https://t/"{trace_id}']
)
def test_a_trace_link_that_is_no_http_address_of_a_trace_is_refused(path, link):
    result = run(path, "store", "set", f"trace_link={link}")

    assert (result.exit_code, "trace_link" in result.stderr) == (2, True), result.output


def test_error_texts_in_lists_are_masked(path):
    assert "ann.lee@" not in run(path, "dlq", "list").output
    assert "ann.lee@" not in run(path, "dlq", "groups").output


def test_show_reports_an_unknown_message_id(path):
    result = run(path, "dlq", "show", "nobody-1")

    assert result.exit_code == 2
    assert "Dead letter nobody-1 does not exist" in result.stderr


def test_groups_json_counts_dead_letters_per_cause(path):
    found, _ = as_json(path, "dlq", "groups")

    assert found["total"] == 4
    assert all(group["group"] == group["fingerprint"] for group in found["groups"])
    assert {group["fingerprint"]: group["count"] for group in found["groups"]} == {
        "aaaabbbbcccc": 3,
        "ddddeeeeffff": 1,
    }


# acting


@pytest.mark.slow
@pytest.mark.parametrize("empty", [("--ids", ""), ("--ids", ","), ("--text", "")])
def test_an_empty_filter_value_is_refused_and_does_not_select_everything(path, empty):
    before = as_json(path, "dlq", "list")[0]["total"]

    for command in (("archive", "--yes"), ("list",), ("replay", "--dry-run")):
        result = run(path, "dlq", *command, *empty)
        assert (result.exit_code, "is empty" in result.stderr) == (2, True), result.output

    assert as_json(path, "dlq", "list")[0]["total"] == before > 0


@pytest.mark.parametrize(
    "command",
    [
        ("dlq", "list"),
        ("dlq", "groups"),
        ("dlq", "replay", "--dry-run"),
        ("audit",),
        ("replay", "list"),
        ("alerts", "list"),
    ],
)
def test_an_implausibly_large_limit_is_refused(path, command):
    result = run(path, *command, "--limit", 10**20)

    assert (result.exit_code, "--limit" in result.stderr) == (2, True), result.output


@pytest.mark.parametrize(
    "setting",
    [
        "keep_seconds=" + "9" * 400 + "d",
        "keep_settled=99999999d",
        "dlq_max_size=" + "9" * 400,
        "dlq_max_bytes=99999999999999TiB",
    ],
)
def test_an_implausible_setting_is_refused(path, setting):
    result = run(path, "store", "set", setting)

    assert (result.exit_code, "Error" in result.stderr) == (2, True), result.output


def test_empty_brokers_are_refused(path):
    result = run(path, "doctor", "-b", "")

    assert (result.exit_code, "--bootstrap-servers is empty" in result.output) == (2, True), result.output


def test_archive_without_a_terminal_prints_the_prompt_and_changes_nothing(path):
    result = run(path, "dlq", "archive", "--topic", "orders")

    assert result.exit_code == 2
    assert "Archive 2 dead letters of orders?" in result.stderr
    assert waiting(path) == 4


@pytest.mark.slow
def test_restore_undoes_exactly_one_clear(path):
    cleared, _ = as_json(path, "dlq", "clear", "--topic", "orders", "--yes")
    run(path, "dlq", "archive", "--topic", "payments", "--yes")

    restored, _ = as_json(path, "dlq", "restore", "--moment", repr(cleared["moment"]))

    assert (cleared["count"], restored["count"], waiting(path)) == (2, 2, 2)


@pytest.mark.slow
def test_purge_requires_the_typed_count_and_a_minimum_age(path):
    run(path, "dlq", "archive", "--topic", "orders", "--yes")

    young = run(path, "dlq", "purge")
    alone = run(path, "dlq", "purge", "--min-age", "0s")
    wrong = run(path, "dlq", "purge", "--min-age", "0s", "--confirmation", "purge 3")
    right = run(path, "dlq", "purge", "--min-age", "0s", "--confirmation", "purge 2")

    assert "more than 24 h ago" in young.output
    assert "2 matching dead letters were archived more recently. Specify a lower --min-age" in young.output
    assert (alone.exit_code, wrong.exit_code, right.exit_code) == (2, 2, 0)
    assert "purge 2" in alone.stderr
    assert "Purged 2 dead letters" in right.output


def test_replay_reports_that_no_process_can_send(path):
    result = run(path, "dlq", "replay", "--topic", "orders", "--yes")

    assert result.exit_code == 2
    assert "No process" in result.stderr
    assert waiting(path) == 4


def test_replay_of_an_empty_selection_succeeds_at_once(path):
    found, result = as_json(path, "dlq", "replay", "--topic", "nothing", "--yes")

    assert (result.exit_code, found["total"]) == (0, 0)


def test_replay_warns_of_possible_duplicates(path):
    result = run(path, "dlq", "replay", "--topic", "payments", "--message-id", dead_letter(3).message_id)

    assert "1 record may already be on its topic" in result.stderr


# the store around it


@pytest.mark.slow
def test_actions_are_recorded_in_the_audit(path):
    run(path, "dlq", "archive", "--topic", "orders", "--yes")

    (entry,) = as_json(path, "audit", "--action", "archive")[0]

    assert (entry["origin"], entry["count"], entry["selection"]) == ("cli", 2, {"topic": "orders"})
    assert "archive" in run(path, "audit").output


def test_store_info_prints_the_row_counts(path):
    found, _ = as_json(path, "store", "info")

    assert found["rows"]["dead_letters"] == 4
    assert "dead_letters" in run(path, "store", "info").output


def test_a_snapshot_can_be_opened_as_a_store(path, tmp_path):
    assert run(path, "store", "snapshot", tmp_path / "copy.duckdb").exit_code == 0

    assert as_json(tmp_path / "copy.duckdb", "dlq", "list")[0]["total"] == 4


def test_a_snapshot_into_a_missing_folder_is_refused_and_does_not_create_it(path, tmp_path):
    refused = run(path, "store", "snapshot", tmp_path / "nope" / "copy.duckdb")

    assert (refused.exit_code, "does not exist" in refused.stderr) == (2, True), refused.output
    assert not (tmp_path / "nope").exists()


def test_list_with_limit_0_prints_only_the_count(path):
    assert run(path, "dlq", "list", "--limit", 0).output == "4 dead letters match.\n"


def test_prune_keeps_pending_dead_letters(path):
    assert run(path, "store", "prune", "--yes").exit_code == 0
    assert waiting(path) == 4


def test_replay_commands_report_that_no_replay_exists_yet(path):
    assert "No replay yet" in run(path, "replay", "list").output
    assert "No replay yet" in run(path, "replay", "status").output
    assert run(path, "replay", "pause", "nothing").exit_code == 2


@pytest.mark.slow
def test_an_alert_is_listed_acknowledged_and_silenced(path):
    from producer_core.alerts import AlertLog, alert, follow

    log = AlertLog(Store.open(path))
    log.record(follow({}, [alert("connection_lost", "p1", time.time(), reason="refused")], time.time()))
    (fired,) = as_json(path, "alerts", "list")[0]["alerts"]

    acknowledged = run(path, "alerts", "ack", fired["alert_id"])
    silenced = run(path, "alerts", "silence", "connection_lost", "--for", "1h", "--why", "upgrade")

    assert "No connection to the brokers: refused" in run(path, "alerts", "list").output
    assert (acknowledged.exit_code, silenced.exit_code) == (0, 0)
    assert as_json(path, "alerts", "list")[0]["alerts"][0]["silenced"] is True
    assert run(path, "alerts", "ack", "nothing").exit_code == 2
    assert run(path, "alerts", "silence", "nothing").exit_code == 2


def test_dead_letters_are_selected_by_application_and_cluster(path):
    DeadLetters(Store.open(path)).add([dead_letter(5, application="checkout", cluster_id="c2")])

    for selection in (("--application", "checkout"), ("--cluster", "c2"), ("--cluster-id", "c2")):
        (record,) = as_json(path, "dlq", "list", *selection)[0]["records"]
        assert record["application"] == "checkout"
    assert as_json(path, "dlq", "list", "--application", "")[0]["total"] == 4
    assert "checkout" in run(path, "dlq", "show", id_text(id_bytes(SESSION, 5))).output


def test_the_help_names_the_commands_that_accept_a_selection():
    commands = {name: {option.name for option in command.params} for name, command in dlq.commands.items()}
    selecting = {name for name, options in commands.items() if {"verdict", "application"} & options} - {
        "clear"
    }

    sentence = dlq.help.split(" accept the same selection")[0].rsplit("\n\n", 1)[-1]

    assert set(re.findall(r"[a-z]+", sentence)) - {"and"} == selecting
