"""The open records of an operation: the check finds the same with totals as with single records."""

from __future__ import annotations

from dataclasses import replace

import pytest

from producer_core import replay
from producer_core.brokers import embedded
from producer_core.dlq import DeadLetterFilter, DeadLetters
from producer_core.replay.broker_check import check
from producer_core.replay.open_records import OpenRecords
from tests.fixtures.replays import CLUSTER, dead_letter

DEAD_LETTERS = [
    dead_letter(0, topic="payments"),
    dead_letter(1, key=None, value=None),
    dead_letter(2, partition=9),
    dead_letter(3, value=b"x" * 500),
    dead_letter(4, topic="gone"),
    dead_letter(5, topic="payments", partition=1),
]


@pytest.fixture(scope="module")
def broker():
    with embedded.start(brokers=1, topics={"orders": 4, "payments": 2}) as running:
        yield running


@pytest.fixture
def open_records(store):
    DeadLetters(store).add(DEAD_LETTERS)
    planned = replay.plan(store, DeadLetterFilter(), who="me", origin="python", can_run=CLUSTER)
    return OpenRecords(store, planned.operation_id)


class Totals(OpenRecords):
    """Count the topics that were read record by record."""

    def __init__(self, other):
        self.__dict__.update(other.__dict__)
        self.read = []

    def of(self, topic):
        self.read.append(topic)
        return super().of(topic)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("newer", "most", "one_by_one"),
    [
        ("none", 1_000_000, []),
        ("none", 400, ["orders"]),
        ("all", 1_000_000, ["payments", "orders", "gone"]),
    ],
)
def test_totals_give_the_same_result_as_single_records(broker, open_records, newer, most, one_by_one):
    counted = Totals(open_records)
    topics = counted.topics()
    rows = [record for topic in topics for record in open_records.of(topic)]
    results = [
        check({"bootstrap.servers": broker.bootstrap_servers}, source, newer=newer, sends_at_most=most)
        for source in (counted, rows)
    ]

    assert topics == ["payments", "orders", "gone"]
    assert len(rows) == len(DEAD_LETTERS)
    assert [name for name in counted.read if name != "gone" or newer == "all"] == one_by_one
    (by_totals, flags), (by_rows, expected_flags) = results
    assert replace(by_totals, at=0.0) == replace(by_rows, at=0.0)
    assert flags == expected_flags


def test_a_record_of_exactly_the_limit_is_not_too_large(open_records):
    size = 500 + len(DEAD_LETTERS[3].key)

    assert open_records.totals("orders", partitions=4, max_size=size).too_large == 0
    assert open_records.totals("orders", partitions=4, max_size=size - 1).too_large == 1
    assert open_records.totals("orders", partitions=None, max_size=None)[2:] == (0, 0)


@pytest.mark.slow
def test_a_stopped_check_of_totals_says_so(broker, open_records):
    found, _ = check({"bootstrap.servers": broker.bootstrap_servers}, open_records, stopping=lambda: True)

    assert found.stopped
