"""Test the list of groups: its data and the selection of a group."""

from __future__ import annotations

import pytest

from producer_core.dashboard.components import group_list as module
from producer_core.dashboard.components.group_list import GroupItem, group_list

ITEM = GroupItem(
    "abc", "3", "POLICY_VIOLATION", "A policy.", "<b>x</b>", "on orders", 1.0, 2.0, (0, 3), "3 now", selected=False
)  # fmt: skip


@pytest.fixture
def component(monkeypatch):
    """Record what the component receives, and hold the state that the browser reports."""
    received = {}
    monkeypatch.setattr(module, "_component", lambda: lambda **given: received.update(given))
    monkeypatch.setattr(module.st, "session_state", {})
    return received


def test_the_browser_receives_the_groups_as_values(component):
    group_list([ITEM], key="groups", on_select=print)

    (group,) = component["data"]["groups"]
    assert (group["id"], group["sample"], group["trend"]) == ("abc", "<b>x</b>", (0, 3))
    assert component["data"]["collapsed"] == module.COLLAPSED


@pytest.mark.parametrize(
    ("reported", "selections"),
    [({"select": {"id": "abc"}}, ["abc"]), ({"select": {"id": None}}, [None]), ({"select": None}, []), ({}, [])],
)  # fmt: skip
def test_a_click_selects_a_group_or_deselects_it(component, reported, selections):
    found = []
    group_list([], key="groups", on_select=found.append)
    module.st.session_state["groups"] = reported

    component["on_select_change"]()

    assert found == selections
