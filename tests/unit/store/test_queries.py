"""Named queries: each runs on an empty store, has a description and returns the expected rows."""

from __future__ import annotations

from pathlib import Path

import pytest

import producer_core
import producer_core.dashboard
from producer_core.store import Batch, LatencyRow, StatisticsRow, Store
from producer_core.store.queries import parse, queries, query

NOW = 1_800_000_000
NEEDED = {"bucket": 10, "bucket_seconds": 10}


@pytest.fixture(scope="module")
def store(tmp_path_factory):
    store = Store.open(tmp_path_factory.mktemp("store") / "store.duckdb")
    rows = [
        StatisticsRow(NOW + second, "c", "p", topic, 2, 2, 0, 1, 0, 0, 0, 0, 20, 0.5)
        for second in range(20)
        for topic in ("orders", "refunds")
    ]
    latencies = tuple(
        LatencyRow(NOW + second, "c", "p", "orders", 100 + second % 2, 3) for second in range(20)
    )
    store.append(Batch("p", 0, tuple(rows), latencies))
    return store


@pytest.mark.parametrize(
    "name", sorted(name for name, one in queries().items() if one.sql.startswith("SELECT"))
)
def test_every_query_runs_and_has_a_description(store, name):
    named = query(name)
    given = {key: value for key, value in NEEDED.items() if key in named.parameters}

    rows, table = store.rows(name, **given), store.table(name, **given)

    assert named.description.endswith(".")
    assert table.num_rows == len(rows)


def test_every_named_statement_is_used():
    """An unused statement costs migration and review without a benefit."""
    code = "".join(
        file.read_text()
        for package in (producer_core, producer_core.dashboard)
        for file in Path(package.__file__).parent.rglob("*.py")
    )

    assert [name for name in queries() if f'"{name}"' not in code] == []


def test_a_parameter_left_out_does_not_restrict(store):
    assert store.rows("totals")[0]["acknowledged"] == 80
    assert store.rows("totals", topic="orders")[0]["acknowledged"] == 40
    assert store.rows("totals", since=NOW + 10)[0]["acknowledged"] == 40
    assert (
        store.rows("totals", since=NOW, until=NOW + 1, topic="orders", producer="p", cluster="c")[0]["bytes"]
        == 20
    )


def test_a_series_has_the_seconds_that_each_row_covers(store):
    series = store.rows("series", bucket=10, topic="orders")

    assert [(row["window_start"], row["seconds"], row["acknowledged"]) for row in series] == [
        (NOW, 10, 20),
        (NOW + 10, 10, 20),
    ]


def test_latencies_are_summed_by_bucket(store):
    assert store.rows("latency_buckets") == [{"bucket": 100, "count": 30}, {"bucket": 101, "count": 30}]
    assert len(store.rows("latency_buckets_by_window", bucket_seconds=10)) == 4
    assert {row["topic"] for row in store.rows("latency_buckets_by_topic")} == {"orders"}


def test_an_unknown_parameter_raises_a_type_error(store):
    with pytest.raises(TypeError, match=r"no parameter \['tpic'\]; it has .*'topic'"):
        store.rows("totals", tpic="orders")


def test_an_unknown_query_raises_an_error_with_the_known_names(store):
    with pytest.raises(KeyError, match=r"no query 'total'.*totals"):
        store.rows("total")


def test_a_query_file_is_split_at_its_names():
    parsed = parse(
        "-- about\n-- name: one\n-- What it\n-- answers.\nSELECT $a\n  + $b;\n\n-- name: two\nSELECT 2;\n"
    )

    assert [(one.name, one.description, one.sql) for one in parsed] == [
        ("one", "What it answers.", "SELECT $a\n  + $b"),
        ("two", "", "SELECT 2"),
    ]
    assert parsed[0].parameters == {"a", "b"}
