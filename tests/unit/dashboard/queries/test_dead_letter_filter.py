"""Test the address of the dead letters page."""

from __future__ import annotations

import pytest

from producer_core.dashboard.queries.dead_letter_filter import DeadLetterQuery, dead_letter_query
from producer_core.dlq import DeadLetterFilter, PageCursor
from tests.fixtures.dead_letter_pages import NOW


@pytest.mark.parametrize(
    "query",
    [
        DeadLetterQuery(),
        DeadLetterQuery(DeadLetterFilter(topic="a b&c", code="_TIMED_OUT", verdict="found", state=None)),
        DeadLetterQuery(
            DeadLetterFilter(since=1.5, until=2.25, key="0x00ff", text='"quoted"', body="é", group="ab12")
        ),
        DeadLetterQuery(
            DeadLetterFilter(ids=("m-1", "m, 2"), message_id="x", cluster_id="c", producer_id="p")
        ),
        DeadLetterQuery(span="1 hour", after=PageCursor(12.5, "m-1"), dead_letter="m/2"),
    ],
)
def test_a_query_survives_a_round_trip_through_the_address(query):
    assert dead_letter_query(query.to_query()) == (query, None)


def test_an_invalid_address_shows_the_default_query_and_the_problem():
    for address in ({"state": "gone"}, {"since": "soon"}, {"after": "here"}, {"ids": "[1"}):
        query, problem = dead_letter_query(address)
        assert query == DeadLetterQuery()
        assert problem


def test_parameters_of_other_pages_are_accepted():
    assert DeadLetterQuery.from_query({"producer": "p-1"}).where.producer_id == "p-1"
    assert DeadLetterQuery.from_query({"range": "1 hour", "since": "5"}).at(NOW).since == NOW - 3600
    assert DeadLetterQuery.from_query({"range": "Custom", "since": "5", "until": "9"}).at(NOW).until == 9
    assert DeadLetterQuery.from_query({"live": "false"}) == DeadLetterQuery()


def test_a_new_filter_returns_to_the_first_page_and_keeps_the_open_dead_letter():
    query = DeadLetterQuery(after=PageCursor(1.0, "m"), dead_letter="m-1").narrowed(topic="orders")
    assert (query.after, query.dead_letter, query.where.topic) == (None, "m-1", "orders")


def test_a_live_time_range_moves_in_steps():
    query = DeadLetterQuery(span="1 hour")
    assert query.at(NOW).since == query.at(NOW + 5).since
    assert query.at(NOW).since <= NOW - 3600 < query.at(NOW).since + 60


def test_the_filters_of_other_pages_select_application_and_cluster():
    found = DeadLetterQuery.from_query({"application": "(none)", "cluster": "c"}).where
    assert (found.application, found.cluster_id) == ("", "c")
    again = DeadLetterQuery.from_query(DeadLetterQuery(found).to_query()).where
    assert again == found
