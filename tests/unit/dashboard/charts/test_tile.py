"""Test the tiles of the overview."""

from __future__ import annotations

from producer_core.dashboard import charts as dashboard_charts
from producer_core.dashboard import queries
from tests.fixtures.overview import shop

NOW = 0.0


def test_a_tile_without_a_previous_period_has_no_comparison(store):
    shop(store)
    shown = {tile.label: tile for tile in dashboard_charts.tiles(queries.overview(store, "5 min", NOW))}
    assert shown["Throughput"].change.text == "no previous value"
    assert shown["Retry success"].value == "–"
    assert "Earlier values are not kept" in shown["Memory"].more
    assert shown["Memory"].note == "50.0 % of 256.0 MiB"
