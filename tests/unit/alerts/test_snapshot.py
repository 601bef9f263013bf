"""Snapshots: the writers of a topic, and the parts that a set of rules needs."""

from __future__ import annotations

import dataclasses

from producer_core.alerts import AlertRule, Threshold
from producer_core.alerts.snapshot import WRITER_WINDOW, SnapshotNeeds, StoreSnapshot, WindowSums, Writer


def test_sums_are_added_by_field():
    assert WindowSums(accepted=1, dead=2).plus(WindowSums(accepted=3, latency_sum=0.5)) == WindowSums(
        accepted=4, dead=2, latency_sum=0.5
    )


def test_the_writers_of_a_topic_are_its_failing_producers_or_all_of_them():
    fine, failing = WindowSums(acknowledged=5), WindowSums(failed_attempts=1)

    def writers(**by_producer):
        sums = {Writer("orders", producer): value for producer, value in by_producer.items()}
        return StoreSnapshot(1.0, sums={WRITER_WINDOW: sums}).writers("orders")

    assert writers(a=fine, b=fine) == {"a", "b"}
    assert writers(a=fine, b=failing) == {"b"}
    assert writers() == frozenset()
    assert StoreSnapshot(1.0).writers("orders") == frozenset()


def rule(metric, window, **changes):
    made = AlertRule(
        "warning", "{subject}", "Investigate.", condition=Threshold(metric, above=1.0, window=window)
    )
    return dataclasses.replace(made, **changes)


def test_only_enabled_rules_need_their_windows():
    needs = SnapshotNeeds.of([rule("error_rate", 60.0), rule("error_rate", 300.0, enabled=False)])

    assert needs.windows == (60.0, WRITER_WINDOW)
    assert (needs.latency_windows, needs.dead_letter_windows, needs.dead_letters) == ((), (), False)


def test_without_rules_only_the_writers_are_needed():
    assert SnapshotNeeds.of([]) == SnapshotNeeds((WRITER_WINDOW,), (), (), False)
