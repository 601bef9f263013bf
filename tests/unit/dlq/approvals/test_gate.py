"""The gate: every way to start a replay asks for the approval that the policy wants, and nothing is sent before it."""

from __future__ import annotations

import pytest

from producer_core import replay
from producer_core._internal.identity import Identity
from producer_core.dlq import DeadLetterFilter, DeadLetters
from producer_core.dlq.approvals import gate, requests
from producer_core.dlq.approvals.edited_records import revoke_starts
from producer_core.errors import ApprovalRequired, ConfigError, NotPermitted
from producer_core.replay.operation import end_abandoned
from tests.fixtures.approvals import ADA, BEN, GRACE, LINUS, POLICY, write_policy
from tests.fixtures.replays import (
    ALL,
    CLUSTER,
    ScriptedSender,
    add_dead_letters,
    dead_letter,
    message_id,
    preflight_done,
    runner,
)


@pytest.fixture
def policy(tmp_path, monkeypatch):
    return write_policy(monkeypatch, tmp_path)


def plan(store, clock, who=ADA, selection=ALL, **choices):
    return replay.plan(store, selection, who=who, origin="dashboard", can_run=CLUSTER, clock=clock, **choices)


def checked(store, clock, who=ADA, selection=ALL, **choices):
    """Plan a replay that waits for a decision after its check."""
    operation = plan(store, clock, who, selection, check_first=True, **choices)
    preflight_done(store, operation.operation_id)
    with store.borrow(write=True) as connection:
        connection.execute("UPDATE operations SET checked_at = ?", [clock.now])
    return replay.get(store, operation.operation_id)


def go(store, clock, operation, who=ADA, **choices):
    return replay.go(store, operation.operation_id, who=who, origin="dashboard", clock=clock, **choices)


def asked(store, clock, count=3, **choices):
    """Return a replay that waits for an approval, and its request."""
    add_dead_letters(store, count)
    operation = checked(store, clock, **choices)
    with pytest.raises(ApprovalRequired) as raised:
        go(store, clock, operation)
    return operation, requests.get_request(store, raised.value.request_id)


def approve(store, clock, request, who=GRACE, reason="checked with the shop"):
    return requests.approve(
        store, request.request_id, who=who, origin="dashboard", reason=reason, clock=clock
    )


def sent_by_a_runner(store, clock):
    """Let a runner take what it may; return the ids that it sent."""
    sender = ScriptedSender()
    runner(store, sender, clock).poll(preflight=False)
    return sender.sent_ids


def audited(store, action):
    return [(row["who"], row["outcome"]) for row in store.rows("audit_latest", action=action)]


def test_without_a_policy_every_replay_starts(store, clock):
    add_dead_letters(store, 3)
    assert go(store, clock, checked(store, clock)).state == "planned"
    assert requests.list_requests(store) == []


def test_a_replay_at_the_limit_starts_at_once(store, clock, policy):
    add_dead_letters(store, 2)
    operation = go(store, clock, checked(store, clock))
    assert operation.state == "planned"
    assert len(sent_by_a_runner(store, clock)) == 2


def test_a_replay_above_the_limit_becomes_a_request_and_sends_nothing(store, clock, policy):
    operation, request = asked(store, clock)
    assert (request.state, request.records, request.by_topic) == ("pending", 3, {"orders": 3})
    assert request.rule == "It sends 3 records, and replays of more than 2 records need a second person."
    assert replay.get(store, operation.operation_id).state == "ready"
    assert sent_by_a_runner(store, clock) == []


def test_asking_again_returns_the_same_request(store, clock, policy):
    operation, request = asked(store, clock)
    with pytest.raises(ApprovalRequired) as raised:
        go(store, clock, operation)
    assert raised.value.request_id == request.request_id
    assert len(requests.list_requests(store)) == 1


def test_an_approved_replay_starts_once_and_both_names_are_in_the_audit(store, clock, policy):
    operation, request = asked(store, clock)
    approve(store, clock, request)
    go(store, clock, operation)
    assert len(sent_by_a_runner(store, clock)) == 3
    assert requests.get_request(store, request.request_id).state == "used"
    ((who, outcome),) = audited(store, "request_used")
    assert who == str(ADA)
    assert "requested by ada@example.com, approved by grace" in outcome
    ((who, outcome),) = audited(store, "request_approve")
    assert who == "grace"
    assert "approved, requested by ada@example.com: checked with the shop" in outcome


