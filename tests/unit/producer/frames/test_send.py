"""Frames: every row becomes one message or is refused with a reason, and the counts always add up."""

from __future__ import annotations

import json
import math
import signal
import threading
import uuid
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

from producer_core import DeadLetterFilter, ReliableKafkaProducer, RetryConfig
from producer_core.errors import ConfigError, InvalidMessage, JournalLocked, ProducerClosed
from producer_core.producer.frames import FrameInterrupted, frame_of, make_frame
from producer_core.testing import InMemoryTransport
from tests.fixtures.notebook import HOSTILE
from tests.support import eventually


@pytest.fixture
def sent():
    """A producer, and a function that returns the records of `orders` in its cluster's log."""
    made = []
    with ReliableKafkaProducer(store=None, transport=InMemoryTransport.factory(made)) as producer:
        yield producer, lambda: list(made[0].log["orders"])


def failing(times):
    """A transport that rejects the first `times` messages permanently."""
    left = iter(range(times))
    return InMemoryTransport.factory(
        script=lambda delivery: "POLICY_VIOLATION" if next(left, None) is not None else None
    )


def producer_of(transport, store=None):
    return ReliableKafkaProducer(store=store, transport=transport, retry_config=RetryConfig(max_retries=0))


def value_of(log, place=0):
    return json.loads(log[place].value)


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


# values


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
def test_nan_is_null_unless_it_is_to_be_refused(make, sent):
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


# keys


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
    assert "1 had no key" in repr(result)


def test_an_unknown_column_raises_an_error_with_the_closest_name_and_nothing_is_sent(sent):
    producer, log = sent
    with pytest.raises(InvalidMessage, match="Did you mean 'customer'"):
        producer.send_frame(pd.DataFrame({"customer": [1]}), "orders", key="custmer")
    assert not log()


@pytest.mark.parametrize(
    ("frame", "expected"),
    [
        (pd.DataFrame([[1, 2]], columns=["a", "a"]), "Two columns"),
        (pd.DataFrame({("a", "b"): [1]}), "MultiIndex"),
        (pd.Series([1]), "to_frame"),
        ([{"a": 1}], "list is not a frame"),
        (object(), "not a frame"),
    ],
)
def test_data_that_is_not_a_frame_is_rejected_as_a_whole(frame, expected, sent):
    producer, _ = sent
    with pytest.raises(InvalidMessage, match=expected):
        producer.send_frame(frame, "orders")


def test_a_lazy_frame_must_be_collected_first():
    class Lazy:
        def collect(self): ...

        def lazy(self): ...

    with pytest.raises(InvalidMessage, match=r"collect\(\)"):
        frame_of(Lazy())


def test_invalid_options_are_rejected(sent):
    producer, _ = sent
    with pytest.raises(ConfigError):
        producer.send_frame(pd.DataFrame({"a": [1]}), "orders", nan="zero")
    with pytest.raises(InvalidMessage):
        producer.send_frame(pd.DataFrame({"a": [1]}), "orders", start=-1)
    with pytest.raises(InvalidMessage, match="topic name"):
        producer.send_frame(pd.DataFrame({"a": [1]}), "no such topic")


# results


def test_the_counts_add_up_and_dead_rows_are_listed(tmp_path):
    with producer_of(failing(3), tmp_path / "s.duckdb") as producer:
        result = producer.send_frame(pd.DataFrame({"n": range(10)}), "orders", key="n")

        assert (result.total, result.acknowledged, result.dead, result.pending) == (10, 7, 3, 0)
        assert not result.complete and result.next == 10
        assert {one.verdict for one in result.deaths} == {"rejected"}
        frame = producer.dlq.to_frame()
        assert set(frame["message_id"]) == {one.message_id for one in result.deaths}
        assert "3 died" in repr(result) and "dead letters" in result._repr_html_()


def test_an_empty_frame_sends_nothing(sent):
    producer, _ = sent
    for frame in (pd.DataFrame({"a": []}), pd.DataFrame(), pa.table({"a": pa.array([], pa.int64())})):
        result = producer.send_frame(frame, "orders")
        assert result.complete and result.total == 0 and "nothing to send" in repr(result)


def test_rows_continue_over_chunks_and_from_a_start(sent):
    producer, log = sent
    for frame in (pd.DataFrame({"n": range(10_000)}), pa.table({"n": list(range(10_000))})):
        before = len(log())
        result = producer.send_frame(frame, "orders", start=9_990)
        assert (result.start, result.next, result.acknowledged) == (9_990, 10_000, 10)
        assert value_of(log(), before) == {"n": 9_990}
    assert producer.send_frame(pd.DataFrame({"n": range(9_000)}), "orders").acknowledged == 9_000


def test_a_cell_run_twice_sends_no_row_twice_with_a_dedup_key():
    with ReliableKafkaProducer(
        store=None, transport=InMemoryTransport, enable_deduplication=True
    ) as producer:
        frame = pd.DataFrame({"order": [1, 2, 3], "read_at": ["now"] * 3})
        assert producer.send_frame(frame, "orders", dedup_key="order").acknowledged == 3
        again = producer.send_frame(frame.assign(read_at="later"), "orders", dedup_key="order")
        assert (again.acknowledged, again.duplicate, again.complete) == (0, 3, True)


