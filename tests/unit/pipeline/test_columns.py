"""Telemetry records as columns: every record of a producer fits; a record that would stop the merge is rejected."""

from __future__ import annotations

import json
from typing import get_args, get_type_hints

import pytest
from hypothesis import given
from hypothesis import strategies as st

from producer_core.metrics.batch import KINDS
from producer_core.metrics.telemetry import SCHEMA_VERSION, encode
from producer_core.pipeline.columns import SCHEMA, to_table
from producer_core.pipeline.merge_batch import merge, unseen
from producer_core.store import Batch, ProducerRow, Store
from tests.fixtures.telemetry_batches import heartbeat, micro_batch

_WHOLE = st.integers(-(2**53), 2**53)
_SMALL = st.integers(-(2**31), 2**31 - 1)
_VALUES = {
    int: _WHOLE,
    float: st.floats(allow_nan=False, allow_infinity=False) | st.integers(-(2**53), 2**53),
    str: st.text(st.characters(exclude_categories=["Cs"])),
    bool: st.booleans(),
    type(None): st.none(),
}
_LAST = 253_402_300_799
_TIMES = {**_VALUES, int: st.integers(0, _LAST), float: st.floats(0, _LAST) | st.integers(0, _LAST)}


def rows(kind):
    """Generate any row that the type hints of its kind allow."""
    values = [
        _SMALL
        if name in ("bucket", "broker_id")
        else st.one_of(*(_kinds(name)[one] for one in get_args(hint) or (hint,)))
        for name, hint in get_type_hints(kind).items()
    ]
    return st.tuples(*values).map(lambda cells: kind(*cells))


def _kinds(name):
    return _TIMES if name == "window_start" or name.endswith("_at") else _VALUES


def record(**changes):
    """Return a valid record with `changes`; Ellipsis omits a field."""
    whole = {
        "v": SCHEMA_VERSION, "producer_id": "p1", "sequence": 3, "cluster_id": "c",
        "statistics": [[1, "c", "p1", "orders", 10, 9, 1, 1, 0, 0, 0, 0, 90, 0.5]],
        "latencies": [[1, "c", "p1", "orders", 42, 9]], "errors": [[1, "c", "p1", "orders", "X", "permanent", 1]],
        "producer": list(heartbeat("p1", 5).values())[:-1],
    }  # fmt: skip
    fields = {**whole, **changes}
    return json.dumps({name: value for name, value in fields.items() if value is not ...}).encode()


def row(kind, place, value):
    """Return a record whose first row of `kind` has another value in one cell."""
    (cells,) = json.loads(record())[kind]
    return record(**{kind: [[*cells[:place], value, *cells[place + 1 :]]]})


def heartbeat_with(place, value):
    cells = list(heartbeat("p1", 5).values())[:-1]
    return record(producer=[*cells[:place], value, *cells[place + 1 :]])


batches = st.builds(
    Batch,
    st.text(st.characters(exclude_categories=["Cs"])),
    st.integers(1, 2**53),
    producer=st.none() | rows(ProducerRow),
    first=st.none() | st.integers(0, 1),
    **{name: st.lists(rows(kind.row), max_size=3).map(tuple) for name, kind in KINDS.items()},
)


@pytest.mark.slow
@given(st.lists(batches, max_size=5))
def test_every_batch_of_a_producer_converts_without_loss(sent):
    found = to_table([encode(batch) for batch in sent])

    assert found.rejected == {}
    assert found.batches.schema == SCHEMA
    assert found.batches.to_pylist() == [
        {
            "producer_id": batch.producer_id, "first": batch.begins, "sequence": batch.sequence,
            **{name: [one._asdict() for one in getattr(batch, name)] for name in KINDS},
            "producer": batch.producer._asdict() if batch.producer else None,
        }
        for batch in sent
    ]  # fmt: skip


FITS = {
    "as it is": record(),
    "without a heartbeat": record(producer=None),
    "with an application": record(application="checkout"),
    "an older producer's": record(client_statistics=None, broker_statistics=...),
    "with names of tomorrow": record(tomorrow={"a": [1]}),
    "a whole number for a float": row("statistics", 13, 2),
    "no limit and no error": heartbeat_with(16, None),
    "a clock that begins in 1970": row("statistics", 0, 0),
    "a clock far ahead": row("statistics", 0, 4_102_444_800),
}

