"""Test a change of the retention and its audit."""

from __future__ import annotations

import time

import orjson
import pytest

from producer_core.dashboard import actions
from producer_core.dashboard.auth import access
from producer_core.dashboard.auth.access_rules import AccessRules
from producer_core.dlq import DeadLetters
from producer_core.store import Retention, Store
from tests.fixtures.pages import dead_letter

DAY = 86_400.0


@pytest.fixture
def store(path):
    return Store.open(path)


def audit(store):
    return [
        (row["who"], row["origin"], row["action"], orjson.loads(row["selection"]), row["outcome"])
        for row in store.rows("audit_latest")
    ]


def test_a_change_applies_to_the_store_and_is_audited(store):
    done = actions.change_retention(store, {"keep_hours": 7 * DAY}, shown={"keep_hours": 90 * DAY}, who="ada")

    assert done.ok and "keep_hours is 7 days" in done.text
    assert Store.open(store.path).retention().keep_hours == 7 * DAY
    ((who, origin, action, selection, outcome),) = audit(store)
    assert (who, origin, action) == ("ada", "dashboard", "set")
    assert selection == {"keep_hours": 7 * DAY} and outcome == "keep_hours set to 604800.0"


def test_the_click_deletes_nothing_and_the_next_maintenance_deletes(store):
    now = time.time()
    DeadLetters(store).add([dead_letter(1, failed_at=now - 20 * DAY)])
    with store.borrow(write=True) as connection:
        connection.execute("UPDATE dead_letters SET state = 'replayed', state_at = ?", [now - 20 * DAY])

    actions.change_retention(store, {"keep_settled": 7 * DAY}, shown={"keep_settled": 30 * DAY}, who="ada")
    assert store.info().rows["dead_letters"] == 1

    store.maintain(now)
    assert store.info().rows["dead_letters"] == 0


def test_the_default_value_removes_the_setting(store):
    store.change_settings({"keep_hours": 7 * DAY}, who="ada", origin="test")
    default = Retention().keep_hours

    assert actions.change_retention(
        store, {"keep_hours": default}, shown={"keep_hours": 7 * DAY}, who="ada"
    ).ok
    assert store.settings() == {} and store.retention().keep_hours == default


def test_a_value_that_another_operator_has_changed_is_not_overwritten(store):
    store.change_settings({"keep_hours": 7 * DAY}, who="bea", origin="test")
    done = actions.change_retention(store, {"keep_hours": 3 * DAY}, shown={"keep_hours": 90 * DAY}, who="ada")

    assert not done.ok and "keep_hours changed in the meantime." in done.text
    assert store.retention().keep_hours == 7 * DAY
    assert audit(store)[0][0] == "ada" and audit(store)[0][4].startswith("Refused: keep_hours changed")


@pytest.mark.parametrize("value", [0.0, float("nan"), float("inf")])
def test_an_invalid_value_is_refused(store, value):
    done = actions.change_retention(store, {"keep_hours": value}, shown={}, who="ada")
    assert not done.ok and store.settings() == {}


def test_read_only_users_cannot_change_the_retention(store):
    access.set_guard(access.AccessGuard(AccessRules(read_only=("*",))))
    done = actions.change_retention(store, {"keep_hours": 3 * DAY}, shown={"keep_hours": 90 * DAY})

    assert not done.ok and "read-only" in done.text
    assert store.settings() == {}
    assert [entry[4].partition(":")[0] for entry in audit(store)] == ["Refused"]