def test_an_error_of_the_key_function_is_raised_with_the_row(sent):
    producer, _ = sent
    with pytest.raises(ZeroDivisionError) as caught:
        producer.send_frame(pd.DataFrame({"n": [1, 0]}), "orders", key=lambda row: str(1 // row["n"]))
    assert "row 1" in caught.value.__notes__[0]


def test_a_closed_producer_rejects_a_frame():
    producer = ReliableKafkaProducer(store=None, transport=InMemoryTransport)
    producer.close()
    with pytest.raises(ProducerClosed):
        producer.send_frame(pd.DataFrame({"n": [1]}), "orders")


def test_a_producer_closed_during_a_frame_reports_where_to_continue(sent):
    producer, _ = sent

    def key(row):
        if row["n"] == 2:
            producer.close()
        return row["n"]

    result = producer.send_frame(pd.DataFrame({"n": range(5)}), "orders", key=key)
    assert (result.next, result.acknowledged) == (2, 2)
    assert "closed" in result.stopped and "start=2" in repr(result)


def test_an_interrupt_falls_between_two_rows_and_the_rest_can_be_sent(sent):
    producer, log = sent

    def key(row):
        if row["n"] == 4_000:
            signal.raise_signal(
                signal.SIGINT
            ) if threading.current_thread() is threading.main_thread() else interrupt()
        return row["n"]

    def interrupt():
        signal.pthread_kill(threading.main_thread().ident, signal.SIGINT)
        threading.Event().wait(0.2)

    frame = pd.DataFrame({"n": range(8_000)})
    with pytest.raises(FrameInterrupted) as caught:
        producer.send_frame(frame, "orders", key=key)
    result = caught.value.result

    assert isinstance(caught.value, KeyboardInterrupt)
    assert f"start={result.next}" in str(caught.value) and result.next >= 4_000
    eventually(lambda: len(log()) == result.next)
    rest = producer.send_frame(frame, "orders", start=result.next)
    assert result.next + rest.acknowledged == 8_000
    assert sorted(json.loads(one.value)["n"] for one in log()) == list(range(8_000))


def test_send_frame_has_a_timeout():
    with ReliableKafkaProducer(
        store=None, transport=InMemoryTransport.factory(script=lambda delivery: "hold")
    ) as producer:
        result = producer.send_frame(pd.DataFrame({"n": [1, 2]}), "orders", timeout=0.2)
        assert (result.pending, result.complete) == (2, False)
        assert "pending" in repr(result)
        producer.close(timeout=0.1)


def test_texts_of_a_result_are_escaped_in_html(sent):
    producer, _ = sent
    result = producer.send_frame(pd.DataFrame({HOSTILE: [b"x"]}), "orders")
    assert "<img" not in result._repr_html_() and "&lt;img" in result._repr_html_()


# producers created twice by a notebook cell


def test_a_second_producer_on_one_journal_in_one_process_raises_an_error_with_a_fix(tmp_path):
    with ReliableKafkaProducer(
        store=None, transport=InMemoryTransport, journal_dir=tmp_path / "j"
    ) as producer:
        with pytest.raises(JournalLocked, match=r"in this process already.*close\(\)"):
            ReliableKafkaProducer(store=None, transport=InMemoryTransport, journal_dir=tmp_path / "j")
        assert producer.send_frame(pd.DataFrame({"n": [1]}), "orders").complete
    with ReliableKafkaProducer(
        store=None, transport=InMemoryTransport, journal_dir=tmp_path / "j"
    ) as producer:
        assert producer.send_frame(pd.DataFrame({"n": [1]}), "orders").complete


def test_a_second_producer_with_the_same_transactional_id_is_rejected_before_it_fences(tmp_path):
    def make(name):
        return ReliableKafkaProducer(
            store=None, transport=InMemoryTransport, journal_dir=tmp_path / name, delivery="exactly_once",
            transactional_id="shop",
        )  # fmt: skip

    with make("one") as first:
        with pytest.raises(ConfigError, match="each would fence the other"):
            make("two")
        assert first.send_frame(pd.DataFrame({"n": [1]}), "orders").complete
    make("two").close()


# dead letters as frames


def test_dead_letters_are_a_masked_frame(tmp_path):
    with producer_of(failing(2), tmp_path / "s.duckdb") as producer:
        cards = pd.DataFrame({"id": [1, 2], "card": ["4111 1111 1111 1111", "none"]})
        producer.send_frame(cards, "orders", key="card")
        masked = producer.dlq.to_frame(bodies=True)
        assert "1111 1111" not in masked.to_csv() and len(masked) == 2
        assert str(masked["failed_at"].dtype).startswith("datetime64") and "UTC" in str(
            masked["failed_at"].dtype
        )
        raw = producer.dlq.to_frame(DeadLetterFilter(topic="orders"), bodies=True, masked=False)
        assert "4111 1111" in raw.to_csv()
        assert producer.monitor().audit()[0]["action"] == "reveal"
        assert len(producer.dlq.to_frame(limit=1)) == 1
        assert producer.dlq.to_frame(kind="arrow").num_rows == 2


def test_dead_letters_in_memory_are_a_frame_too():
    with producer_of(failing(1), None) as producer:
        producer.send_frame(pd.DataFrame({"id": [1]}), "orders")
        assert list(producer.dlq.to_frame()["code"]) == ["POLICY_VIOLATION"]


def test_an_unknown_or_missing_kind_of_frame_raises_an_error(monkeypatch):
    table = pa.table({"a": [1]})
    with pytest.raises(ConfigError, match="'excel' is not a kind of frame"):
        make_frame(table, "excel")
    monkeypatch.setattr("producer_core._internal.dataframe.find_spec", lambda name: None)
    with pytest.raises(ConfigError, match="pip install polars"):
        make_frame(table, "polars")
    assert make_frame(table) is table
