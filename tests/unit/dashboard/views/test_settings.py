"""Test the settings page."""

from __future__ import annotations

import time

import pytest

from producer_core.dashboard.auth import access
from producer_core.dashboard.auth.access_rules import AccessRules
from producer_core.dashboard.server import doctor_run
from producer_core.diagnostics.doctor.finding import DoctorFinding
from producer_core.dlq import DeadLetters
from producer_core.store import Batch
from tests.fixtures import masking_rules as masking_rules_fixtures
from tests.fixtures.pages import counts, dead_letter, opened, producer, rows_of, text_of

rules_file = masking_rules_fixtures.rules_file


def test_an_empty_store_has_a_complete_settings_page(path, store, monkeypatch):
    page = opened("settings", path, monkeypatch)
    assert not page.exception
    text = text_of(page)
    assert str(path) in text and "none pending" in text and "No sign-in required" in text


@pytest.mark.slow
def test_the_page_shows_rows_settings_and_the_command_to_change_them(path, store, monkeypatch, rules_file):
    store.append(Batch("p", 0, (counts(time.time() - 5, "orders", acknowledged=3),), producer=producer()))
    DeadLetters(store).add([dead_letter(1, failed_at=time.time() - 5)])
    store.change_settings({"keep_hours": 86_400.0 * 7}, who="ada", origin="test")
    page = opened("settings", path, monkeypatch)
    assert not page.exception
    assert ["producers", "1"] in rows_of(page, "Rows by table")
    retention = {row[0]: row for row in rows_of(page, "Retention")}
    assert retention["keep_hours"][2:] == ["7 days set", "90 days"]
    assert page.code[0].value.startswith("producer-core store set keep_settled=30d dlq_max_size=10000")
    assert "birth_date" in text_of(page)


def test_the_doctor_button_starts_a_run_and_shows_its_findings(path, store, monkeypatch):
    monkeypatch.setattr(
        doctor_run,
        "run_checks",
        lambda *_: iter([DoctorFinding("disk", "warning", "Nearly full.", "Free some.")]),
    )
    page = opened("settings", path, monkeypatch)
    page.button(key="run-doctor").click().run()
    assert doctor_run.latest(path).join(10)
    page.run()
    assert not page.exception
    assert "No problems, 1 warning" in text_of(page)
    assert rows_of(page, "Doctor findings, worst first") == [
        ["disk Warning", "Nearly full. What to do: Free some."]
    ]


def test_read_only_users_cannot_run_the_doctor(path, store, monkeypatch):
    guard = access.AccessGuard(AccessRules(read_only=("*",)))
    monkeypatch.setattr(access, "_guards", [guard])
    page = opened("settings", path, monkeypatch)
    assert not page.exception
    assert page.button(key="run-doctor").disabled


@pytest.mark.slow
def test_the_page_begins_with_what_to_do_and_ends_with_internals(path, store, monkeypatch):
    text = text_of(opened("settings", path, monkeypatch))
    order = [
        "Doctor",
        "Retention",
        "Dead letter limits",
        "Alert rules",
        "Access",
        "Store",
        "Versions",
        "Rows",
    ]
    places = [text.index(f">{heading}</h2>") for heading in order]
    assert places == sorted(places)
