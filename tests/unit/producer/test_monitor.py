"""Test the monitor in code: its text and HTML, its replays and its audit."""

from __future__ import annotations

import gc
import time
from dataclasses import replace

import pytest

from producer_core import DeadLetterFilter, Monitor, ReliableKafkaProducer
from producer_core.diagnostics.incident import IncidentWindow, export_incident
from producer_core.dlq import DeadLetters
from producer_core.dlq.revisions.editor import Editor
from producer_core.errors import ConfigError, ReplayError, StoreUnavailable
from producer_core.store import Store
from producer_core.testing import InMemoryTransport
from tests.fixtures import incidents
from tests.fixtures import notebook as notebook_fixtures
from tests.fixtures.edits import add, json_dead_letter
from tests.fixtures.notebook import dead_letter
from tests.fixtures.replays import preflight_done

now, store = notebook_fixtures.now, notebook_fixtures.store


def test_outside_a_notebook_the_monitor_is_text(store):
    text = repr(Monitor(store))
    assert "10 of 100" in text and "Dead letters: orders 10" in text and "<" not in text


@pytest.mark.slow
def test_paths_and_producers_are_sources(store, tmp_path):
    assert "Dead letters: orders 10" in repr(Monitor(store.path))
    with ReliableKafkaProducer(store=tmp_path / "own.duckdb", transport=InMemoryTransport) as producer:
        assert "As of" in repr(producer.monitor())


@pytest.mark.slow
def test_a_producer_has_one_monitor_and_one_widget(tmp_path):
    with ReliableKafkaProducer(store=tmp_path / "own.duckdb", transport=InMemoryTransport) as producer:
        assert producer.monitor() is producer.monitor()
        assert producer.monitor().widget() is producer.monitor().widget()


def test_a_producer_without_a_store_explains_how_to_get_a_monitor():
    with ReliableKafkaProducer(store=None, transport=InMemoryTransport) as producer:
        with pytest.raises(StoreUnavailable, match="has no store") as caught:
            producer.monitor()
    assert "store=" in str(caught.value)


def test_without_the_widget_the_monitor_names_the_package_to_install(store, monkeypatch):
    monkeypatch.setattr("producer_core._internal.dashboard_entry.entry_points", lambda **_: ())
    monitor = Monitor(store)
    assert "Messages: 90 acknowledged, 10 failed. Pending dead letters: 10." in repr(monitor)
    assert "pip install" in repr(monitor) and "pip install" in monitor._repr_html_()
    assert monitor._display_() == repr(monitor)
    with pytest.raises(NotImplementedError):  # IPython then shows the text
        monitor._ipython_display_()


def test_a_terminal_without_a_kernel_gets_text(store, monkeypatch):
    monkeypatch.setattr("IPython.get_ipython", lambda: object())
    with pytest.raises(NotImplementedError):
        Monitor(store)._ipython_display_()


def test_a_dry_run_counts_and_sends_nothing(store):
    run = Monitor(store).dry_run(DeadLetterFilter(topic="orders"))
    assert run.total == 10 and store.rows("operations") == []
    assert "Replay preview" in run._repr_html_() and "cannot cause duplicates" in run._repr_html_()


@pytest.mark.slow
def test_a_replay_sends_nothing_before_go(store):
    monitor = Monitor(store)
    plan = monitor.replay(DeadLetterFilter(topic="orders"), timeout=0.1)
    assert plan.state == "checking"
    with pytest.raises(ReplayError, match="nothing was sent"):
        plan.go(timeout=0.1)

    preflight_done(store, plan.operation_id, newer_keys=2)
    assert plan.state == "ready"  # in code, a replay waits for go() even without findings
    assert "a newer record with the same key" in repr(plan) and "go() to start" in repr(plan)
    assert "Replay preview" in plan._repr_html_() and "go() to start" in plan._repr_html_()
    assert monitor.replay(DeadLetterFilter(topic="orders"), timeout=0.1).operation_id == plan.operation_id

    assert plan.go(newer="skip", timeout=0.1) is plan
    assert (plan.state, plan.operation.newer) == ("planned", "skip")
    assert plan.go(timeout=0.1).state == "planned"  # as in a cell that runs twice
    assert "Replaying: 0 of 10" in repr(plan)


def test_a_repeated_replay_selects_the_current_dead_letters(store, now):
    """Once a repeated replay returned the earlier plan with its outdated selection."""
    before = Monitor(store).replay(DeadLetterFilter(topic="orders"), timeout=0.0)
    DeadLetters(store).add([dead_letter(99, failed_at=now)])

    plan = Monitor(store).replay(DeadLetterFilter(topic="orders"), timeout=0.0)

    assert (before.operation.total, plan.operation.total) == (10, 11)
    assert (
        Monitor(store).replay(DeadLetterFilter(topic="orders"), timeout=0.0).operation_id == plan.operation_id
    )


@pytest.mark.slow
def test_a_replay_can_be_paused_resumed_and_cancelled_from_any_monitor(store):
    Monitor(store).replay(DeadLetterFilter(topic="orders"), timeout=0.0)
    found = Monitor(store).replays()
    assert "checking" in found._repr_html_() and "Unfinished replays: 1<" in found._repr_html_()
    preflight_done(store, found[0].operation_id)
    one = found[0].go(timeout=0.0)

    assert one.pause().state == "paused" and "resume() to continue" in one._repr_html_()
    with pytest.raises(ReplayError, match="is paused"):
        one.go(timeout=0.0)
    assert one.resume(rate=5).operation.rate == 5
    assert one.cancel().ended and "Cancelled" in one.message
    assert one.go(timeout=0.0).state == "cancelled" and Monitor(store).replays() == []
    assert [act["origin"] for act in Monitor(store).audit()][:4] == ["notebook"] * 4