def test_a_plan_without_a_check_needs_the_approval_too(store, clock, policy):
    add_dead_letters(store, 3)
    with pytest.raises(ApprovalRequired) as raised:
        plan(store, clock)
    operation = replay.get(store, raised.value.operation_id)
    assert (operation.state, operation.message) == ("ready", gate.WAITING)
    assert sent_by_a_runner(store, clock) == []
    approve(store, clock, requests.get_request(store, raised.value.request_id))
    assert plan(store, clock).state == "planned"
    assert len(sent_by_a_runner(store, clock)) == 3


def test_a_replay_that_starts_by_itself_waits_for_a_decision_instead(store, clock, policy):
    add_dead_letters(store, 3)
    operation = checked(store, clock, go_by_itself=True)
    assert operation.state == "ready"
    assert sent_by_a_runner(store, clock) == []
    with pytest.raises(ApprovalRequired):
        go(store, clock, operation)


def test_a_replay_that_starts_by_itself_below_the_limit_starts(store, clock, policy):
    add_dead_letters(store, 2)
    operation = checked(store, clock, go_by_itself=True)
    assert operation.state == "planned"
    assert len(sent_by_a_runner(store, clock)) == 2


def test_a_spark_replay_needs_the_approval_too(store, clock, policy):
    add_dead_letters(store, 3)
    with pytest.raises(ApprovalRequired):
        replay.plan(store, ALL, who=ADA, origin="pipeline", can_run=CLUSTER, clock=clock)
    (operation,) = replay.live(store)
    assert operation.state == "ready"


def test_a_runner_of_another_version_cannot_send_what_was_not_admitted(store, clock, policy):
    operation, _ = asked(store, clock)
    store.execute(  # as a version without approvals would start it
        "replay_switch",
        operation=operation.operation_id,
        state="planned",
        allowed=["ready"],
        message="started",
    )
    assert sent_by_a_runner(store, clock) == []
    end_abandoned(store, clock.now)
    assert replay.get(store, operation.operation_id).state == "ready"


def test_small_replays_of_one_person_count_together(store, clock, policy):
    add_dead_letters(store, 4)
    dead = DeadLetters(store)
    dead.add([dead_letter(10, topic="payments"), dead_letter(11, topic="payments")])
    first = checked(store, clock, selection=DeadLetterFilter(topic="payments"))
    go(store, clock, first)
    second = checked(store, clock, selection=DeadLetterFilter(topic="orders"), limit=1)
    with pytest.raises(
        ApprovalRequired, match="With the 2 records that ALovelace replayed within the last hour it sends 3"
    ):
        go(store, clock, second, who=Identity("ALovelace"))
    clock.forward(gate.TOGETHER + 1)
    third = checked(store, clock, selection=DeadLetterFilter(topic="orders"), limit=2)
    assert third.operation_id == second.operation_id
    assert go(store, clock, third).state == "planned"


def test_records_of_another_cluster_need_the_approval(store, clock, tmp_path, monkeypatch):
    write_policy(monkeypatch, tmp_path, POLICY.replace("replays_above = 2", "other_cluster = true"))
    add_dead_letters(store, 1, cluster_id="elsewhere")
    with pytest.raises(
        ApprovalRequired, match=f"1 record would go to the cluster {CLUSTER}, from another one"
    ):
        plan(store, clock, to_cluster=CLUSTER)


# what an approval binds


@pytest.mark.parametrize(
    "changes",
    [
        {"newer": "send"},
        {"inconclusive": "send"},
        {"canary": 1},
        {"stop_percent": 90},
        {"stop_last": 1},
    ],
    ids=lambda changes: next(iter(changes)),
)
def test_an_approval_is_void_after_a_change_of_the_choices(store, clock, policy, changes):
    operation, request = asked(store, clock, rate=10)
    approve(store, clock, request)
    with pytest.raises(ApprovalRequired) as raised:
        go(store, clock, operation, **changes)
    assert raised.value.request_id != request.request_id
    assert requests.get_request(store, request.request_id).state == "void"
    assert audited(store, "request_void")[0][1].startswith(requests.CHANGED)
    assert sent_by_a_runner(store, clock) == []


