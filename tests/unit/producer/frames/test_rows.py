"""The values and keys of rows: each type has one JSON form or is refused."""

from __future__ import annotations

import math
import uuid
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

from producer_core.errors import InvalidMessage
from producer_core.producer.frames import frame_of
from tests.fixtures.frames import value_of


def rows(data, **options):
    return list(frame_of(data, **options).rows(0))


class Streamed:
    """A frame of another library with only the Arrow stream interface."""

    def __init__(self, table):
        self._table = table

    def __arrow_c_stream__(self, requested_schema=None):
        return self._table.__arrow_c_stream__(requested_schema)


BOTH = {
    "pandas": lambda columns: pd.DataFrame(columns),
    "arrow": lambda columns: pa.table(columns),
    "streamed": lambda columns: Streamed(pa.table(columns)),
}


@pytest.mark.parametrize("make", BOTH.values(), ids=BOTH)
def test_plain_values_are_unchanged(make):
    columns = {"n": [1, 2], "x": [0.5, 1.5], "s": ["a", "ü"], "b": [True, False]}
    assert rows(make(columns)) == [
        {"n": 1, "x": 0.5, "s": "a", "b": True},
        {"n": 2, "x": 1.5, "s": "ü", "b": False},
    ]


def test_missing_values_of_pandas_are_null():
    frame = pd.DataFrame(
        {
            "nan": [1.0, float("nan")],
            "nat": pd.to_datetime(["2026-01-02", None]),
            "na": pd.array([1, None], dtype="Int64"),
            "none": ["a", None],
            "text": pd.array(["a", None], dtype="string"),
            "mixed": [{"a": 1}, np.nan],
        }
    )
    assert rows(frame)[1] == dict.fromkeys(frame.columns)
    assert rows(frame)[0]["na"] == 1 and rows(frame)[0]["mixed"] == {"a": 1}


@pytest.mark.parametrize("make", BOTH.values(), ids=BOTH)
def test_nan_is_null_unless_it_is_configured_to_be_refused(make, sent):
    producer, _ = sent
    frame = make({"x": [1.0, float("nan")]})
    assert rows(frame)[1] == {"x": None}

    result = producer.send_frame(make({"x": [1.0, float("nan")]}), "orders", nan="refuse")

    assert (result.acknowledged, result.refused) == (1, 1)
    assert "Column 'x'" in result.refusals[0].text and result.refusals[0].row == 1


def test_a_nan_inside_a_cell_is_refused(sent):
    producer, _ = sent
    result = producer.send_frame(pd.DataFrame({"a": [1, 2], "deep": [{"x": float("nan")}, [1.0]]}), "orders")
    assert [(one.row, "Column 'deep'" in one.text) for one in result.refusals] == [(0, True)]


@pytest.mark.parametrize("make", BOTH.values(), ids=BOTH)
def test_infinity_is_refused(make, sent):
    producer, _ = sent
    result = producer.send_frame(make({"x": [math.inf, 1.0]}), "orders")
    assert (result.acknowledged, result.refused) == (1, 1)


def test_times_are_iso_8601_with_all_their_digits(sent):
    producer, log = sent
    frame = pd.DataFrame(
        {
            "naive": pd.to_datetime(["2026-01-02T03:04:05"]),
            "zoned": pd.to_datetime(["2026-01-02T03:04:05"]).tz_localize("Europe/Berlin"),
            "nano": pd.array(np.array(["2026-01-02T03:04:05.123456789"], dtype="datetime64[ns]")),
            "day": [date(2026, 1, 2)],
            "took": [pd.Timedelta(seconds=90.5)],
        }
    )
    producer.send_frame(frame, "orders")
    expected = {
        "naive": "2026-01-02T03:04:05",
        "zoned": "2026-01-02T03:04:05+01:00",
        "nano": "2026-01-02T03:04:05.123456789",
        "day": "2026-01-02",
        "took": "PT90.5S",
    }
    assert value_of(log()) == expected


