"""Convert filters to URL parameters and back."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from producer_core.dlq import DeadLetterFilter, DeadLetters
from producer_core.errors import ConfigError
from producer_core.store import Store
from tests.fixtures.dead_letters import NOW, SOME

texts = st.none() | st.text(min_size=1, max_size=8)
times = st.none() | st.floats(0, 4e9)
names = st.text("abc0123-", min_size=1, max_size=8)
filters = st.builds(
    DeadLetterFilter,
    topic=texts,
    group=texts,
    code=texts,
    verdict=texts,
    state=st.sampled_from(["dead", "archived", None]),
    since=times,
    until=times,
    key=texts,
    message_id=texts,
    text=texts,
    cluster_id=texts,
    cluster_or_unknown=st.none() | st.text(max_size=8),
    application_or_unnamed=st.none() | st.text(max_size=8),
    producer_id=texts,
    ids=st.lists(names, max_size=3).map(tuple),
)


@given(filters)
def test_a_filter_survives_a_url(where):
    assert DeadLetterFilter.from_query(where.to_query()) == where


def test_defaults_are_not_in_the_url():
    assert DeadLetterFilter().to_query() == {}
    assert DeadLetterFilter(topic="orders", state=None).to_query() == {"topic": "orders", "state": "any"}
    assert DeadLetterFilter().where() == ("state = ?", ["dead"])
    assert DeadLetterFilter(state=None).where() == ("true", [])


def test_other_url_parameters_are_ignored():
    assert DeadLetterFilter.from_query({"page": "3", "topic": ""}) == DeadLetterFilter()


@pytest.mark.parametrize("query", [{"state": "zombie"}, {"since": "yesterday"}])
def test_an_invalid_url_parameter_is_an_error(query):
    with pytest.raises(ConfigError):
        DeadLetterFilter.from_query(query)


@pytest.fixture(scope="module")
def stored(tmp_path_factory):
    dead_letters = DeadLetters(Store.open(tmp_path_factory.mktemp("some") / "store.duckdb"))
    dead_letters.add(SOME)
    return dead_letters


@pytest.mark.parametrize(
    ("where", "expected"),
    [
        (DeadLetterFilter(), "1234"),
        (DeadLetterFilter(topic="orders"), "12"),
        (DeadLetterFilter(group="fa"), "13"),
        (DeadLetterFilter(code="B", topic="refunds"), "4"),
        (DeadLetterFilter(verdict="rejected"), "24"),
        (DeadLetterFilter(state="archived"), ""),
        (DeadLetterFilter(since=NOW + 2, until=NOW + 4), "23"),
        (DeadLetterFilter(key="k1"), "1"),
        (DeadLetterFilter(message_id="m-3"), "3"),
        (DeadLetterFilter(text="BROKER 17"), "1"),
        (DeadLetterFilter(text="100%"), "4"),
        (DeadLetterFilter(text="wrong_"), "4"),
        (DeadLetterFilter(cluster_id="d"), "3"),
        (DeadLetterFilter(producer_id="q"), "2"),
        (DeadLetterFilter(ids=("m-1", "m-4", "x")), "14"),
        (DeadLetterFilter(topic="'; DROP TABLE dead_letters; --"), ""),
    ],
)
def test_a_filter_selects_the_same_in_the_store_and_in_memory(stored, where, expected):
    found = "".join(sorted(one.message_id[-1] for one in stored.find(where)))

    assert found == expected
    assert found == "".join(one.message_id[-1] for one in SOME if where.matches(one))
    assert stored.count(where) == len(expected)
