"""Test the magics: their sources, options and tables."""

from __future__ import annotations

import pytest

from producer_core import ReliableKafkaProducer
from producer_core.dashboard.notebook.magics import Magics
from producer_core.dlq import DeadLetters
from producer_core.errors import ConfigError, StoreUnavailable
from producer_core.testing import InMemoryTransport
from tests.fixtures import ipython_shell as ipython_shell_fixtures
from tests.fixtures import notebook as notebook_fixtures
from tests.fixtures.notebook import HOSTILE, dead_letter

ipython, shell = ipython_shell_fixtures.ipython, ipython_shell_fixtures.shell
now, store = notebook_fixtures.now, notebook_fixtures.store


def test_load_ext_registers_the_magics(shell):
    magics = shell.magics_manager.magics
    assert {"producer_stats", "dlq"} <= set(magics["line"]) and "watch" in magics["cell"]


@pytest.mark.slow
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
