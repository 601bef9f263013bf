"""Test the settings page: its data, its texts, the doctor, and the page in different states."""

from __future__ import annotations

import threading
import time

import pytest

from producer_core.cli.store import _setting
from producer_core.dashboard.auth import access
from producer_core.dashboard.auth.access_rules import AccessRules
from producer_core.dashboard.queries.settings import cluster_connection, settings
from producer_core.dashboard.server import doctor_run
from producer_core.dashboard.wording import settings as settings_wording
from producer_core.diagnostics.doctor.finding import DoctorFinding
from producer_core.dlq import DeadLetters
from producer_core.store import Batch, Store
from tests.fixtures.pages import counts, dead_letter, opened, producer, rows_of, text_of


@pytest.fixture
def path(tmp_path):
    return tmp_path / "store.duckdb"


@pytest.fixture
def store(path):
    return Store.open(path)


@pytest.fixture(autouse=True)
def no_earlier_runs(monkeypatch):
    monkeypatch.setattr(doctor_run, "_latest", {})


@pytest.fixture
def rules_file(tmp_path, monkeypatch):
    file = tmp_path / "masking.toml"
    file.write_text('names = ["birth_date"]\nhide = ["keys"]\n')
    monkeypatch.setenv("PRODUCER_CORE_MASKING", str(file))
    return file


# data


def test_the_settings_come_from_the_store(store):
    store.change_settings({"keep_settled": 60 * 86_400.0, "dlq_max_bytes": 0}, who="ada", origin="test")
    found = settings(store, time.time())
    values = {one.name: (one.value, one.changed) for one in (*found.kept, *found.bounds)}
    assert values["keep_settled"] == (60 * 86_400.0, True)
    assert values["keep_seconds"] == (7200.0, False)
    assert values["dlq_max_bytes"] == (None, True)
    assert values["dlq_max_size"] == (10_000, False)
    assert found.info.schema_version and found.free > 0


def test_installed_versions_are_listed(store):
    found = settings(store, time.time()).versions
    assert {"producer-core", "confluent-kafka", "librdkafka", "DuckDB", "Streamlit", "Python"} <= found.keys()
    assert "not installed" not in found.values()


def test_alert_and_masking_rules_come_from_their_files(store, path, rules_file):
    path.with_name("alerts.toml").write_text("[rules.slow_delivery]\nenabled = false\n")
    found = settings(store, time.time())
    assert found.alerts.problem is None and found.alerts.switched_off == ("slow_delivery",)
    assert found.masking.rules.names == ("birth_date",) and found.masking.exists


def test_an_invalid_alert_rules_file_is_reported(store, path):
    path.with_name("alerts.toml").write_text("[rules.slow_delivery]\nenabeld = false\n")
    found = settings(store, time.time())
    assert "enabeld" in found.alerts.problem


@pytest.mark.parametrize(
    ("given", "servers", "secret"),
    [
        ("{}", "", False),
        ('{"bootstrap.servers": "a:9092", "acks": "all"}', "a:9092", False),
        (
            '{"bootstrap.servers": "a:9092", "security.protocol": "SASL_SSL", "sasl.password": "***"}',
            "a:9092",
            True,
        ),
    ],
)
def test_connection_settings_never_contain_secrets(given, servers, secret):
    found = cluster_connection("c", given)
    assert (found.servers, found.secret) == (servers, secret)
    assert "acks" not in found.settings and "***" not in found.settings.values()


# texts


@pytest.mark.parametrize(
    ("name", "value"),
    [("keep_seconds", 7200.0), ("keep_settled", 30 * 86_400.0), ("dlq_max_size", 10_000), ("dlq_max_bytes", 256 << 20),
     ("dlq_max_age", 7 * 86_400.0), ("dlq_max_bytes", None)],
)  # fmt: skip
def test_the_command_parses_the_values_that_the_page_shows(name, value):
    assert _setting(name, settings_wording.written(name, value)) == (value or 0)


def test_durations_of_settings_use_whole_units():
    assert [settings_wording.length(seconds) for seconds in (7200, 86_400, 5400, 61)] == [
        "2 hours",
        "1 day",
        "90 minutes",
        "61 s",
    ]


@pytest.mark.parametrize(("problems", "warnings", "tone"), [(1, 2, "bad"), (0, 1, "warning"), (0, 0, "good")])
def test_a_finished_doctor_run_has_a_summary(problems, warnings, tone):
    found, text = settings_wording.doctor_result(problems, warnings, 9, 3.2)
    assert found == tone and text.endswith("9 checks in 3 s.")


# the doctor


def test_a_doctor_run_sorts_its_findings_when_it_finishes():
    proceed = threading.Event()

    def checks():
        yield DoctorFinding("first", "ok", "Fine.")
        proceed.wait(10)
        yield DoctorFinding("second", "problem", "Broken.", "Repair it.")

    run = doctor_run.DoctorRun(checks(), servers="").start()
    assert not run.finished
    proceed.set()
    assert run.join(10)
    assert [one.check for one in run.findings] == ["second", "first"]


def test_a_doctor_run_that_fails_reports_it_and_finishes():
    def checks():
        yield DoctorFinding("first", "ok", "Fine.")
        raise ValueError("unexpected")

    run = doctor_run.DoctorRun(checks(), servers="").start()
    assert run.join(10)
    assert run.findings[0].level == "problem" and "ValueError" in run.findings[0].text


def test_a_store_has_one_doctor_run_at_a_time(path, store, monkeypatch):
    proceed = threading.Event()

    def checks(*_):
        proceed.wait(10)
        yield DoctorFinding("first", "ok", "Fine.")

    monkeypatch.setattr(doctor_run, "run_checks", checks)
    first = doctor_run.begin(path, None)
    assert doctor_run.begin(path, None) is first
    proceed.set()
    assert first.join(10)
    second = doctor_run.begin(path, None)
    assert second is not first and second.join(10)


def test_a_cluster_that_requires_credentials_is_not_checked(path, store, monkeypatch):
    monkeypatch.setattr(doctor_run, "java_version", lambda: 17)
    secured = cluster_connection("c", '{"bootstrap.servers": "a:9092", "sasl.password": "***"}')
    found = {one.check: one for one in doctor_run.run_checks(path, secured, ())}
    assert "holds no credentials" in found["cluster"].text and "--config-file" in found["cluster"].fix
    assert found["store"].level == "ok"


# the page


def test_an_empty_store_has_a_complete_settings_page(path, store, monkeypatch):
    page = opened("settings", path, monkeypatch)
    assert not page.exception
    text = text_of(page)
    assert str(path) in text and "none pending" in text and "No sign-in required" in text


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
    assert rows_of(page, "Doctor findings, the worst first") == [
        ["disk Warning", "Nearly full. What to do: Free some."]
    ]


def test_read_only_users_cannot_run_the_doctor(path, store, monkeypatch):
    guard = access.AccessGuard(AccessRules(read_only=("*",)))
    monkeypatch.setattr(access, "_guards", [guard])
    page = opened("settings", path, monkeypatch)
    assert not page.exception
    assert page.button(key="run-doctor").disabled
