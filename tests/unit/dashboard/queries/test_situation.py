"""Test the state of delivery: outages, stalls and lost producers."""

from __future__ import annotations

import pytest

from producer_core.alerts import AlertLog, alert, follow
from producer_core.dashboard import queries, wording
from producer_core.dashboard.queries.situation import memory, outage
from producer_core.store import Batch, ClientRow
from tests.fixtures.overview import counts, producer, shop, write

NOW = 0.0


def test_a_past_outage_is_reported_with_the_messages_delivered_since(store):
    row = ClientRow(0, "c", "p", 1, 0, 0, 1, 0, 0, 0, 0, 0.0, 0, 0.0)
    seconds = range(int(NOW) - 90, int(NOW))
    samples = [row._replace(window_start=at, cut_off=int(-60 < at - NOW <= -35)) for at in seconds]
    store.append(Batch("q", 0, client_statistics=tuple(samples)))
    write(store, [counts(at, acknowledged=10) for at in range(int(NOW) - 30, int(NOW))])
    found = wording.headline(queries.overview(store, "15 min", NOW).situation)
    assert found.tone == "good"
    assert (
        "The broker connection was lost for 25 s and restored 34 s ago; 300 messages delivered since."
        in found.text
    )
    assert "No broker" not in wording.headline(queries.overview(store, "15 min", NOW + 1200).situation).text


def test_a_producer_lost_within_the_range_is_reported_and_an_older_one_is_not(store):
    shop(store)
    store.append(Batch("q", 0, (), (), (), producer(producer_id="q", seen_at=NOW - 50)))
    store.append(Batch("r", 0, (), (), (), producer(producer_id="r", seen_at=NOW - 5000)))
    found = queries.overview(store, "15 min", NOW).situation
    assert (found.producers, found.gone, found.gone_for) == (1, 1, 50.0)
    assert "1 of 2 producers not seen for 50 s." in wording.headline(found).text


def test_delivery_stalls_when_pending_messages_do_not_settle_for_a_minute(store):
    write(store, [counts(NOW - 90, acknowledged=5)], pending=9)
    assert queries.overview(store, "15 min", NOW).situation.stalled


@pytest.mark.parametrize(
    "changes",
    [{"pending": 0}, {"pending": 9, "waiting_retry": 9}, {"pending": 9, "started_at": 9e9}],
    ids=["without pending messages", "while only retries are pending", "right after its start"],
)
def test_delivery_has_not_stalled(store, changes):
    write(store, [counts(NOW - 90, acknowledged=5)], **changes)
    assert not queries.overview(store, "15 min", NOW).situation.stalled


def test_the_first_message_after_an_idle_period_is_not_a_stall(store):
    write(store, [counts(NOW - 3, accepted=1)], pending=1)
    assert not queries.overview(store, "15 min", NOW).situation.stalled


def test_an_open_circuit_is_reported_until_its_alert_ends(store):
    write(store, [counts(NOW - 3, acknowledged=5)])
    log, text = AlertLog(store, clock=lambda: NOW), "The circuit of the cluster is open: down."
    (row,) = store.rows("producers", since=None)
    found = alert("circuit_opened", row["producer_id"], NOW, text=text)
    log.record(follow({}, [found], NOW), told_by=row["producer_id"])

    assert queries.overview(store, "15 min", NOW).situation.circuit == text
    assert store.rows("producers", since=None)[0]["circuit"] == text
    log.record(follow({("circuit_opened", row["producer_id"]): found}, [], NOW), told_by=row["producer_id"])

    assert queries.overview(store, "15 min", NOW).situation.circuit is None


def test_isolated_moments_without_a_broker_are_not_an_outage():
    def samples(*seconds):
        return [{"window_start": at, "seconds": 1, "cut_off": 1, "samples": 1} for at in seconds]

    assert outage(samples(0, 1, 300, 301), 400.0) is None
    found = outage(samples(0, 1, 300, 301, 302, 304, 305), 400.0)
    assert (found.seconds, found.until) == (5, 306)


@pytest.mark.parametrize(("replayed", "archived", "left"), [(0, 0, 5), (3, 2, 0), (4, 0, 1), (9, 9, 0)])
def test_the_number_of_remaining_failures_is_never_negative(replayed, archived, left):
    found = queries.Situation(
        acknowledged=0, dead=5, window="15 min", connected=0, producers=0, closed=0, silent_for=None,
        connection_error=None, pending=0, replayed=replayed, archived=archived,
    )  # fmt: skip
    assert found.left == left


def test_without_client_samples_there_is_no_outage():
    assert outage([], 400.0) is None


def test_an_outage_that_lasts_ends_now():
    rows = [{"window_start": at, "seconds": 1, "cut_off": 1, "samples": 1} for at in range(10)]
    assert outage(rows, 9.5) == (10, 9.5, 0, 0.0)
    assert outage([{**row, "samples": 2} for row in rows], 9.5) is None  # another producer is connected


def test_memory_is_that_of_the_running_producer_closest_to_its_limit():
    row = {"closed_at": None, "seen_at": 100.0, "memory_bytes": 50, "memory_limit": 100}
    full = {**row, "memory_bytes": 9, "memory_limit": 10}
    closed, lost = {**full, "closed_at": 90.0}, {**full, "seen_at": 0.0}
    unlimited = {**row, "memory_bytes": 7_000, "memory_limit": None}

    assert memory([], 100.0) == (0, None)
    assert memory([row, full, unlimited], 100.0) == (9, 10)
    assert memory([row, closed, lost], 100.0) == (50, 100)
    assert memory([unlimited], 100.0) == (7_000, None)


@pytest.mark.parametrize(
    ("changes", "connecting"),
    [
        ({"started_at": 2}, True),
        ({"started_at": 2, "connected": True}, False),
        ({"started_at": 2, "connection_error": "Connection refused"}, False),
        ({"started_at": 31}, False),
    ],
    ids=["just started", "connected", "with an error", "for a long time"],
)
def test_a_producer_that_has_just_started_is_connecting(store, changes, connecting):
    known = {"connected": False, **changes, "started_at": NOW - changes["started_at"]}
    write(store, pending=5, **known)
    assert queries.overview(store, "15 min", NOW).situation.connecting is connecting
