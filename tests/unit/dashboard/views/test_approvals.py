"""Test requests for the approval of replays on the pages: ask, approve, refuse, withdraw, and what each role sees."""

from __future__ import annotations

from functools import partial

import pytest

from producer_core import replay
from producer_core.dashboard import actions
from producer_core.dashboard.actions import exports
from producer_core.dashboard.auth import access
from producer_core.dashboard.auth.access_rules import AccessRules
from producer_core.dlq.approvals import requests
from tests.fixtures import replay_pages as replay_pages_fixtures
from tests.fixtures.approvals import write_policy
from tests.fixtures.pages import rows_of, text_of
from tests.fixtures.replay_actions import redrawn
from tests.fixtures.replay_pages import ALL, opened
from tests.fixtures.replays import add_dead_letters, preflight_done
from tests.fixtures.sign_in import fire, signed_in

store = replay_pages_fixtures.store


@pytest.fixture
def policy(tmp_path, monkeypatch):
    return write_policy(monkeypatch, tmp_path)


@pytest.fixture
def sign_in(monkeypatch, policy):
    yield partial(signed_in, monkeypatch)
    access.set_guard(access.AccessGuard())


def planned(store, count=3):
    add_dead_letters(store, count)
    done = actions.plan_replay(store, ALL)
    preflight_done(store, done.operation_id)
    return done.operation_id


def requested(store):
    """Let ada ask for a replay; return the request."""
    one = planned(store)
    assert actions.confirm_replay(store, one).ok
    (found,) = requests.list_requests(store)
    return found


def keys(page):
    return [button.key for button in page.button]


@pytest.mark.slow
def test_a_large_replay_asks_for_approval_and_survives_a_reload(path, store, sign_in):
    sign_in("ada")
    one = planned(store)
    page = opened(path, operation=one)
    assert not page.exception
    assert page.button(key="replay_confirm").label == "Ask to replay 3"
    assert "It sends 3 records, and replays of more than 2 records need a second person." in text_of(page)

    page.button(key="replay_confirm").click().run()
    assert not page.exception
    assert replay.get(store, one).state == "ready"
    for shown in (page, opened(path, operation=one)):
        assert "Waiting for approval by a second person." in text_of(shown)
        assert "Another person decides it. Approvers: grace, linus, group:leads, root-of-all." in text_of(
            shown
        )
    (found,) = requests.list_requests(store)
    assert (found.state, found.who, found.origin) == ("pending", "ada", "dashboard")
    assert f"approve_{found.request_id}" not in keys(page)


@pytest.mark.slow
def test_a_small_replay_starts_at_once(path, store, sign_in):
    sign_in("ada")
    one = planned(store, 2)
    page = opened(path, operation=one)
    assert page.button(key="replay_confirm").label == "Replay 2 now"
    page.button(key="replay_confirm").click().run()
    assert replay.get(store, one).state == "planned"


@pytest.mark.slow
def test_an_approver_approves_in_the_list_and_the_requester_starts(path, store, sign_in):
    sign_in("ada")
    found = requested(store)
    sign_in("grace")
    page = opened(path)
    assert not page.exception
    assert "Replay 3 records (3 of orders)" in text_of(page)
    assert text_of(page).count("Waiting for approval by a second person.") == 1
    page.text_input(key=f"decision_{found.request_id}").set_value("checked").run()
    page.button(key=f"approve_{found.request_id}").click().run()
    assert not page.exception
    (row,) = rows_of(page, "Requests that are not pending, latest first")
    assert row[1:] == ["approved", "3", "ada", "grace", "checked"]
    assert ">Approved</b>" in text_of(page)
    actions_shown = [" ".join(one[1:3]) for one in rows_of(page, "Audit of replays, latest first")]
    assert any("grace" in one and "approved" in one for one in actions_shown), actions_shown

    sign_in("ada")
    page = opened(path, operation=found.operation_id)
    assert "Approved by grace" in text_of(page)
    assert page.button(key="replay_confirm").label == "Replay 3 now"
    page.button(key="replay_confirm").click().run()
    assert replay.get(store, found.operation_id).state == "planned"
    assert requests.get_request(store, found.request_id).state == "used"


