"""The floors of a replay: each partition is searched above the last offset that a committed record has there."""

from __future__ import annotations

import pytest

from producer_core.delivery.exactly_once.batch_reports import BatchReports
from producer_core.replay.probe_outcome import ProbeOutcome
from producer_core.replay.topic_search import TopicSearch
from tests.fixtures.replays import replay_record
from tests.unit.delivery.test_record_batch import batch_of


@pytest.fixture
def search():
    def make(floors):
        return TopicSearch(
            {"bootstrap.servers": "127.0.0.1:1"}, floors, newer=None, say=print, wait=lambda _: None,
            connection_error=print,
        )  # fmt: skip

    return make


def reports_at(*places):
    reports = BatchReports(len(places))
    reports.partitions = [partition for partition, _ in places]
    reports.offsets = [offset for _, offset in places]
    return reports


def test_a_committed_batch_raises_the_floor_of_each_topic_and_partition(search):
    records = [replay_record(number, topic=topic) for number, topic in enumerate(("a", "b", "a", "a"))]
    topics = search({"a": {0: 50, 1: 2}})

    topics.raise_to_reports(batch_of(records), reports_at((0, 7), (0, 9), (1, 3), (1, 4)))

    assert topics.floors == {"a": {0: 50, 1: 4}, "b": {0: 9}}


def test_a_record_without_an_offset_raises_no_floor(search):
    topics = search({})
    topics.raise_to_reports(batch_of([replay_record(0), replay_record(1)]), reports_at((-1, None), (2, 5)))

    assert topics.floors == {"orders": {2: 5}}


def test_the_floors_given_are_not_changed(search):
    given = {"orders": {0: 1}}
    search(given).raise_to("orders", 0, 8)

    assert given == {"orders": {0: 1}}


def test_a_search_for_nothing_asks_no_broker(search):
    assert search({}).search([]) == ProbeOutcome({})
