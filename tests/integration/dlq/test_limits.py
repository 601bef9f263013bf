"""A producer above its limit of dead letters: an alert with a store, the spill file without one."""

from __future__ import annotations

from producer_core import ReliableKafkaProducer
from producer_core.alerts import AlertLog
from producer_core.dlq import DeadLetterFilter, DeadLetters
from producer_core.producer.dead_letter_backend import spill_path
from producer_core.store import Store
from producer_core.testing import InMemoryTransport
from tests.support import eventually


def producer(store, **choices):
    return ReliableKafkaProducer(
        store=store, dlq_max_size=2, transport=InMemoryTransport, run_replays=False, **choices
    )


def add_malformed(made, count):
    for number in range(count):
        made.dead_letter("orders", b"line %d" % number, text=f"line {number} is not JSON")


def test_with_a_store_an_exceeded_limit_raises_an_alert_and_drops_no_dead_letter(tmp_path):
    path = tmp_path / "store.duckdb"

    def alerts(state):
        return [
            item for item in AlertLog(Store.open(path)).list(state=state) if item.rule == "dlq_over_bound"
        ]

    with producer(path) as made:
        add_malformed(made, 5)
        eventually(lambda: alerts("firing"), timeout=120)
        (fired,) = alerts("firing")
        assert fired.subject == "number of dead letters"
        assert "5 dead letters pending; the limit (dlq_max_size) is 2." in fired.text

        DeadLetters(Store.open(path)).archive(DeadLetterFilter(), who="ann", origin="python")
        eventually(lambda: alerts("resolved"), timeout=120)

    assert DeadLetters(Store.open(path)).count(DeadLetterFilter(state=None)) == 5


def test_dead_letters_above_the_limit_are_imported_by_the_next_producer_with_a_store(tmp_path, monkeypatch):
    monkeypatch.setenv("PRODUCER_CORE_STORE", str(tmp_path / "store.duckdb"))

    with producer(None) as made:
        add_malformed(made, 5)
        assert len(made.get_dlq_messages()) == 2
        assert made.dlq.spilled == 3
    assert spill_path(tmp_path / "store.duckdb").exists()

    with producer("auto"):
        dead_letters = DeadLetters(Store.open(tmp_path / "store.duckdb"))
        eventually(lambda: dead_letters.count(DeadLetterFilter()) == 3, timeout=120)

    assert sorted(one.value for one in dead_letters.bodies(dead_letters.ids(DeadLetterFilter()))) == [
        b"line 0",
        b"line 1",
        b"line 2",
    ]
