"""The settings page: what it reads, how it says it, the doctor beside it, and the page in each of its states."""

from __future__ import annotations

import threading
import time

import pytest

from producer_core.cli.store import _setting
from producer_core.dashboard.auth import access
from producer_core.dashboard.auth.access_rules import AccessRules
from producer_core.dashboard.queries.settings import cluster_connection, settings
from producer_core.dashboard.server import doctor_run
from producer_core.dashboard.wording import settings as say
from producer_core.diagnostics.doctor.finding import DoctorFinding
from producer_core.dlq import DeadLetters
from producer_core.store import Batch, Store
from tests.unit.dashboard_pages import counts, dead_letter, opened, producer, rows_of, text_of


@pytest.fixture
def path(tmp_path):
    return tmp_path / "store.duckdb"


@pytest.fixture
def store(path):
    return Store.open(path)


@pytest.fixture(autouse=True)
def nothing_examined(monkeypatch):
    monkeypatch.setattr(doctor_run, "_latest", {})


@pytest.fixture
def rules_file(tmp_path, monkeypatch):
    file = tmp_path / "masking.toml"
    file.write_text('names = ["birth_date"]\nhide = ["keys"]\n')
    monkeypatch.setenv("PRODUCER_CORE_MASKING", str(file))
    return file


# data


def test_the_settings_are_those_of_the_store(store):
    store.change_settings({"keep_settled": 60 * 86_400.0, "dlq_max_bytes": 0}, who="ada", origin="test")
    found = settings(store, time.time())
    kept = {one.name: (one.value, one.changed) for one in (*found.kept, *found.bounds)}
    assert kept["keep_settled"] == (60 * 86_400.0, True)
    assert kept["keep_seconds"] == (7200.0, False)
    assert kept["dlq_max_bytes"] == (None, True)
    assert kept["dlq_max_size"] == (10_000, False)
    assert found.info.schema_version and found.free > 0


def test_what_is_installed_is_named(store):
    found = settings(store, time.time()).versions
    assert {"producer-core", "confluent-kafka", "librdkafka", "DuckDB", "Streamlit", "Python"} <= found.keys()
    assert "not installed" not in found.values()


def test_rules_of_alerts_and_masks_are_read_from_their_files(store, path, rules_file):
    path.with_name("alerts.toml").write_text("[rules.slow_delivery]\nenabled = false\n")
    found = settings(store, time.time())
    assert found.alerts.problem is None and found.alerts.switched_off == ("slow_delivery",)
    assert found.masking.rules.names == ("birth_date",) and found.masking.exists


def test_a_file_of_alert_rules_that_is_wrong_is_said(store, path):
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
def test_how_a_cluster_is_reached_never_holds_a_secret(given, servers, secret):
    found = cluster_connection("c", given)
    assert (found.servers, found.secret) == (servers, secret)
    assert "acks" not in found.settings and "***" not in found.settings.values()


# words


@pytest.mark.parametrize(
    ("name", "value"),
    [("keep_seconds", 7200.0), ("keep_settled", 30 * 86_400.0), ("dlq_max_size", 10_000), ("dlq_max_bytes", 256 << 20),
     ("dlq_max_age", 7 * 86_400.0), ("dlq_max_bytes", None)],
)  # fmt: skip
def test_what_the_command_is_given_means_what_the_page_shows(name, value):
    assert _setting(name, say.written(name, value)) == (value or 0)


def test_lengths_are_said_in_whole_units():
    assert [say.length(seconds) for seconds in (7200, 86_400, 5400, 61)] == [
        "2 hours",
        "1 day",
        "90 minutes",
        "61 s",
    ]


@pytest.mark.parametrize(("problems", "warnings", "tone"), [(1, 2, "bad"), (0, 1, "warning"), (0, 0, "good")])
def test_an_examination_ends_in_a_sentence(problems, warnings, tone):
    found, text = say.doctor_result(problems, warnings, 9, 3.2)
    assert found == tone and text.endswith("9 checks in 3 s.")


