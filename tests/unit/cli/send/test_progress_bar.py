"""The progress line of a `send`: its counts and the state of the connection."""

from __future__ import annotations

import contextlib
import gzip
import re
import time
from types import SimpleNamespace

import pytest
from confluent_kafka import KafkaError

from producer_core.cli.send.fingerprint import fingerprint
from producer_core.cli.send.open_rows import open_rows
from producer_core.cli.send.progress_bar import _remaining, _sentence
from producer_core.cli.send.send_run import RowOptions, SendRun
from producer_core.delivery.connection_state import ConnectionState
from tests.fixtures.enqueueing import quick_producer

UP = {"brokers": {"b": {"state": "UP"}}}
REFUSED = KafkaError(KafkaError._TRANSPORT, "localhost:9092/1: Connect failed: Connection refused")
ALL_DOWN = KafkaError(KafkaError._ALL_BROKERS_DOWN, "1/1 brokers are down")


@pytest.fixture
def state():
    snapshot = SimpleNamespace(acknowledged=1000, dead=3)
    producer = SimpleNamespace(
        metrics=SimpleNamespace(snapshot=lambda: snapshot),
        pending_count=34_094,
        connection=ConnectionState(lambda notice: None),
    )
    return SimpleNamespace(
        producer=producer, read=2000, already_done=0, malformed=0, phase="settling", interrupted=False,
        started=time.monotonic(),
    )  # fmt: skip


def test_the_line_names_a_lost_broker_until_it_is_connected_again(state):
    state.producer.connection.statistics(UP)
    assert "broker" not in _sentence(state)

    state.producer.connection.failed(REFUSED)
    state.producer.connection.failed(ALL_DOWN)
    assert "waiting for 34,094; no broker is connected: localhost:9092/1: Connect failed" in _sentence(state)

    state.producer.connection.statistics(UP)
    assert _sentence(state).endswith("waiting for 34,094")


def test_one_lost_broker_of_several_is_not_a_lost_connection(state):
    state.producer.connection.statistics(UP)
    state.producer.connection.failed(REFUSED)
    assert _sentence(state).endswith("waiting for 34,094")


def test_malformed_lines_are_counted_as_malformed_and_not_as_dead(state):
    state.malformed = 2
    assert "1,000 acknowledged, 1 dead, 2 malformed" in _sentence(state)


ROWS = 50


def file_of(form, folder):
    import pyarrow
    import pyarrow.parquet

    path = folder / {"jsonl": "r.jsonl", "gz": "r.jsonl.gz", "csv": "r.csv", "csv.gz": "r.csv.gz"}.get(
        form, f"r.{form}"
    )
    lines = [f"{number:03}" for number in range(ROWS)]
    text = "\n".join(["name", *lines] if "csv" in form else [f'"{line}"' for line in lines])
    if form == "parquet":
        pyarrow.parquet.write_table(pyarrow.table({"name": lines}), path)
    elif form.endswith("gz"):
        path.write_bytes(gzip.compress(text.encode()))
    else:
        path.write_text(text)
    return path


@pytest.mark.parametrize("resumable", [False, True], ids=["", "resumable"])
@pytest.mark.parametrize("form", ["jsonl", "gz", "csv", "csv.gz", "parquet"])
def test_the_share_counts_the_rows_that_were_accepted(form, resumable, tmp_path):
    """Regression: a small file is read ahead, so the line said 100 % and 0 s left from the first row on."""
    path = file_of(form, tmp_path)
    shares = []
    with contextlib.closing(open_rows(path)) as rows:
        producer, _ = quick_producer()
        run = SendRun(producer, rows, "orders", RowOptions())
        run._content = fingerprint(path, lambda done, total: None) if resumable else None
        accept = producer.send_message

        def send_message(*arguments, **options):
            shares.append(_remaining(run.state))
            return accept(*arguments, **options)

        producer.send_message = send_message
        run.run()
    percents = [float(re.match(r", (\d+)%", share)[1]) for share in shares[1:]]

    assert shares[0] == "" and len(shares) == ROWS
    assert percents == pytest.approx([100 * done / ROWS for done in range(1, ROWS)], abs=3.0)
    assert run.state.covered == rows.content()[1]