def test_the_approved_rate_may_fall_and_not_rise(store, clock, policy):
    operation, request = asked(store, clock, rate=10)
    approve(store, clock, request)
    with pytest.raises(ApprovalRequired):
        go(store, clock, operation, rate=11)
    again = requests.open_request(store, operation.operation_id, clock.now)
    approve(store, clock, again)
    assert go(store, clock, operation, rate=5).state == "planned"


@pytest.mark.parametrize(
    "change",
    [
        "UPDATE dead_letter_bodies SET value = 'other'::BLOB",
        "UPDATE dead_letter_bodies SET headers = '[]'",
        "UPDATE dead_letters SET key = 'other'::BLOB",
        "UPDATE dead_letters SET partition = 3",
        "UPDATE dead_letters SET topic = 'payments'",
        "UPDATE dead_letters SET cluster_id = 'elsewhere'",
        "UPDATE operations SET cluster_id = 'elsewhere'",
        "DELETE FROM operation_records WHERE ord = 1",
        "UPDATE operation_records SET message_id = 'x' WHERE ord = 2",
        "INSERT INTO operation_records BY NAME SELECT operation_id, 9 AS ord, 'y' AS message_id, 'pending' AS state"
        " FROM operations",
    ],
)
def test_an_approval_is_void_after_a_change_of_the_records_or_the_destination(store, clock, policy, change):
    operation, request = asked(store, clock, count=4)
    approve(store, clock, request)
    with store.borrow(write=True) as connection:
        connection.execute(change)
    with pytest.raises(ApprovalRequired):
        go(store, clock, operation)
    assert requests.get_request(store, request.request_id).state == "void"


def test_an_approval_is_void_after_an_archive(store, clock, policy):
    operation, request = asked(store, clock, count=4)
    approve(store, clock, request)
    DeadLetters(store).archive(DeadLetterFilter(until=1001.5), who="grace", origin="dashboard")
    with pytest.raises(ApprovalRequired):
        go(store, clock, operation)


REVISE = """
INSERT INTO dead_letter_revisions BY NAME
SELECT min(message_id) AS message_id, 1 AS number, 1.0 AS made_at, 'ann' AS who, 'cli' AS origin, 'wrong' AS reason, '{}' AS patch,
       'x'::BLOB AS value, '[]' AS headers, FALSE AS made_replayable FROM dead_letters"""


def test_an_approval_is_void_after_an_edit(store, clock, policy):
    operation, request = asked(store, clock)
    approve(store, clock, request)
    with store.borrow(write=True) as connection:
        connection.execute(REVISE)
    with pytest.raises(ApprovalRequired):
        go(store, clock, operation)
    assert requests.get_request(store, request.request_id).state == "void"


def test_a_paused_replay_that_was_edited_is_not_resumed_without_a_new_approval(store, clock, policy):
    operation, request = asked(store, clock)
    approve(store, clock, request)
    go(store, clock, operation)
    by = {"who": ADA, "origin": "dashboard"}
    replay.pause(store, operation.operation_id, **by)
    assert replay.resume(store, operation.operation_id, **by, clock=clock).state == "planned"
    replay.pause(store, operation.operation_id, **by)
    with store.borrow(write=True) as connection:
        connection.execute(REVISE)
    with pytest.raises(ApprovalRequired):
        replay.resume(store, operation.operation_id, **by, clock=clock)


def test_an_approval_is_void_if_its_approver_lost_the_role(store, clock, policy):
    operation, request = asked(store, clock)
    approve(store, clock, request)
    policy.write_text(POLICY.replace('"grace", "linus"', '"linus"'))
    with pytest.raises(ApprovalRequired):
        go(store, clock, operation)
    assert "grace is no longer an approver" in audited(store, "request_void")[0][1]


def test_an_approval_is_void_if_both_turn_out_to_be_one_person(store, clock, policy):
    operation, request = asked(store, clock)
    approve(store, clock, request)
    policy.write_text(POLICY.replace('"alovelace"]', '"alovelace", "grace"]'))
    with pytest.raises(ApprovalRequired):
        go(store, clock, operation)


def test_an_approval_expires(store, clock, policy):
    operation, request = asked(store, clock)
    approve(store, clock, request)
    clock.forward(24 * 3600)
    with pytest.raises(ApprovalRequired):
        go(store, clock, operation)
    assert requests.get_request(store, request.request_id).state == "expired"