def test_arrow_times_equal_pandas_times(sent):
    producer, log = sent
    table = pa.table(
        {
            "naive": pa.array([datetime(2026, 1, 2, 3, 4, 5)], pa.timestamp("ns")),
            "zoned": pa.array(
                [datetime(2026, 1, 2, 2, 4, 5, tzinfo=UTC)], pa.timestamp("ns", "Europe/Berlin")
            ),
            "nano": pa.array([1767323045123456789], pa.timestamp("ns")),
            "micro": pa.array([datetime(2026, 1, 2, 3, 4, 5, 600)], pa.timestamp("us")),
            "took": pa.array([timedelta(seconds=-90.5)], pa.duration("ms")),
        }
    )
    producer.send_frame(table, "orders")
    assert value_of(log()) == {
        "naive": "2026-01-02T03:04:05",
        "zoned": "2026-01-02T03:04:05+01:00",
        "nano": "2026-01-02T03:04:05.123456789",
        "micro": "2026-01-02T03:04:05.000600",
        "took": "-PT90.5S",
    }


def test_decimals_keep_every_digit(sent):
    producer, log = sent
    producer.send_frame(pd.DataFrame({"d": [Decimal("1.50"), Decimal("12345678901234567890.1")]}), "orders")
    assert [value_of(log(), place)["d"] for place in (0, 1)] == ["1.50", "12345678901234567890.1"]


@pytest.mark.parametrize(
    "frame",
    [pd.DataFrame({"x": np.array([0.1], "float32")}), pa.table({"x": pa.array([0.1], pa.float32())})],
    ids=["pandas", "arrow"],
)
def test_a_float32_is_written_with_its_shortest_digits(frame, sent):
    producer, log = sent
    producer.send_frame(frame, "orders")
    assert log()[0].value == b'{"x":0.1}'


def test_big_numbers_uuids_and_categories_are_converted(sent):
    producer, log = sent
    one = uuid.uuid4()
    frame = pd.DataFrame({"n": [2**63 + 5], "u": [one], "c": pd.Categorical(["red"])})
    producer.send_frame(frame, "orders")
    assert value_of(log()) == {"n": 2**63 + 5, "u": str(one), "c": "red"}


def test_categories_of_polars_are_decoded_although_arrow_cannot():
    words = pa.array(["x", "y"], pa.string_view())
    column = pa.DictionaryArray.from_arrays(pa.array([1, None, 0], pa.uint32()), words)
    assert [row["c"] for row in rows(pa.table({"c": column}))] == ["y", None, "x"]


def test_bytes_in_a_row_are_refused_with_the_column_and_sent_as_a_value(sent):
    producer, log = sent
    frame = pd.DataFrame({"id": [1, 2], "raw": [b"\x00\xff", None]})

    refused = producer.send_frame(frame, "orders")
    assert (refused.refused, refused.acknowledged) == (1, 1)
    assert "Column 'raw': Bytes" in refused.refusals[0].text

    producer.send_frame(frame, "orders", key="id", value="raw")
    assert [log()[place].value for place in (1, 2)] == [b"\x00\xff", None]


def test_a_cell_without_a_python_value_refuses_only_its_row(sent):
    producer, _ = sent
    far = pa.table({"at": pa.array([0, 2**62], pa.timestamp("us"))})
    result = producer.send_frame(far, "orders")
    assert (result.acknowledged, result.refused) == (1, 1)
    assert "Column 'at'" in result.refusals[0].text


def test_keys_are_encoded_as_send_message_encodes_them(sent):
    producer, log = sent
    frame = pd.DataFrame({"i": [7], "s": ["k"], "b": [b"\x01"], "d": [Decimal("1.50")], "t": [True]})
    for place, name in enumerate(frame.columns):
        producer.send_frame(
            frame.drop(columns=["b"]) if name != "b" else frame, "orders", key=name, value="i"
        )
        assert log()[place].key == {"i": b"7", "s": b"k", "b": b"\x01", "d": b"1.50", "t": b"true"}[name]
    producer.send_frame(frame, "orders", key=lambda row: f"{row['i']}-{row['s']}", value="i")
    assert log()[5].key == b"7-k"


def test_a_float_key_is_refused_because_it_would_change_its_partition(sent):
    producer, _ = sent
    frame = pd.DataFrame({"id": [17, None], "x": [1, 2]})
    result = producer.send_frame(frame, "orders", key="id")
    assert "17.0 is a float" in result.refusals[0].text and "Int64" in result.refusals[0].text
    assert (result.refused, result.acknowledged, result.keyless) == (1, 1, 1)
    assert "1 had no key; the partitioner chose its partition." in repr(result)


def test_a_lazy_frame_must_be_collected_first():
    class Lazy:
        def collect(self): ...

        def lazy(self): ...

    with pytest.raises(InvalidMessage, match=r"collect\(\)"):
        frame_of(Lazy())