REJECTED = {
    "not JSON": (b"\xff\x00", None),
    "nothing": (None, None),
    "a list": (b"[1]", None),
    "a newer schema": (record(v=SCHEMA_VERSION + 1), SCHEMA_VERSION + 1),
    "a version that is text": (record(v="1"), None),
    "a version that is true": (record(v=True), None),
    "a version beyond every bound": (record(v=2**40), None),
    "no producer": (record(producer_id=None), 1),
    "a producer that is a number": (record(producer_id=7), 1),
    "no number": (record(sequence=...), 1),
    "a negative number": (record(sequence=-1), 1),
    "a number beyond 2^53": (record(sequence=2**53 + 1), 1),
    "a number that is true": (record(sequence=True), 1),
    "a first after the last": (record(first=4), 1),
    "a first below 0": (record(first=-1), 1),
    "no statistics": (record(statistics=...), 1),
    "null for latencies": (record(latencies=None), 1),
    "an object for rows": (record(errors={}), 1),
    "text for rows": (record(errors=""), 1),
    "null for a row": (record(errors=[None]), 1),
    "text for a row": (record(latencies=["abcdef"]), 1),
    "a row of later rows that is short": (record(client_statistics=[[1]]), 1),
    "a short row": (record(latencies=[[1, "c", "p1", "orders", 42]]), 1),
    "a long row": (record(latencies=[[1, "c", "p1", "orders", 42, 9, 9]]), 1),
    "text for a number": (row("statistics", 4, "many"), 1),
    "a number as text": (row("statistics", 4, "10"), 1),
    "a number for text": (row("statistics", 3, 5), 1),
    "a fraction for a whole number": (row("statistics", 4, 10.5), 1),
    "true for a number": (row("statistics", 4, True), 1),
    "true for a float": (row("statistics", 13, True), 1),
    "null where a value belongs": (row("statistics", 13, None), 1),
    "a bucket beyond INTEGER": (row("latencies", 4, 4_200_000_000), 1),
    "a count whose sums leave BIGINT": (row("latencies", 5, 2**62), 1),
    "a count beyond BIGINT": (row("latencies", 5, 2**63), 1),
    "a count beyond every bound": (row("latencies", 5, 10**30), 1),
    "a list for a cell": (row("latencies", 3, ["orders"]), 1),
    "a heartbeat of another shape": (record(producer=["p1"]), 1),
    "a heartbeat that is text": (record(producer="p1"), 1),
    "an application that is a number": (record(application=7), 1),
    "a number for a boolean": (heartbeat_with(9, 1), 1),
    "text for a limit": (heartbeat_with(16, "much"), 1),
    "a second in the year 36812": (row("statistics", 0, 2**40), 1),
    "a second before 1970": (row("errors", 0, -1), 1),
    "a heartbeat in the year 33658": (heartbeat_with(7, 1e12), 1),
}  # fmt: skip


@pytest.fixture
def store(tmp_path):
    opened = Store.open(tmp_path / "fleet.duckdb")
    yield opened
    opened.close()


@pytest.mark.parametrize("name", FITS)
def test_a_valid_record_can_be_merged(store, name):
    found = to_table([FITS[name]])

    assert found.rejected == {}
    assert merge(store, unseen(store, found.batches), record=micro_batch("q", 0, 1.0)) == 1


@pytest.mark.parametrize("name", REJECTED)
def test_a_rejected_record_has_its_version_and_leaves_the_others(name):
    value, version = REJECTED[name]

    found = to_table([record(sequence=1), value, record(sequence=2)])

    assert found.rejected == {1: version}
    assert found.batches["sequence"].to_pylist() == [1, 2]


def test_all_invalid_records_are_found(monkeypatch):
    monkeypatch.setattr("producer_core.pipeline.columns._CHUNK_BYTES", 5_000)  # several chunks
    values = [record(sequence=number) for number in range(100)]
    for place in (0, 1, 50, 99):
        values[place] = row("latencies", 4, None)

    found = to_table(values)

    assert found.rejected == dict.fromkeys((0, 1, 50, 99), SCHEMA_VERSION)
    assert found.batches["sequence"].to_pylist() == [
        number for number in range(100) if number not in found.rejected
    ]


def test_no_records_convert_to_an_empty_table():
    assert to_table([]).batches.schema == SCHEMA
    assert to_table([]).batches.num_rows == 0