def test_a_clock_that_is_set_back_revives_no_expired_approval(store, clock, policy):
    operation, request = asked(store, clock)
    approve(store, clock, request)
    clock.forward(24 * 3600)
    requests.expire_requests(store, clock.now)
    clock.forward(-24 * 3600)
    with pytest.raises(ApprovalRequired):
        go(store, clock, operation)


def a_year_ahead(store, clock):
    """Write what a host writes whose clock is a year ahead: an audit row, and a request that it decided."""
    with store.borrow(write=True) as connection:
        later = clock.now + 365 * 86_400
        connection.execute("INSERT INTO audit BY NAME SELECT ? AS acted_at, 'ann' AS who, 'cli' AS origin, 'ack' AS action,"
                           " '{}' AS selection, 1 AS count, '' AS outcome", [later])  # fmt: skip
        connection.execute("UPDATE replay_requests SET decided_at = ? WHERE state = 'refused'", [later])


def test_a_clock_that_is_a_year_ahead_neither_expires_a_request_nor_keeps_it(store, clock, policy):
    operation, first = asked(store, clock)
    requests.refuse(
        store, first.request_id, who=GRACE, origin="dashboard", reason="too many", clock=lambda: clock.now
    )
    with pytest.raises(ApprovalRequired) as raised:
        go(store, clock, operation)
    second = requests.get_request(store, raised.value.request_id)
    a_year_ahead(store, clock)

    requests.expire_requests(store, clock.now)
    assert requests.get_request(store, second.request_id).state == "pending"
    approve(store, clock, second)
    clock.forward(24 * 3600)
    with pytest.raises(ApprovalRequired):
        go(store, clock, operation)
    assert requests.get_request(store, second.request_id).state == "expired"


def test_a_clock_that_is_a_year_ahead_does_not_make_small_replays_count_together(store, clock, policy):
    add_dead_letters(store, 2)
    DeadLetters(store).add([dead_letter(10, topic="payments")])
    a_year_ahead(store, clock)
    go(store, clock, checked(store, clock, selection=DeadLetterFilter(topic="orders")))
    clock.forward(gate.TOGETHER + requests.CLOCK_SKEW + 1)
    assert go(store, clock, checked(store, clock, selection=DeadLetterFilter(topic="payments"))).state == "planned"  # fmt: skip


def test_a_requested_replay_does_not_expire_while_its_request_is_open(store, clock, policy):
    operation, _ = asked(store, clock)
    clock.forward(5 * 3600)
    end_abandoned(store, clock.now)
    assert replay.get(store, operation.operation_id).state == "ready"
    clock.forward(24 * 3600)
    end_abandoned(store, clock.now)
    assert replay.get(store, operation.operation_id).state == "cancelled"


def test_cancelling_a_replay_withdraws_its_request(store, clock, policy):
    operation, request = asked(store, clock)
    replay.cancel(store, operation.operation_id, who=ADA, origin="dashboard", clock=clock)
    assert requests.get_request(store, request.request_id).state == "withdrawn"


# people


def test_a_viewer_plans_and_starts_nothing(store, clock, policy):
    add_dead_letters(store, 1)
    operation = checked(store, clock)
    with pytest.raises(NotPermitted, match="ben is a viewer and may not change or replay dead letters"):
        go(store, clock, operation, who=BEN)
    with pytest.raises(NotPermitted):
        plan(store, clock, who=BEN, selection=DeadLetterFilter(topic="other"))
    assert replay.get(store, operation.operation_id).state == "ready"


def test_a_page_without_sign_in_cannot_ask(store, clock, policy):
    add_dead_letters(store, 3)
    operation = checked(store, clock)
    with pytest.raises(NotPermitted, match="This page has no sign-in, so the requester is unknown"):
        go(store, clock, operation, who=Identity("ada", known=False))


def test_a_policy_that_becomes_invalid_starts_nothing(store, clock, policy):
    add_dead_letters(store, 1)
    operation = checked(store, clock)
    policy.write_text("[rolls]\n")
    with pytest.raises(ConfigError):
        go(store, clock, operation)
    assert replay.get(store, operation.operation_id).state == "ready"


