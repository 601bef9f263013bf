"""Python, notebooks and pages need the same role for an act as the commands do."""

from __future__ import annotations

import pytest

from producer_core.alerts import AlertLog
from producer_core.dashboard import actions
from producer_core.dashboard.actions import alerts
from producer_core.dlq import DeadLetters
from producer_core.dlq.resolve_cause import reopen_cause, resolve_cause
from producer_core.dlq.topics import publish
from producer_core.errors import ConfigError, NotPermitted
from producer_core.roles.role_check import check_operator
from producer_core.store.resolved_causes import cause_status
from tests.fixtures.approvals import BEN, write_policy
from tests.fixtures.replays import ALL, add_dead_letters
from tests.fixtures.sign_in import audited, fire

ANN = {"who": "ann", "origin": "python"}
VIEWER = {"who": "ben", "origin": "python"}
NOBODY = "127.0.0.1:1"


@pytest.fixture
def group(store):
    add_dead_letters(store, 2)
    return DeadLetters(store).page(ALL).dead_letters[0].fingerprint


def test_without_a_policy_every_user_acts(store):
    with store.borrow(write=True):
        check_operator(store, **VIEWER, now=1.0)


def test_a_viewer_resolves_no_cause_and_reopens_none(store, group, tmp_path, monkeypatch):
    resolve_cause(store, group, **ANN, now=5000.0)
    write_policy(monkeypatch, tmp_path)

    for act in (resolve_cause, reopen_cause):
        with pytest.raises(NotPermitted, match="ben is a viewer and may not change or replay dead letters"):
            act(store, group, who=BEN, origin="dashboard", now=5001.0)

    assert cause_status(store, group).is_resolved
    reopen_cause(store, group, **ANN, now=5002.0)
    assert not cause_status(store, group).is_resolved


def test_a_viewer_neither_acknowledges_nor_silences_an_alert(store, clock, tmp_path, monkeypatch):
    alert_id, log = fire(store), AlertLog(store, clock=clock)
    write_policy(monkeypatch, tmp_path)
    silenced = {"until": clock() + 60, "why": "upgrade"}

    for act in (
        lambda by: log.acknowledge(alert_id, **by),
        lambda by: log.silence("connection_lost", **silenced, **by),
        lambda by: log.unsilence("connection_lost", **by),
    ):
        with pytest.raises(NotPermitted, match="ben is a viewer and may not acknowledge or silence alerts"):
            act(VIEWER)
    assert log.firing()[("connection_lost", "p-1")].acknowledged_by is None
    assert log.silences() == [] and [one for one in audited(store) if one[1] != "policy"] == []

    assert log.acknowledge(alert_id, **ANN)
    log.silence("connection_lost", **silenced, **ANN)
    assert log.unsilence("connection_lost", **ANN) == 1


def test_a_viewer_in_a_notebook_is_refused_and_the_attempt_is_audited(store, tmp_path, monkeypatch):
    alert_id = fire(store)
    write_policy(monkeypatch, tmp_path)

    for done in (
        actions.acknowledge(store, alert_id, who="ben", origin="notebook"),
        alerts.silence(store, "connection_lost", "", 60.0, "", who="ben", origin="notebook"),
    ):
        assert not done.ok and "ben is a viewer" in done.text

    refused = [(action, outcome[:8]) for _, action, outcome in audited(store) if action != "policy"]
    assert refused == [("silence", "Refused:"), ("acknowledge", "Refused:")]


def test_a_viewer_publishes_no_dead_letters(store, group, tmp_path, monkeypatch):
    write_policy(monkeypatch, tmp_path)

    def publish_to_a_live_topic(by):
        publish(store, ALL, "{topic}", {"bootstrap.servers": NOBODY}, open_producer=None, **by)

    with pytest.raises(NotPermitted, match="ben is a viewer and may not publish dead letters"):
        publish_to_a_live_topic(VIEWER)
    with pytest.raises(ConfigError, match="is an original topic"):
        publish_to_a_live_topic(ANN)
