"""The commands for approvals: requests, approve, refuse, withdraw and policy, and the exit code of a replay that waits."""

from __future__ import annotations

import json
import time

import pytest
from click.testing import CliRunner

from producer_core import replay
from producer_core._internal.identity import system_user
from producer_core.cli import main
from producer_core.dlq.approvals import requests
from producer_core.errors import ApprovalRequired
from producer_core.store import Store
from tests.fixtures.approvals import ADA, GRACE, POLICY, write_policy
from tests.fixtures.replays import ALL, CLUSTER, add_dead_letters, write_heartbeat

ME = system_user()
WITH_ME = POLICY.replace('"grace", "linus"', f'"grace", "linus", "{ME}"')


@pytest.fixture
def store(tmp_path):
    opened = Store.open(tmp_path / "store.duckdb")
    yield opened
    opened.close()


@pytest.fixture(autouse=True)
def policy(tmp_path, monkeypatch):
    return write_policy(monkeypatch, tmp_path, WITH_ME)


@pytest.fixture
def request_id(store):
    """A request of another person."""
    add_dead_letters(store, 3)
    with pytest.raises(ApprovalRequired) as raised:
        replay.plan(store, ALL, who=ADA, origin="dashboard", can_run=CLUSTER, reason="INC-1")
    return raised.value.request_id


def run(store, *words):
    return CliRunner().invoke(main, [*map(str, words), "--store", str(store.path)])


def test_requests_are_listed_and_one_is_shown(store, request_id):
    listed = run(store, "dlq", "requests")
    assert listed.exit_code == 0, listed.output
    assert request_id in listed.stdout
    assert "ada@example.com" in listed.stdout
    shown = run(store, "dlq", "requests", request_id[:6])
    assert f"Replay 3 records (3 of orders) to {CLUSTER}" in shown.stdout
    (found,) = json.loads(run(store, "dlq", "requests", "--json").stdout)
    assert (found["state"], found["by_topic"], found["reason"]) == ("pending", {"orders": 3}, "INC-1")
    assert json.loads(run(store, "dlq", "requests", "--state", "used", "--json").stdout) == []


def test_another_person_approves_with_a_reason(store, request_id):
    done = run(store, "dlq", "approve", request_id[:6], "--reason", "checked", "--yes")
    assert done.exit_code == 0, done.output
    assert f"is approved by {ME}@" in done.stdout
    assert f"producer-core replay go {requests.get_request(store, request_id).operation_id}" in done.stdout
    assert requests.get_request(store, request_id).decision == "checked"


def test_without_a_terminal_an_approval_needs_yes(store, request_id):
    done = run(store, "dlq", "approve", request_id)
    assert done.exit_code == 2
    assert "use --yes to confirm" in done.stderr
    assert requests.get_request(store, request_id).state == "pending"


def test_a_refusal_needs_a_reason(store, request_id):
    assert run(store, "dlq", "refuse", request_id).exit_code == 2
    assert run(store, "dlq", "refuse", request_id, "--reason", "not now").exit_code == 0
    assert requests.get_request(store, request_id).state == "refused"


@pytest.mark.slow
def test_a_replay_that_needs_an_approval_exits_with_3_and_starts_after_it(store):
    add_dead_letters(store, 3)
    write_heartbeat(store, time.time())
    waits = run(store, "dlq", "replay", "--yes", "--no-wait", "--reason", "INC-2")
    assert waits.exit_code == 3, waits.output
    assert "This replay needs the approval of a second person. Nothing was sent." in waits.stdout
    (found,) = requests.list_requests(store)
    assert found.reason == "INC-2"
    assert f"producer-core dlq approve {found.request_id}" in waits.stderr

    mine = run(store, "dlq", "approve", found.request_id, "--yes")
    assert mine.exit_code == 2
    assert "a requester cannot decide it" in mine.stderr

    again = run(store, "dlq", "replay", "--yes", "--no-wait", "--json")
    assert again.exit_code == 3
    assert json.loads(again.stdout)["request_id"] == found.request_id

    requests.approve(store, found.request_id, who=GRACE, origin="dashboard")
    go = run(store, "replay", "go", found.operation_id, "--yes")
    assert go.exit_code == 0, go.output
    assert replay.get(store, found.operation_id).state == "planned"


def test_replay_go_and_resume_exit_with_3(store, request_id):
    operation = requests.get_request(store, request_id).operation_id
    assert f"Request {request_id} is pending until" in run(store, "replay", "status", operation).stdout
    assert run(store, "replay", "go", operation, "--yes").exit_code == 3
    store.execute("replay_switch", operation=operation, state="paused", allowed=["ready"], message="")
    assert run(store, "replay", "resume", operation).exit_code == 3


def test_a_user_name_of_the_environment_does_not_approve(store, request_id, policy, monkeypatch):
    policy.write_text(POLICY)
    for name in ("LOGNAME", "USER", "JUPYTERHUB_USER"):
        monkeypatch.setenv(name, "linus")
    done = run(store, "dlq", "approve", request_id, "--yes")
    assert done.exit_code == 2
    assert f"{ME}@" in done.stderr
    assert "is not an approver" in done.stderr


def test_only_the_requester_withdraws(store, request_id):
    done = run(store, "dlq", "withdraw", request_id)
    assert done.exit_code == 2
    assert "did not make the request" in done.stderr


def test_the_policy_is_shown_and_adopted(store, policy, monkeypatch):
    shown = json.loads(run(store, "dlq", "policy", "--json").stdout)
    assert (shown["adopted"], shown["role"], shown["enforcement"]) == (False, "approver", "advisory")
    assert run(store, "dlq", "policy", "--adopt").exit_code == 0
    monkeypatch.delenv("PRODUCER_CORE_POLICY")
    assert json.loads(run(store, "dlq", "policy", "--json").stdout)["adopted"] is True


def test_a_store_without_a_policy_says_so(store, monkeypatch):
    monkeypatch.delenv("PRODUCER_CORE_POLICY")
    assert "This store has no approval policy." in run(store, "dlq", "policy").stdout
    assert run(store, "dlq", "policy", "--adopt").exit_code == 2
