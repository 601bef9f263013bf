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
    assert shown["Memory"].note == "50.0% of 256.0 MiB"


def test_the_tiles_of_an_empty_store_have_no_numbers(store):
    shown = {tile.label: tile for tile in dashboard_charts.tiles(queries.overview(store, "5 min", NOW))}
    assert [shown[label].value for label in ("Error rate", "Latency p99.9", "Retry success", "Memory")] == [
        "–"
    ] * 4
    assert (shown["Pending"].value, shown["Dead letters"].value) == ("0", "0")
    assert shown["Dead letters"].note == "none pending"
    assert {tile.change.tone for tile in shown.values()} == {""}


def test_memory_close_to_its_limit_is_marked(store):
    shop(store, memory_bytes=95, memory_limit=100)
    memory = next(
        tile
        for tile in dashboard_charts.tiles(queries.overview(store, "5 min", NOW))
        if tile.label == "Memory"
    )
    assert (memory.value, memory.change.text, memory.change.tone) == ("95 B", "95.0% of 100 B", "worse")


def test_only_the_tile_of_dead_letters_is_a_link(store):
    shop(store)
    shown = dashboard_charts.tiles(queries.overview(store, "5 min", NOW))
    assert [(tile.label, tile.value, tile.page) for tile in shown if tile.page] == [
        ("Dead letters", "3", "dead-letters")
    ]


def test_five_key_figures_have_a_sparkline_and_no_figure_is_lost(store):
    shop(store)
    page = queries.overview(store, "5 min", NOW)
    key, others = dashboard_charts.key_tiles(page), dashboard_charts.other_tiles(page)
    assert [tile.label for tile in key] == [
        "Error rate", "Throughput", "Latency p50", "Latency p99", "Dead letters",
    ]  # fmt: skip
    assert all(any((value or 0) > 0 for value in (*tile.course, *tile.counts)) for tile in key)
    assert sum(count or 0 for count in key[-1].counts) == 3
    assert {tile.label for tile in (*key, *others)} == {tile.label for tile in dashboard_charts.tiles(page)}
    assert not any(tile.course or tile.counts for tile in others)
