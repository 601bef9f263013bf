"""The trace context in a record's headers, by the rules of W3C Trace Context."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from producer_core._internal.trace_context import (
    TraceContext,
    carries_one,
    context_headers,
    context_of,
    with_only,
)

PARENT = b"00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"
CONTEXT = TraceContext(0x4BF92F3577B34DA6A3CE929D0E0E4736, 0x00F067AA0BA902B7, 1)


def test_the_context_of_the_specifications_example_is_read():
    assert context_of([("a", b"1"), ("traceparent", PARENT)]) == CONTEXT
    assert CONTEXT.trace_id_text == "4bf92f3577b34da6a3ce929d0e0e4736"
    assert CONTEXT.sampled and not CONTEXT._replace(flags=2).sampled


@pytest.mark.parametrize(
    "value",
    [
        None,
        b"",
        b"00-" + b"0" * 32 + b"-00f067aa0ba902b7-01",
        b"00-4bf92f3577b34da6a3ce929d0e0e4736-" + b"0" * 16 + b"-01",
        b"ff-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01",
        b"00-4BF92F3577B34DA6A3CE929D0E0E4736-00f067aa0ba902b7-01",
        PARENT + b"-more",
        PARENT + b"\n",
        b"\xff\xfe",
    ],
)
def test_an_invalid_traceparent_is_no_context(value):
    assert context_of([("traceparent", value)]) is None


def test_a_later_version_may_have_further_fields():
    assert context_of([("traceparent", b"01" + PARENT[2:] + b"-more")]) == CONTEXT


def test_the_first_valid_traceparent_counts_and_tracestate_is_joined():
    headers = [("traceparent", b"?"), ("traceparent", PARENT), ("tracestate", b"a=1"), ("tracestate", b"b=2")]

    assert context_of(headers) == CONTEXT._replace(state="a=1,b=2")


def test_a_context_replaces_all_others_and_keeps_the_other_headers():
    headers = [
        ("a", b"1"),
        ("traceparent", b"?"),
        ("traceparent", PARENT),
        ("tracestate", b"x=1"),
        ("b", None),
    ]

    assert with_only(headers, CONTEXT) == [("a", b"1"), ("b", None), ("traceparent", PARENT)]
    assert not carries_one(headers) and carries_one(with_only(headers, CONTEXT))


@given(
    st.integers(1, 2**128 - 1), st.integers(1, 2**64 - 1), st.integers(0, 255), st.sampled_from(["", "k=v"])
)
def test_a_written_context_is_read_back(trace_id, span_id, flags, state):
    written = TraceContext(trace_id, span_id, flags, state)

    assert context_of(context_headers(written)) == written
