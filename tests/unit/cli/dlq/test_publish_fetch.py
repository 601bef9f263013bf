"""`dlq publish`."""

from __future__ import annotations

from click.testing import CliRunner

from producer_core.cli import main
from producer_core.dlq import DeadLetterFilter, DeadLetters
from producer_core.store import Store
from tests.fixtures.dead_letter_headers import one


def test_publish_asks_for_confirmation_with_the_count(tmp_path):
    store = Store.open(tmp_path / "store.duckdb")
    DeadLetters(store).add([one()])
    options = ["--store", str(store.path), "-b", "localhost:1"]

    result = CliRunner().invoke(main, ["dlq", "publish", "--topic", "orders", *options])

    assert result.exit_code == 2
    assert "Publish 1 dead letter of orders to {topic}-dlt?" in result.output
    assert DeadLetters(store).count(DeadLetterFilter()) == 1
