"""`dlq publish` and `dlq fetch`."""

from __future__ import annotations

from click.testing import CliRunner

from producer_core.brokers import embedded
from producer_core.cli import main
from producer_core.dlq import DeadLetterFilter, DeadLetters
from producer_core.dlq.topics import fetcher
from producer_core.store import Store
from tests.fixtures.dead_letter_headers import one


def test_publish_asks_for_confirmation_with_the_count(tmp_path):
    store = Store.open(tmp_path / "store.duckdb")
    DeadLetters(store).add([one()])
    options = ["--store", str(store.path), "-b", "localhost:1"]

    result = CliRunner().invoke(main, ["dlq", "publish", "--topic", "orders", *options])

    assert result.exit_code == 2
    assert "Publish 1 dead letter of orders to orders-dlt?" in result.output
    assert DeadLetters(store).count(DeadLetterFilter()) == 1


def test_a_fetch_of_a_missing_topic_creates_no_store(tmp_path):
    store = tmp_path / "state" / "store.duckdb"
    with embedded.start(brokers=1, topics={"orders-dlt": 1}) as broker:
        options = ["--store", str(store), "-b", broker.bootstrap_servers]
        missing = CliRunner().invoke(main, ["dlq", "fetch", "order-dlt", *options])
        left = list(tmp_path.iterdir())
        found = CliRunner().invoke(main, ["dlq", "fetch", "orders-dlt", *options])

    assert (missing.exit_code, left) == (2, []), missing.output
    assert "order-dlt cannot be read" in missing.output
    assert "Created the store" not in missing.output
    assert found.exit_code == 0, found.output
    assert "Created the store" in found.output


def test_a_fetch_without_a_broker_creates_no_store(tmp_path, monkeypatch):
    monkeypatch.setattr(fetcher, "_REQUEST_TIMEOUT", 0.5)
    options = ["--store", str(tmp_path / "store.duckdb"), "-b", "localhost:1"]

    result = CliRunner().invoke(main, ["dlq", "fetch", "orders-dlt", *options])

    assert (result.exit_code, list(tmp_path.iterdir())) == (2, []), result.output
    assert "No broker responded" in result.output
