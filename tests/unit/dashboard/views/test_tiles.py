"""Test the tiles and topics of the overview."""

from __future__ import annotations

from producer_core.dashboard import charts as dashboard_charts
from producer_core.dashboard import queries
from producer_core.dashboard.html import text_of
from producer_core.dashboard.views import tiles
from producer_core.dlq import DeadLetters
from tests.fixtures.overview import counts, dead_letter, write

NOW = 0.0


def test_names_from_messages_are_never_markup(store):
    hostile = '<img src=x onerror="alert(1)">'
    write(store, [counts(NOW - 9, hostile, acknowledged=1, dead=1)])
    DeadLetters(store).add([dead_letter(1, topic=hostile)])
    page = queries.overview(store, "5 min", NOW)
    assert any(text_of(tree).find(hostile[:10]) >= 0 for tree in tiles.topics(page))
    assert "<img" not in dashboard_charts.throughput(page).to_json()
