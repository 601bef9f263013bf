"""The alert of a pending request: it fires once, links to the request, and resolves with the decision."""

from __future__ import annotations

import pytest

from producer_core import replay
from producer_core.alerts import AlertEvaluator, AlertLog, RuleSet
from producer_core.alerts.payload import notification
from producer_core.dlq.approvals import requests
from producer_core.errors import ApprovalRequired
from tests.fixtures.approvals import ADA, GRACE, write_policy
from tests.fixtures.replays import ALL, CLUSTER, add_dead_letters


@pytest.fixture
def request_id(store, clock, tmp_path, monkeypatch):
    write_policy(monkeypatch, tmp_path)
    add_dead_letters(store, 3)
    with pytest.raises(ApprovalRequired) as raised:
        replay.plan(store, ALL, who=ADA, origin="dashboard", can_run=CLUSTER, clock=clock)
    return raised.value.request_id


@pytest.fixture
def evaluator(store, clock):
    return AlertEvaluator(store, owner="me", rule_set=RuleSet(), clock=clock, monotonic=clock)


def of_requests(changes):
    return [
        (change.kind, change.alert.subject)
        for change in changes
        if change.alert.rule == "approval_requested" and change.kind in ("fired", "resolved")
    ]


def test_a_request_fires_until_it_is_decided(store, clock, request_id, evaluator):
    assert of_requests(evaluator.tick()) == [("fired", request_id)]
    (firing,) = [one for one in AlertLog(store).list(state="firing") if one.rule == "approval_requested"]
    assert firing.text == (
        f"a***@example.com asks for the approval of a replay of 3 records (request {request_id}, until 1970-01-02 01:23 UTC): "
        "It sends 3 records, and replays of more than 2 records need a second person."
    )
    clock.forward(5)
    assert of_requests(evaluator.tick()) == []
    requests.approve(store, request_id, who=GRACE, origin="dashboard", clock=clock)
    clock.forward(5)
    assert of_requests(evaluator.tick()) == [("resolved", request_id)]


def test_an_expired_request_resolves(clock, request_id, evaluator):
    evaluator.tick()
    clock.forward(24 * 3600)
    assert of_requests(evaluator.tick()) == [("resolved", request_id)]


def test_the_notification_links_to_the_request(store, request_id, evaluator):
    (change,) = [
        one for one in evaluator.tick() if one.alert.rule == "approval_requested" and one.kind == "fired"
    ]
    rule_set = RuleSet(link="https://dash.example/pc/")
    (entry,) = notification([change.alert], "firing", receiver="chat", rule_set=rule_set, store="s").payload[
        "alerts"
    ]
    assert entry["generatorURL"] == f"https://dash.example/pc/replays?request={request_id}"
    assert "a***@example.com asks for the approval" in entry["annotations"]["summary"]
