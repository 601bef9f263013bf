"""Parquet rows: their values in JSON, and damaged files."""

from __future__ import annotations

from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal

import pyarrow
import pyarrow.parquet
import pytest

from producer_core.cli.send.open_rows import InputError, open_rows
from producer_core.messages import encode_value
from tests.fixtures.input_rows import values, written


def test_parquet_values_are_represented_in_json_without_loss(tmp_path):
    moment = datetime(2013, 1, 1, 5, 0, 0, 123456, tzinfo=UTC)
    table = pyarrow.table(
        {
            "big": pyarrow.array([2**62, None], pyarrow.int64()),
            "at": pyarrow.array([moment, None], pyarrow.timestamp("us", tz="Europe/Berlin")),
            "local": pyarrow.array([1_000_000_001, None], pyarrow.timestamp("ns")),
            "day": pyarrow.array([date(2013, 1, 1), None]),
            "clock": pyarrow.array([time(5, 6, 7), None]),
            "took": pyarrow.array([timedelta(seconds=1.5), None]),
            "price": pyarrow.array([Decimal("12.50"), None]),
            "raw": pyarrow.array([b"\xff\x00", None]),
            "tags": pyarrow.array([["a", "b"], None]),
            "inner": pyarrow.array([{"x": 1, "b": b"\x00"}, None]),
            "kind": pyarrow.array(["a", None]).dictionary_encode(),
        }
    )
    pyarrow.parquet.write_table(table, tmp_path / "a.parquet")

    first, second = values(tmp_path / "a.parquet")

    assert encode_value(first) == (
        b'{"big":4611686018427387904,"at":"2013-01-01T05:00:00.123456Z","local":"1970-01-01T00:00:01.000000001",'
        b'"day":"2013-01-01","clock":"05:06:07.000000","took":"PT1.5S","price":"12.50","raw":"/wA=","tags":["a","b"],'
        b'"inner":{"x":1,"b":"AA=="},"kind":"a"}'
    )
    assert set(second.values()) == {None}


def test_parquet_is_detected_by_its_first_bytes_and_read_row_by_row(tmp_path):
    pyarrow.parquet.write_table(pyarrow.table({"id": list(range(3000))}), tmp_path / "a.data")

    rows = open_rows(tmp_path / "a.data", skip=2500)

    assert [row.position for row in rows] == list(range(2501, 3001))
    assert rows.progress() == (3000, 3000)


def test_a_damaged_parquet_file_is_refused(tmp_path):
    with pytest.raises(InputError, match="not a Parquet file") as refusal:
        values(written(tmp_path, "a.parquet", "PAR1 nonsense"))

    assert not refusal.value.what.endswith("..")
