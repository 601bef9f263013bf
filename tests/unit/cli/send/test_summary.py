"""The summary of a send states its limits."""

from __future__ import annotations

from types import SimpleNamespace

from producer_core.cli.send.run_state import RunState
from producer_core.cli.send.summary import SendSummary
from producer_core.metrics.counters import Metrics


def text(**progress):
    known = {
        "dead": 0, "malformed_rows": 0, "begun": True, "possibly_twice": 0, "topic_unread": False, "held_back": [],
    }  # fmt: skip
    rows = SimpleNamespace(skip=0, name="rows.csv", unit="line")
    state = RunState(None, rows, "orders", progress=SimpleNamespace(**{**known, **progress}), complete=True)
    return "\n".join(SendSummary.of(state, Metrics().snapshot(), 1.0, None).lines())


def test_a_topic_that_was_not_read_limits_the_possible_duplicates():
    assert "if the state file was an older copy, more rows may be there twice" in text(topic_unread=True)
    assert "older copy" not in text()


def test_held_back_rows_are_counted_and_the_first_is_named():
    assert "2 rows were not sent, from row 7 on" in text(held_back=[6, 30])
    assert "not sent" not in text()