# the doctor


def test_an_examination_is_followed_while_it_goes_on_and_sorted_when_it_is_over():
    go_on = threading.Event()

    def look():
        yield DoctorFinding("first", "ok", "Well.")
        go_on.wait(10)
        yield DoctorFinding("second", "problem", "Broken.", "Mend it.")

    running = doctor_run.Examination(look(), about="").start()
    assert not running.over
    go_on.set()
    assert running.join(10)
    assert [one.check for one in running.found] == ["second", "first"]


def test_one_that_breaks_off_says_so_and_ends():
    def look():
        yield DoctorFinding("first", "ok", "Well.")
        raise ValueError("odd")

    running = doctor_run.Examination(look(), about="").start()
    assert running.join(10)
    assert running.found[0].level == "problem" and "ValueError" in running.found[0].text


def test_there_is_one_examination_of_a_store_at_a_time(path, store, monkeypatch):
    go_on = threading.Event()

    def look(*_):
        go_on.wait(10)
        yield DoctorFinding("first", "ok", "Well.")

    monkeypatch.setattr(doctor_run, "look", look)
    first = doctor_run.begin(path, None)
    assert doctor_run.begin(path, None) is first
    go_on.set()
    assert first.join(10)
    second = doctor_run.begin(path, None)
    assert second is not first and second.join(10)


def test_a_cluster_that_asks_for_credentials_is_not_asked(path, store, monkeypatch):
    monkeypatch.setattr(doctor_run, "java_version", lambda: 17)
    secured = cluster_connection("c", '{"bootstrap.servers": "a:9092", "sasl.password": "***"}')
    found = {one.check: one for one in doctor_run.look(path, secured, ())}
    assert "holds no credentials" in found["cluster"].text and "--config-file" in found["cluster"].fix
    assert found["store"].level == "ok"


# the page


def test_the_page_of_an_empty_store_says_what_is_there(path, store, monkeypatch):
    page = opened("settings", path, monkeypatch)
    assert not page.exception
    said = text_of(page)
    assert str(path) in said and "none wait" in said and "No sign-in required" in said


def test_the_page_names_rows_settings_and_the_command_that_changes_them(path, store, monkeypatch, rules_file):
    store.append(Batch("p", 0, (counts(time.time() - 5, "orders", acknowledged=3),), producer=producer()))
    DeadLetters(store).add([dead_letter(1, failed_at=time.time() - 5)])
    store.change_settings({"keep_hours": 86_400.0 * 7}, who="ada", origin="test")
    page = opened("settings", path, monkeypatch)
    assert not page.exception
    assert ["producers", "1"] in rows_of(page, "Rows by table")
    kept = {row[0]: row for row in rows_of(page, "How long things are kept")}
    assert kept["keep_hours"][2:] == ["7 days set", "90 days"]
    assert page.code[0].value.startswith("producer-core store set keep_settled=30d dlq_max_size=10000")
    assert "birth_date" in text_of(page)


def test_the_button_examines_and_the_findings_appear(path, store, monkeypatch):
    monkeypatch.setattr(
        doctor_run, "look", lambda *_: iter([DoctorFinding("disk", "warning", "Nearly full.", "Free some.")])
    )
    page = opened("settings", path, monkeypatch)
    page.button(key="examine").click().run()
    assert doctor_run.latest(path).join(10)
    page.run()
    assert not page.exception
    assert "No problems, 1 warning" in text_of(page)
    assert rows_of(page, "What the doctor found, the worst first") == [
        ["disk Warning", "Nearly full. What to do: Free some."]
    ]


def test_who_only_looks_may_not_examine(path, store, monkeypatch):
    guard = access.AccessGuard(AccessRules(read_only=("*",)))
    monkeypatch.setattr(access, "_guards", [guard])
    page = opened("settings", path, monkeypatch)
    assert not page.exception
    assert page.button(key="examine").disabled
