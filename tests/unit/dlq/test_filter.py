"""Convert filters to URL parameters and back."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from producer_core.dlq import DeadLetterFilter
from producer_core.errors import ConfigError

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