@pytest.mark.slow
def test_a_refusal_without_a_reason_says_so_and_with_one_reaches_the_requester(path, store, sign_in):
    sign_in("ada")
    found = requested(store)
    sign_in("grace")
    page = opened(path, operation=found.operation_id)
    page.button(key=f"refuse_{found.request_id}").click().run()
    assert "A refusal needs a reason." in text_of(page)
    page.text_input(key=f"decision_{found.request_id}").set_value("<b>not now</b>").run()
    page.button(key=f"refuse_{found.request_id}").click().run()

    sign_in("ada")
    page = opened(path, operation=found.operation_id)
    assert "Refused by grace. Reason: &lt;b&gt;not now&lt;/b&gt;" in text_of(page)
    assert page.button(key="replay_confirm").label == "Ask to replay 3"


@pytest.mark.slow
def test_a_requester_withdraws(path, store, sign_in):
    sign_in("ada")
    found = requested(store)
    page = opened(path, operation=found.operation_id)
    page.button(key=f"withdraw_{found.request_id}").click().run()
    assert requests.get_request(store, found.request_id).state == "withdrawn"
    assert "The request is withdrawn." in text_of(redrawn(page))


@pytest.mark.slow
def test_the_link_of_the_alert_opens_the_replay(path, store, sign_in):
    sign_in("ada")
    found = requested(store)
    sign_in("grace")
    page = opened(path, request=found.request_id)
    assert not page.exception
    assert f"approve_{found.request_id}" in keys(page)
    assert "No request begins with" in text_of(opened(path, request="zzz"))


@pytest.mark.slow
def test_a_viewer_can_neither_start_nor_decide(path, store, sign_in):
    sign_in("ada")
    found = requested(store)
    sign_in("ben")
    page = opened(path, operation=found.operation_id)
    assert page.button(key="replay_confirm").disabled
    assert (
        page.button(key="replay_confirm").help
        == "ben is a viewer. The approval policy requires the role operator."
    )
    assert f"approve_{found.request_id}" not in keys(page)
    refused = actions.approve_request(store, found.request_id)
    assert (refused.ok, requests.get_request(store, found.request_id).state) == (False, "pending")
    assert not actions.clear(store, ALL).ok
    assert "requires the role operator" in actions.acknowledge(store, fire(store)).text


def test_a_page_without_sign_in_neither_asks_nor_decides(path, store, policy):
    policy.write_text(policy.read_text().replace('operator = ["ada", "grace", "ann"]', ""))
    one = planned(store)
    refused = actions.confirm_replay(store, one)
    assert not refused.ok
    assert "This page has no sign-in" in refused.text
    assert replay.get(store, one).state == "ready"


def test_an_oidc_group_gives_a_role_and_an_unverified_address_none(monkeypatch, policy, store):
    claims = {"is_logged_in": True, "iat": 1000.0, "email": "mary@example.com", "groups": ["leads"]}
    monkeypatch.setattr(access, "_claims", lambda: claims)
    monkeypatch.setattr(access.time, "time", lambda: 1000.0)
    access.set_guard(access.AccessGuard(AccessRules(oidc=True), started=True))
    from producer_core.dashboard.actions import roles

    found = roles.policy(store)
    assert found.role_of(roles.identity(found)) == "approver"
    claims["groups"] = "leads"
    assert found.role_of(roles.identity(found)) == "approver"
    claims["groups"] = [7, {"leads": 1}]
    assert found.role_of(roles.identity(found)) == "viewer"
    access.set_guard(access.AccessGuard())


def test_only_an_admin_changes_the_retention_where_the_policy_has_admins(store, sign_in):
    change = {"keep_settled": 86400.0 * 9}
    sign_in("ada")
    refused = actions.change_retention(store, change, shown={})
    assert (refused.ok, "may not change the settings of the store" in refused.text) == (False, True)
    sign_in("root-of-all")
    assert actions.change_retention(store, change, shown={}).ok


def test_a_viewer_sees_nothing_unmasked(store, sign_in):
    (message_id,) = add_dead_letters(store, 1)
    sign_in("ben")
    assert "requires the role operator" in exports.reveal(store, message_id).text
    sign_in("ada")
    assert exports.reveal(store, message_id).ok
