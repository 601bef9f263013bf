"""`dlq publish`."""

from __future__ import annotations

from click.testing import CliRunner

from producer_core.cli import main
from producer_core.dlq import DeadLetterFilter, DeadLetters
from producer_core.store import Store
from tests.fixtures.dead_letter_headers import one


def test_publishing_says_the_number_and_asks_first(tmp_path):
    store = Store.open(tmp_path / "store.duckdb")
    DeadLetters(store).add([one()])
    given = ["--store", str(store.path), "-b", "localhost:1"]

    asked = CliRunner().invoke(main, ["dlq", "publish", "--topic", "orders", *given])

    assert asked.exit_code == 2
    assert "Publish 1 dead letter of orders to {topic}-dlt?" in asked.output
    assert DeadLetters(store).count(DeadLetterFilter()) == 1
