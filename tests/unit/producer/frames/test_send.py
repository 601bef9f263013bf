"""send_frame: the counts add up, and an interrupted frame can be continued."""

from __future__ import annotations

import json
import signal
import threading

import pandas as pd
import pyarrow as pa
import pytest

from producer_core import ReliableKafkaProducer
from producer_core.errors import ConfigError, InvalidMessage, JournalLocked, ProducerClosed
from producer_core.producer.frames import FrameInterrupted
from producer_core.testing import InMemoryTransport
from tests.fixtures.frames import failing, producer_of, value_of
from tests.support import eventually


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


def test_invalid_options_are_rejected(sent):
    producer, _ = sent
    with pytest.raises(ConfigError):
        producer.send_frame(pd.DataFrame({"a": [1]}), "orders", nan="zero")
    with pytest.raises(InvalidMessage):
        producer.send_frame(pd.DataFrame({"a": [1]}), "orders", start=-1)
    with pytest.raises(InvalidMessage, match="topic name"):
        producer.send_frame(pd.DataFrame({"a": [1]}), "no such topic")


@pytest.mark.slow
def test_the_counts_add_up_and_dead_rows_are_listed(tmp_path):
    with producer_of(failing(3), tmp_path / "s.duckdb") as producer:
        result = producer.send_frame(pd.DataFrame({"n": range(10)}), "orders", key="n")

        assert (result.total, result.acknowledged, result.dead, result.pending) == (10, 7, 3, 0)
        assert not result.complete and result.next == 10
        assert {one.verdict for one in result.deaths} == {"rejected"}
        frame = producer.dlq.to_frame()
        assert set(frame["message_id"]) == {one.message_id for one in result.deaths}
        assert "3 dead letters" in repr(result) and "dead letters" in result._repr_html_()


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


@pytest.mark.slow
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


@pytest.mark.slow
def test_send_frame_has_a_timeout():
    with ReliableKafkaProducer(
        store=None, transport=InMemoryTransport.factory(script=lambda delivery: "hold")
    ) as producer:
        result = producer.send_frame(pd.DataFrame({"n": [1, 2]}), "orders", timeout=0.2)
        assert (result.pending, result.complete) == (2, False)
        assert "pending" in repr(result)
        producer.close(timeout=0.1)


def test_a_second_producer_on_one_journal_in_one_process_raises_an_error_with_a_fix(tmp_path):
    with ReliableKafkaProducer(
        store=None, transport=InMemoryTransport, journal_dir=tmp_path / "j"
    ) as producer:
        with pytest.raises(JournalLocked, match=r"already open in this process.*close\(\)"):
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
