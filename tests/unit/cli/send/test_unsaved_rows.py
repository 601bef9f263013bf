"""The rows of a send that reached the topic after its state was saved."""

from __future__ import annotations

import uuid
from functools import partial

import pytest
from confluent_kafka import Producer

from producer_core.brokers import embedded
from producer_core.cli.send import unsaved_rows
from producer_core.cli.send.fingerprint import session_of
from producer_core.cli.send.state_file import SendState
from producer_core.cli.send.unsaved_rows import find_unsaved_rows
from producer_core.errors import BrokerError
from producer_core.kafka.newer_keys import LaterRecords
from producer_core.messages import ID_HEADER, id_bytes
from tests.fixtures.sends import LEAST

START = {("orders", 0): 1}


@pytest.fixture(scope="module")
def broker():
    """A topic with rows 0 to 4 of the run 3, of which row 2 is there twice, and records of others."""
    state = SendState(LEAST, 3)
    session = session_of(state.job, state.run)
    with embedded.start(brokers=1, topics={"orders": 1}) as running:
        producer = Producer({"bootstrap.servers": running.bootstrap_servers})
        for row in (0, 1, 2, 3, 2, 4):
            producer.produce("orders", b"x", b"k%d" % row, headers=[(ID_HEADER, id_bytes(session, row))])
        producer.produce("orders", b"x", b"k9", headers=[(ID_HEADER, id_bytes(session_of(LEAST, 4), 9))])
        producer.produce("orders", b"x", b"k8", headers=[(ID_HEADER, id_bytes(uuid.uuid4(), 8))])
        producer.produce("orders", b"x", b"k7")
        assert producer.flush(20) == 0
        yield running


@pytest.fixture
def settings(broker):
    return {"bootstrap.servers": broker.bootstrap_servers}


def test_the_rows_above_the_saved_offsets_and_their_copies_are_found(settings):
    found = find_unsaved_rows(settings, SendState(LEAST, 3, offsets=START))

    assert (list(found.rows), found.copies, found.unread) == ([(2, 5)], 1, "")
    assert found.newer is None, "the topic is not compacted"


def test_a_partition_without_a_saved_offset_is_read_from_its_start(settings):
    assert list(find_unsaved_rows(settings, SendState(LEAST, 3)).rows) == [(0, 5)]


def test_newer_records_are_found_on_a_topic_that_may_be_compacted(settings, monkeypatch):
    monkeypatch.setattr(unsaved_rows, "cleanup_policies", lambda settings, topics, seconds: {"orders": None})

    newer = find_unsaved_rows(settings, SendState(LEAST, 3, offsets=START)).newer

    assert [row for row in range(10) if newer.after(row, b"k%d" % row, 0.0) is not None] == [7, 8, 9]
    assert newer.after(1, b"k2", 0.0) is not None, "a later row of the same run is newer"
    assert newer.after(1, b"k1", 0.0) is None, "its record is not above the saved offset"


def test_the_reason_is_kept_where_the_topic_cannot_be_read(settings, monkeypatch):
    def denied(*arguments, **options):
        raise BrokerError("The topic cannot be read: Topic authorization failed.", fix="Grant READ.")

    monkeypatch.setattr(unsaved_rows, "read_rows", denied)

    found = find_unsaved_rows(settings, SendState(LEAST, 3))

    assert found.unread == "The topic cannot be read: Topic authorization failed"
    assert not len(found.rows)


def test_records_of_others_in_a_partition_without_a_saved_offset_are_not_newer(settings, monkeypatch):
    monkeypatch.setattr(unsaved_rows, "cleanup_policies", lambda settings, topics, seconds: {"orders": None})

    newer = find_unsaved_rows(settings, SendState(LEAST, 3)).newer

    assert [row for row in range(10) if newer.after(row, b"k%d" % row, 0.0) is not None] == []
    assert newer.after(1, b"k2", 0.0) is not None, "a later row of the same run is newer"


def test_without_room_for_all_keys_no_row_counts_as_replaced(settings, monkeypatch):
    monkeypatch.setattr(unsaved_rows, "cleanup_policies", lambda settings, topics, seconds: {"orders": None})
    monkeypatch.setattr(unsaved_rows, "LaterRecords", partial(LaterRecords, max_keys=2))

    found = find_unsaved_rows(settings, SendState(LEAST, 3, offsets=START))

    assert (found.newer, found.compacted, list(found.rows)) == (None, True, [(2, 5)])


def test_a_gap_that_retention_left_above_the_saved_offset_is_reported(settings, monkeypatch):
    read = unsaved_rows.read_rows

    def after_retention(*arguments, **options):
        found = read(*arguments, **options)
        found.lows[0] = 3
        return found

    monkeypatch.setattr(unsaved_rows, "read_rows", after_retention)

    found = find_unsaved_rows(settings, SendState(LEAST, 3, offsets=START))

    assert found.unread == "Retention removed records of orders [0] above the saved position"
    assert list(found.rows) == [(2, 5)]
