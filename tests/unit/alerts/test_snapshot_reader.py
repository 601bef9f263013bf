"""The reader of snapshots: one query for windows that are read equally often."""

from __future__ import annotations

import pytest

from producer_core.alerts import AlertRule, Threshold
from producer_core.alerts.rule_set import RuleSet
from producer_core.alerts.snapshot import WRITER_WINDOW
from producer_core.alerts.snapshot_reader import SnapshotReader
from producer_core.dlq import DeadLetters
from producer_core.errors import StoreError
from producer_core.store import Batch, LatencyRow, Store
from tests.fixtures.alerts import write
from tests.fixtures.replays import dead_letter

NOW = 1_000_000.0
WINDOWS = (60.0, 300.0, 6 * 3600.0)


def rule_set(*windows):
    return RuleSet(
        {
            f"rule_{window:.0f}": AlertRule(
                "warning", "{subject}", "Investigate.", condition=Threshold("dead", above=1.0, window=window)
            )
            for window in windows
        }
    )


@pytest.fixture
def asked(monkeypatch):
    names, ask = [], Store.rows
    monkeypatch.setattr(
        Store, "rows", lambda store, name, /, **given: names.append(name) or ask(store, name, **given)
    )
    return names


@pytest.fixture
def without_sums(asked, monkeypatch):
    """Make the query of the sums fail."""
    ask = Store.rows

    def fail(store, name, /, **given):
        if name == "alerts_sums":
            raise StoreError("cancelled")
        return ask(store, name, **given)

    monkeypatch.setattr(Store, "rows", fail)


def test_each_window_has_the_sums_of_its_own_rows(store):
    for number, age in enumerate((60, 59, 299, 300, 5 * 3600, 7 * 3600, -5)):
        write(store, NOW - age, bad=10**number)

    sums = SnapshotReader(store).read(rule_set(*WINDOWS), NOW).sums

    assert {window: [item.dead for item in found.values()] for window, found in sums.items()} == {
        60.0: [10],
        300.0: [111],
        WRITER_WINDOW: [1111],
        6 * 3600.0: [11111],
    }


def test_topics_and_producers_have_sums_of_their_own(store):
    write(store, NOW - 30, topic="orders", producer="a", good=1)
    write(store, NOW - 30, topic="orders", producer="b", good=2)
    write(store, NOW - 100, topic="payments", producer="a", good=4)

    sums = SnapshotReader(store).read(rule_set(60.0), NOW).sums

    assert {tuple(writer): item.acknowledged for writer, item in sums[60.0].items()} == {
        ("orders", "a"): 1,
        ("orders", "b"): 2,
    }
    assert len(sums[WRITER_WINDOW]) == 3


def test_short_windows_share_a_query_and_a_long_one_is_repeated_less_often(store, asked):
    moment = [0.0]
    reader = SnapshotReader(store, monotonic=lambda: moment[0])

    def queries():
        del asked[:]
        reader.read(rule_set(*WINDOWS), NOW + moment[0])
        return asked.count("alerts_sums")

    counts = [queries()]
    for moment[0] in (5.0, 55.0, 61.0):
        counts.append(queries())
    assert counts == [2, 1, 1, 2]


def test_a_long_window_keeps_its_last_sums_between_two_reads(store):
    moment = [0.0]
    reader = SnapshotReader(store, monotonic=lambda: moment[0])
    write(store, NOW - 10, bad=1)

    def dead(window):
        sums = reader.read(rule_set(*WINDOWS), NOW + moment[0]).sums
        return sum(item.dead for item in sums[window].values())

    assert (dead(60.0), dead(6 * 3600.0)) == (1, 1)
    moment[0] = 5.0
    write(store, NOW + 1, bad=1)
    assert (dead(60.0), dead(6 * 3600.0)) == (2, 1)


def test_sums_that_cannot_be_read_are_missing(store, without_sums):
    snapshot = SnapshotReader(store).read(rule_set(*WINDOWS), NOW)

    assert snapshot.missing == {"sums"}
    assert set(snapshot.sums) == {*WINDOWS, WRITER_WINDOW}
    assert not any(snapshot.sums.values())


def test_an_idle_store_is_not_asked_for_latencies_or_new_dead_letters(store, asked):
    reader = SnapshotReader(store)

    def queries():
        del asked[:]
        reader.read(RuleSet(), NOW)
        return {"alerts_latencies", "alerts_letters", "alerts_letters_came"} & set(asked)

    assert queries() == {"alerts_letters"}
    write(store, NOW - 10, good=5)
    DeadLetters(store).add([dead_letter(1)])
    reader = SnapshotReader(store)
    assert queries() == {"alerts_latencies", "alerts_letters", "alerts_letters_came"}


def test_latencies_are_read_where_the_sums_are_missing(store, asked, without_sums):
    snapshot = SnapshotReader(store).read(RuleSet(), NOW)

    assert snapshot.missing == {"sums"}
    assert "alerts_latencies" in asked


def test_latencies_are_read_over_a_window_without_sums(store):
    """Regression: a rule about latencies over a window that no other rule has ended the evaluation with a KeyError."""
    write(store, NOW - 10, good=5)
    store.append(Batch("p-1", 10**6, latencies=(LatencyRow(int(NOW - 10), "c", "p-1", "orders", 320, 5),)))
    slow = AlertRule("warning", "{subject}", "Investigate.", condition=Threshold("latency_p99", above=0.5))

    snapshot = SnapshotReader(store).read(RuleSet({"slow": slow}), NOW)

    assert snapshot.latencies == {300.0: {"orders": {320: 5}}}
