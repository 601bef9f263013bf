"""A record is the same after JSON Lines and Parquet."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from producer_core.dlq import codec
from producer_core.dlq.files import reader, writers
from producer_core.dlq.files.record import raw_line, record_of
from producer_core.dlq.files.validation import ImportedRecord
from tests.fixtures.transfers import dead_letters, small, states, texts


@pytest.mark.slow
@settings(max_examples=60, deadline=None)
@given(one=dead_letters, state=states, offset=st.none() | small, operation=st.none() | texts)
def test_a_record_is_equal_in_both_formats(one, state, offset, operation):
    """The records are read with the types they were written with. Without a store, many examples are possible."""
    body = dict(zip(codec.BODY_COLUMNS, codec.body_row(one), strict=True))
    row = dict(zip(codec.LETTER_COLUMNS, codec.dead_letter_row(one, now=5.0), strict=True))
    record = record_of({**row, "state": state, "landed_offset": offset, "operation_id": operation}, body)
    table = writers.batch([record], masked=False)

    line = reader._line(Path("a"), 1, raw_line(record))
    row = reader._row(1, table.to_pylist()[0])

    assert isinstance(line, ImportedRecord), line
    assert line == row
    read = line.dead_letter
    assert read == replace(one, state=state, verdict=read.verdict, verdict_reason=read.verdict_reason)
    assert (line.landed_offset, line.value_size) == (offset, None if one.value is None else len(one.value))
