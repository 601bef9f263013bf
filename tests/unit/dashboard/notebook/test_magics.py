"""The magics, and the monitor in code: values that a notebook shows as tables and a terminal as text."""

from __future__ import annotations

import builtins

import pytest
from IPython.core.interactiveshell import InteractiveShell

import producer_core
from producer_core import DeadLetterFilter, Monitor, ReliableKafkaProducer
from producer_core.dashboard.notebook.magics import Magics
from producer_core.dlq import DeadLetters
from producer_core.errors import ConfigError, ReplayError, StoreUnavailable
from producer_core.testing import InMemoryTransport
from tests.fixtures import notebook as parts
from tests.fixtures.notebook import HOSTILE, dead_letter
from tests.fixtures.replays import looked

displayed, now, store = parts.displayed, parts.now, parts.store


@pytest.fixture(scope="module")
def ipython():
    shell = InteractiveShell()
    producer_core.load_ipython_extension(shell)
    yield shell
    shell.history_manager.end_session()
    builtins.__dict__.pop("get_ipython", None)


@pytest.fixture
def shell(ipython):
    """Provide the shared shell with a fresh namespace per test."""
    before = dict(ipython.user_ns)
    yield ipython
    ipython.user_ns.clear()
    ipython.user_ns.update(before)


def test_load_ext_registers_the_magics(shell):
    magics = shell.magics_manager.magics
    assert {"producer_stats", "dlq"} <= set(magics["line"]) and "watch" in magics["cell"]


def test_producer_stats_takes_a_path_a_variable_or_the_only_producer(shell, store, tmp_path):
    assert "10 of 100" in repr(shell.run_line_magic("producer_stats", f"'{store.path}'"))
    shell.user_ns["mine"] = store
    assert "10 of 100" in repr(shell.run_line_magic("producer_stats", "mine"))
    with ReliableKafkaProducer(store=tmp_path / "own.duckdb", transport=InMemoryTransport) as producer:
        shell.user_ns["producer"] = producer
        assert shell.run_line_magic("producer_stats", "") is producer.monitor()


def test_the_default_store_is_the_default_source(shell):
    with pytest.raises(StoreUnavailable):
        shell.run_line_magic("producer_stats", "")


def test_causes_are_shown_as_text_and_as_a_table(shell, store, now, capsys):
    DeadLetters(store).add([dead_letter(99, topic=HOSTILE, failed_at=now)])
    groups = shell.run_line_magic("dlq", f"{store.path} --topic orders")

    assert [group.count for group in groups] == [10]
    assert "POLICY_VIOLATION" in groups._repr_html_() and "safe" in groups._repr_html_()
    everything = shell.run_line_magic("dlq", str(store.path))
    assert "<img" not in everything._repr_html_()
    from IPython.lib.pretty import pretty

    assert pretty(groups).startswith("10 x POLICY_VIOLATION on orders, replay: safe")


def test_an_invalid_option_raises_config_error(store):
    with pytest.raises(ConfigError, match="%dlq"):
        Magics(None).dlq("--colour red")
    with pytest.raises(ConfigError):
        Magics(None).dlq("'open quote")


def test_a_variable_of_another_type_raises_config_error(shell):
    shell.user_ns["number"] = 3
    with pytest.raises(ConfigError, match="number is not a producer"):
        shell.run_line_magic("dlq", "number")


# %%watch


def test_a_watched_cell_summarizes_its_messages(shell, tmp_path, displayed):
    with ReliableKafkaProducer(store=tmp_path / "own.duckdb", transport=InMemoryTransport) as producer:
        shell.user_ns["producer"] = producer
        cell = "for n in range(20):\n    producer.send_message('orders', {'n': n})\nproducer.flush()\n21 * 2"
        assert shell.run_cell_magic("watch", "", cell) == 42
    watched, options = displayed[-1]
    assert options["update"] and "20 accepted, 20 acknowledged" in str(watched)
    assert "20 acknowledged" in watched._repr_html_()


def test_an_error_in_a_watched_cell_propagates(shell, store, displayed):
    with pytest.raises(ZeroDivisionError):
        shell.run_cell_magic("watch", str(store.path), "1 / 0")
    assert len(displayed) >= 2


def test_variables_of_a_watched_cell_persist(shell, store, displayed):
    assert shell.run_cell_magic("watch", str(store.path), "kept = 7") is None
    assert shell.user_ns["kept"] == 7


# the monitor in code


def test_a_dry_run_counts_and_sends_nothing(store):
    run = Monitor(store).dry_run(DeadLetterFilter(topic="orders"))
    assert run.total == 10 and store.rows("operations") == []
    assert "A replay would" in run._repr_html_() and "nothing can arrive twice" in run._repr_html_()


def test_a_replay_sends_nothing_before_go(store):
    monitor = Monitor(store)
    plan = monitor.replay(DeadLetterFilter(topic="orders"), timeout=0.1)
    assert plan.state == "checking"
    with pytest.raises(ReplayError, match="nothing was sent"):
        plan.go(timeout=0.1)

    looked(store, plan.operation_id, newer_keys=2)
    assert plan.state == "ready"  # in code, a replay waits for go() even without findings
    assert "a newer record was written since" in repr(plan) and "go() sends it" in repr(plan)
    assert "A replay would" in plan._repr_html_() and "go() sends it" in plan._repr_html_()
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


def test_a_replay_can_be_paused_resumed_and_cancelled_from_any_monitor(store):
    Monitor(store).replay(DeadLetterFilter(topic="orders"), timeout=0.0)
    found = Monitor(store).replays()
    assert "checking" in found._repr_html_() and len(found) == 1
    looked(store, found[0].operation_id)
    one = found[0].go(timeout=0.0)

    assert one.pause().state == "paused" and "resume() goes on" in one._repr_html_()
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
    assert "ada" in acts._repr_html_()


def test_statistics_and_the_close_report_are_tables(tmp_path):
    with ReliableKafkaProducer(store=None, transport=InMemoryTransport) as producer:
        producer.send_message("orders", {"n": 1})
        producer.flush()
        stats = producer.get_stats()
    assert isinstance(stats, dict) and stats["messages_sent"] == 1
    assert "orders" in stats._repr_html_() and "<script" not in stats._repr_html_()
    assert "acknowledged" in producer.close()._repr_html_()