def test_clear_is_audited_with_the_users_name(store, monkeypatch):
    monkeypatch.setenv("JUPYTERHUB_USER", "ada")
    monitor = Monitor(store)
    assert monitor.clear(DeadLetterFilter(topic="orders")).count == 10
    acts = monitor.audit()
    assert (acts[0]["who"], acts[0]["origin"], acts[0]["count"]) == ("ada", "notebook", 10)
    assert "ada" in acts._repr_html_() and "Actions, the latest first: " in acts._repr_html_()


def test_statistics_and_the_close_report_are_tables(tmp_path):
    with ReliableKafkaProducer(store=None, transport=InMemoryTransport) as producer:
        producer.send_message("orders", {"n": 1})
        producer.flush()
        stats = producer.get_stats()
    assert isinstance(stats, dict) and stats["messages_sent"] == 1
    assert "orders" in stats._repr_html_() and "<script" not in stats._repr_html_()
    assert "acknowledged" in producer.close()._repr_html_()


def test_a_monitor_of_an_application_shows_and_clears_only_its_own_messages(store):
    DeadLetters(store).add([replace(dead_letter(100, failed_at=1.0), application="checkout")])
    checkout, others = Monitor(store, application="checkout"), Monitor(store, application="")

    assert "Dead letters: orders 1" in repr(checkout) and "Dead letters: orders 10" in repr(others)
    assert checkout.to_frame(kind="arrow").num_rows == sum(group.count for group in checkout.groups()) == 1
    assert checkout.history(kind="arrow").num_rows == 0
    assert checkout.clear(DeadLetterFilter()).count == 1
    assert DeadLetters(store).count(DeadLetterFilter()) == 10
    assert checkout.to_frame(DeadLetterFilter(application=""), kind="arrow").num_rows == 10


@pytest.fixture
def incident(tmp_path):
    """The path of a bundle, and its range."""
    window = IncidentWindow(time.time() - 7200, time.time() - 7200 + incidents.LENGTH)
    store = Store.open(tmp_path / "live.duckdb")
    incidents.fill(store, window.since)
    export_incident(store, tmp_path / "INC-42.zip", window, who="ann", origin="cli")
    return tmp_path / "INC-42.zip", window, store


def test_an_incident_bundle_is_a_source_and_shows_its_range(incident):
    path, window, live = incident
    monitor = Monitor(str(path))
    assert "Dead letters: payments" in repr(monitor)
    whole = monitor.history(kind="arrow")
    assert (
        sum(whole["dead"].to_pylist())
        == live.rows("totals", since=int(window.since), until=int(window.until))[0]["dead"]
    )
    assert "POLICY_VIOLATION" in {group.code for group in monitor.groups()}
    with pytest.raises(StoreUnavailable, match="read-only"):
        monitor.replay()


def test_the_files_of_a_bundle_are_deleted_with_the_monitor(incident):
    monitor = Monitor(incident[0])
    folder = monitor.store.path.parent
    assert folder.is_dir()
    del monitor
    gc.collect()
    assert not folder.exists()


def test_an_edit_changes_nothing_before_go(tmp_path):
    store = Store.open(tmp_path / "store.duckdb")
    ids = add(store, json_dead_letter(1), json_dead_letter(2, {"order": 2, "amount": "<b>"}))
    monitor = Monitor(store)

    plan = monitor.edit(lambda value: {**value, "amount": value["amount"] * 2})
    for shown in (repr(plan), plan._repr_html_()):
        assert "2 of 2 dead letters would change." in shown and "Call go(reason)" in shown and "25" in shown
    assert "<b><b>" not in plan._repr_html_() and Editor(store).lineage(ids[0]).revisions == ()
    with pytest.raises(ConfigError, match="needs a reason"):
        plan.go("")
    assert plan.go("wrong unit").count == 2 and plan.go("again").count == 2
    assert "Edited 2 dead letters." in repr(plan)

    revision = Editor(store).lineage(ids[0]).revisions[0]
    assert (revision.origin, revision.reason) == ("notebook", "wrong unit")
    assert Editor(store).decoded(ids[0]).now.view["amount"] == 25.0
    assert monitor.undo_edits(DeadLetterFilter()).count == 2


def test_an_edit_by_fields_or_sql_and_the_errors_of_a_function(tmp_path):
    store = Store.open(tmp_path / "store.duckdb")
    add(store, json_dead_letter(1))
    monitor = Monitor(store)

    assert monitor.edit({"amount": 1}).preview.count == 1
    assert monitor.edit("json_merge_patch(value, '{}')").preview.unchanged == 1
    failing = monitor.edit(lambda value: value["missing"])
    assert failing.preview.refused == {"invalid": 1} and "KeyError" in repr(failing)
    assert [type(error) for error in failing.errors] == [KeyError]
    with pytest.raises(ConfigError, match="a function, an SQL expression or a dict"):
        monitor.edit(7)
