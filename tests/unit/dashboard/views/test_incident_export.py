"""Test the button that exports an incident, on the page of an alert and on Errors."""

from __future__ import annotations

import time
from dataclasses import replace

import pytest

from producer_core.dashboard.auth import access
from tests.fixtures.alert_pages import fire, lost, run
from tests.fixtures.errors import fill
from tests.fixtures.pages import opened


def exports(block):
    """Return the messages of the Export incident buttons in a block."""
    found = []
    for child in getattr(block, "children", {}).values():
        popover = getattr(child.proto, "popover", None)
        if popover is not None and popover.label == "Export incident":
            found.append((popover, child))
        found += exports(child)
    return found


def code_of(page):
    return [element.value for element in page.code]


def test_errors_export_the_range_of_the_page(path, store, monkeypatch):
    """The range begins with a window of the charts."""
    fill(store)
    page = opened("errors", path, monkeypatch, since="1700000000", until="1700003600")
    assert not page.exception
    ((popover, _),) = exports(page.main)
    assert not popover.disabled
    (command,) = (one for one in code_of(page) if "incident export" in one)
    assert "--since=2023-11-14T22:13:00Z --until=2023-11-14T23:13:20Z" in command
    assert f"--store={path}" in command


def test_a_range_that_is_too_long_has_no_export(path, store, monkeypatch):
    page = opened("errors", path, monkeypatch, since="1500000000", until="1700003600")
    ((popover, _),) = exports(page.main)
    assert popover.disabled and "longer than 31 days" in popover.help
    assert not [one for one in code_of(page) if "incident export" in one]


def test_an_alert_exports_its_range_up_to_now(store):
    begin = time.time() - 600
    item = lost(begin)
    fire(store, item)
    page = run(store.path, alert=item.alert_id)
    assert len(exports(page.main)) == 1
    (command,) = (one for one in code_of(page) if "incident export" in one)
    since, until = (_seconds(command, name) for name in ("since", "until"))
    assert since <= begin and begin + 600 <= until + 1 <= time.time() + 2


def _seconds(command, name):
    from datetime import datetime

    (value,) = (part.partition("=")[2] for part in command.split() if part.startswith(f"--{name}="))
    return datetime.fromisoformat(value).timestamp()


@pytest.mark.slow
def test_a_user_without_the_right_to_act_has_no_export(path, store, monkeypatch):
    access.set_guard(replace(access.guard(), read_only="This page is read-only."))
    page = opened("errors", path, monkeypatch)
    ((popover, _),) = exports(page.main)
    assert popover.disabled and popover.help == "This page is read-only."
