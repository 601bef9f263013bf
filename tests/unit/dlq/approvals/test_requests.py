"""Requests: approve, refuse and withdraw, by the right people, once, and with an audit row each."""

from __future__ import annotations

import os
import threading

import pytest

from producer_core import replay
from producer_core._internal.identity import Identity, identify, system_identity
from producer_core.dlq.approvals import requests
from producer_core.dlq.approvals.requests import approve, refuse, withdraw
from producer_core.errors import ApprovalRequired, NotPermitted, ReplayError
from producer_core.store import Store
from tests.fixtures.approvals import ADA, BEN, GRACE, LINUS, write_policy
from tests.fixtures.replays import ALL, CLUSTER, add_dead_letters


@pytest.fixture
def request_id(store, clock, tmp_path, monkeypatch):
    write_policy(monkeypatch, tmp_path)
    add_dead_letters(store, 4)
    with pytest.raises(ApprovalRequired) as raised:
        replay.plan(store, ALL, who=ADA, origin="dashboard", can_run=CLUSTER, reason="INC-1", clock=clock)
    return raised.value.request_id


@pytest.fixture
def by(clock):
    return lambda who: {"who": who, "origin": "dashboard", "clock": clock}


def state(store, request_id):
    return requests.get_request(store, request_id).state


def audited(store, action):
    return [(row["who"], row["outcome"]) for row in store.rows("audit_latest", action=action)]


def test_a_request_has_what_it_would_do_its_reason_and_its_expiry(store, clock, request_id):
    found = requests.get_request(store, request_id)
    assert requests.summary(found) == f"Replay 4 records (4 of orders) to {CLUSTER}"
    assert (found.who, found.reason, found.origin) == ("ada@example.com", "INC-1", "dashboard")
    assert found.expires_at == clock.now + 24 * 3600
    assert found.choices["newer"] == "auto"
    assert audited(store, "request")[0][0] == "ada@example.com"


@pytest.mark.parametrize(
    "requester",
    [ADA, Identity("ada"), Identity("alovelace"), Identity("Ada@Example.com", groups=["leads"])],
    ids=str,
)
def test_a_requester_does_not_decide_the_own_request_under_any_name(
    store, request_id, by, requester, tmp_path, monkeypatch
):
    write_policy(monkeypatch, tmp_path, OWN)
    for decide in (approve, refuse):
        with pytest.raises(NotPermitted, match="a requester cannot decide it"):
            decide(store, request_id, reason="mine", **by(requester))
    assert state(store, request_id) == "pending"
    assert len(audited(store, "request_decide")) == 2


OWN = """
[roles]
operator = ["ben"]
approver = ["ada", "grace", "group:leads"]
[people]
ada = ["ada@example.com", "alovelace"]
[second_person]
replays_above = 2
"""


def test_only_an_approver_decides(store, request_id, by):
    for who in (BEN, Identity("ann"), Identity("stranger")):
        with pytest.raises(NotPermitted, match="is not an approver"):
            approve(store, request_id, **by(who))
    assert state(store, request_id) == "pending"


def test_a_member_of_a_group_of_approvers_decides(store, request_id, by):
    assert approve(store, request_id, **by(Identity("mary", groups=["leads"]))).state == "approved"


def test_a_page_without_sign_in_decides_nothing(store, request_id, by):
    with pytest.raises(NotPermitted, match="the approver is unknown"):
        approve(store, request_id, **by(Identity("grace", known=False)))


def test_a_refusal_needs_a_reason_and_keeps_it(store, request_id, by):
    with pytest.raises(ReplayError, match="A refusal needs a reason"):
        refuse(store, request_id, reason=" ", **by(GRACE))
    refused = refuse(store, request_id, reason="The shop is not ready.", **by(GRACE))
    assert (refused.state, refused.decided_by, refused.decision) == (
        "refused",
        "grace",
        "The shop is not ready.",
    )
    assert (
        "refused, requested by ada@example.com: The shop is not ready."
        in audited(store, "request_refuse")[0][1]
    )
    with pytest.raises(ReplayError, match="cannot be approved"):
        approve(store, request_id, **by(LINUS))


def test_an_expired_request_cannot_be_approved_and_stays_expired(store, clock, request_id, by):
    clock.forward(24 * 3600)
    with pytest.raises(ReplayError, match="is expired"):
        approve(store, request_id, **by(GRACE))
    assert state(store, request_id) == "expired"


def test_a_request_whose_replay_changed_is_void_and_not_approved(store, request_id, by):
    with store.borrow(write=True) as connection:
        connection.execute("UPDATE dead_letter_bodies SET value = 'x'::BLOB")
    with pytest.raises(ReplayError, match="Nothing was approved"):
        approve(store, request_id, **by(GRACE))
    assert state(store, request_id) == "void"


def test_a_changed_request_can_still_be_refused(store, request_id, by):
    with store.borrow(write=True) as connection:
        connection.execute("UPDATE dead_letter_bodies SET value = 'x'::BLOB")
    assert refuse(store, request_id, reason="no", **by(GRACE)).state == "refused"


def test_a_requester_or_an_admin_withdraws(store, request_id, by):
    with pytest.raises(NotPermitted, match="did not make the request"):
        withdraw(store, request_id, **by(GRACE))
    assert withdraw(store, request_id, **by(Identity("alovelace@host"))).state == "withdrawn"
    with pytest.raises(ReplayError, match="is withdrawn"):
        withdraw(store, request_id, **by(Identity("root-of-all")))


def test_of_two_approvers_at_the_same_time_one_decides(store, clock, request_id, by, tmp_path):
    """Two stores on the same file, as in two processes, decide in two threads."""
    other = Store.open(store.path, clock=clock)
    outcomes, ready = [], threading.Barrier(2)

    def decide(on, act, who):
        ready.wait()
        try:
            outcomes.append(act(on, request_id, reason="at the same time", **by(who)).state)
        except ReplayError as error:
            outcomes.append(error)

    threads = [
        threading.Thread(target=decide, args=(store, approve, GRACE)),
        threading.Thread(target=decide, args=(other, refuse, LINUS)),
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    other.close()
    (won,) = [found for found in outcomes if isinstance(found, str)]
    assert state(store, request_id) == won
    (lost,) = [found for found in outcomes if not isinstance(found, str)]
    assert "cannot be" in str(lost) or "at the same time" in str(lost)
    assert len(audited(store, "request_approve")) + len(audited(store, "request_refuse")) == 1


def test_a_request_is_found_by_the_unique_beginning_of_its_id(store, request_id):
    assert requests.get_request(store, request_id[:5]).request_id == request_id
    for wrong in ("", "zzz"):
        with pytest.raises(ReplayError, match="No request begins with"):
            requests.get_request(store, wrong)


# names


def test_a_name_from_the_environment_gives_no_role_to_a_command(monkeypatch):
    monkeypatch.setenv("JUPYTERHUB_USER", "grace")
    me = system_identity()
    assert "grace" not in me.names
    assert "grace" in me.persons  # and the person of that name counts as the same one


def test_an_actor_of_a_command_is_also_the_user_of_the_system(monkeypatch):
    found = identify("grace", "cli")
    assert system_identity().names <= found.persons
    assert os.geteuid() != 0 or "root" in found.persons


def test_an_identity_survives_its_json():
    found = Identity("Ada@Example.com", names=["Ada"], persons=["alovelace"], groups=["leads"])
    again = Identity.from_json(found.to_json())
    assert (again, again.names, again.persons, again.groups) == (
        found,
        found.names,
        found.persons,
        found.groups,
    )