def test_a_replay_that_runs_when_the_first_policy_is_adopted_continues(store, clock, tmp_path, monkeypatch):
    add_dead_letters(store, 3)
    plan(store, clock)
    write_policy(monkeypatch, tmp_path)
    with pytest.raises(ApprovalRequired):
        DeadLetters(store).add([dead_letter(number, topic="other") for number in range(20, 25)])
        plan(store, clock, selection=DeadLetterFilter(topic="other"))
    assert len(sent_by_a_runner(store, clock)) == 3


def test_an_older_version_is_refused_once_a_policy_is_adopted(store, clock, policy, monkeypatch):
    from producer_core.errors import StoreTooNew
    from producer_core.store import required_features

    asked(store, clock)
    monkeypatch.setattr(required_features, "SUPPORTED", required_features.SUPPORTED - {"approvals"})
    with pytest.raises(StoreTooNew, match="This store requires approvals"):
        plan(store, clock, selection=DeadLetterFilter(topic="orders"))


def test_a_second_approver_is_refused_after_the_first(store, clock, policy):
    _, request = asked(store, clock)
    approve(store, clock, request)
    with pytest.raises(Exception, match=r"cannot be approved\. Request .* is approved by grace"):
        approve(store, clock, request, who=LINUS)


def test_an_edit_pauses_a_started_replay_until_it_is_approved_again(store, clock, policy):
    operation, request = asked(store, clock)
    approve(store, clock, request)
    go(store, clock, operation)
    with store.borrow(write=True) as connection:
        assert revoke_starts(connection, ["unknown"]) == []
        assert revoke_starts(connection, [message_id(1)]) == [operation.operation_id]
    assert replay.get(store, operation.operation_id).state == "paused"
    assert sent_by_a_runner(store, clock) == []
    with pytest.raises(ApprovalRequired) as raised:
        replay.resume(store, operation.operation_id, who=ADA, origin="dashboard", clock=clock)
    approve(store, clock, requests.get_request(store, raised.value.request_id))
    replay.resume(store, operation.operation_id, who=ADA, origin="dashboard", clock=clock)
    assert len(sent_by_a_runner(store, clock)) == 3


def test_a_viewer_neither_stops_a_replay_nor_archives(store, clock, policy):
    add_dead_letters(store, 2)
    operation = go(store, clock, checked(store, clock))
    by = {"who": BEN, "origin": "dashboard"}
    dead = DeadLetters(store)
    for act in (
        lambda: replay.pause(store, operation.operation_id, **by),
        lambda: replay.cancel(store, operation.operation_id, **by),
        lambda: dead.archive(ALL, **by),
        lambda: dead.restore(ALL, **by),
        lambda: dead.purge(ALL, confirmation="purge 0", **by),
    ):
        with pytest.raises(NotPermitted):
            act()
    assert replay.get(store, operation.operation_id).state == "planned"
    assert dead.count(ALL) == 2


def test_a_mistake_in_the_policy_does_not_prevent_a_pause(store, clock, policy):
    add_dead_letters(store, 2)
    operation = go(store, clock, checked(store, clock))
    policy.write_text("[rolls]\n")
    assert replay.pause(store, operation.operation_id, who=ADA, origin="dashboard").state == "paused"
    with pytest.raises(ConfigError):
        replay.resume(store, operation.operation_id, who=ADA, origin="dashboard", clock=clock)


def test_another_name_in_the_environment_does_not_start_a_new_count(store, clock, tmp_path, monkeypatch):
    write_policy(monkeypatch, tmp_path, POLICY.replace('operator = ["ada", "grace", "ann"]', ""))
    add_dead_letters(store, 2)
    DeadLetters(store).add([dead_letter(10, topic="payments")])
    for who, topic in (("one@host", "orders"), ("two@host", "payments")):
        operation = checked(store, clock, selection=DeadLetterFilter(topic=topic))
        if topic == "payments":
            with pytest.raises(ApprovalRequired, match="With the 2 records that"):
                replay.go(store, operation.operation_id, who=who, origin="cli", clock=clock)
        else:
            replay.go(store, operation.operation_id, who=who, origin="cli", clock=clock)


def test_a_name_in_the_environment_gives_a_command_no_role(store, clock, policy):
    add_dead_letters(store, 1)
    operation = checked(store, clock)
    with pytest.raises(NotPermitted, match="is a viewer"):
        replay.go(store, operation.operation_id, who="ada@host", origin="cli", clock=clock)
