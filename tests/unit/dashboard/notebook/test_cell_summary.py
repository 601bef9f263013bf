"""Test the summary of a watched cell."""

from __future__ import annotations

import pytest

from producer_core import ReliableKafkaProducer
from producer_core.testing import InMemoryTransport
from tests.fixtures import ipython_shell as ipython_shell_fixtures
from tests.fixtures import notebook as notebook_fixtures

ipython, shell = ipython_shell_fixtures.ipython, ipython_shell_fixtures.shell
displayed, now, store = notebook_fixtures.displayed, notebook_fixtures.now, notebook_fixtures.store


@pytest.mark.slow
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
