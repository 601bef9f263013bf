"""A replay that starts by itself counts for the person who asked for it, in whatever process its check runs."""

from __future__ import annotations

import pytest

from producer_core import replay
from producer_core._internal import identity
from producer_core._internal.identity import Identity
from producer_core.dlq import DeadLetterFilter, DeadLetters
from producer_core.errors import ApprovalRequired
from tests.fixtures.approvals import POLICY, write_policy
from tests.fixtures.replays import CLUSTER, add_dead_letters, dead_letter, preflight_done


@pytest.fixture(autouse=True)
def policy(tmp_path, monkeypatch):
    return write_policy(monkeypatch, tmp_path, POLICY.replace('"ann"]', '"ann", "svc"]'))


@pytest.fixture
def as_user(monkeypatch):
    """Let the process run as another user of the system."""
    return lambda name: monkeypatch.setattr(identity, "system_user", lambda: name)


def planned(store, clock, topic, **choices):
    by = {"who": "me@host", "origin": "cli"}
    return replay.plan(
        store, DeadLetterFilter(topic=topic), **by, can_run=CLUSTER, clock=clock, check_first=True, **choices
    )


def started_by_itself(store, clock, topic, as_user, user):
    """Plan a small replay as this user, and let a runner of the service user check and start it."""
    as_user(user)
    operation = planned(store, clock, topic, go_by_itself=True)
    as_user("svc")
    preflight_done(store, operation.operation_id)
    return replay.get(store, operation.operation_id)


def test_a_replay_that_starts_by_itself_counts_for_its_requester(store, clock, as_user):
    add_dead_letters(store, 2)
    DeadLetters(store).add([dead_letter(10, topic="payments")])
    assert started_by_itself(store, clock, "orders", as_user, "ann").state == "planned"
    with store.borrow() as connection:
        assert connection.execute("SELECT person FROM replay_starts").fetchall() == [("ann",)]

    as_user("ann")
    second = planned(store, clock, "payments")
    with store.borrow(write=True) as connection:
        connection.execute(
            "UPDATE operations SET state = 'ready' WHERE operation_id = ?", [second.operation_id]
        )
    with pytest.raises(ApprovalRequired, match="With the 2 records"):
        replay.go(store, second.operation_id, who="me@host", origin="cli", clock=clock)


def test_two_people_do_not_share_the_count_of_the_service_user(store, clock, as_user):
    add_dead_letters(store, 2)
    DeadLetters(store).add([dead_letter(10, topic="payments")])
    assert started_by_itself(store, clock, "orders", as_user, "ann").state == "planned"
    assert started_by_itself(store, clock, "payments", as_user, "grace").state == "planned"


def test_an_identity_keeps_its_account():
    kept = Identity.from_json(Identity("me@host", names=("ann",), account="ann").to_json())
    assert (str(kept), kept.account) == ("me@host", "ann")
    older = '{"text":"ann@host","names":[],"persons":[],"groups":[]}'
    assert Identity.from_json(older).account == "ann@host"
