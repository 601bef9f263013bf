"""Read and write the trace context of a record: the headers `traceparent` and `tracestate` of W3C Trace Context."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import NamedTuple

TRACEPARENT, TRACESTATE = "traceparent", "tracestate"

_FORM = re.compile(rb"([0-9a-f]{2})-([0-9a-f]{32})-([0-9a-f]{16})-([0-9a-f]{2})(-.*)?", re.DOTALL)
_SAMPLED = 1

Header = tuple[str, bytes | None]


class TraceContext(NamedTuple):
    """The trace and the span that created a record. `state` is the value of `tracestate`, empty without one."""

    trace_id: int
    span_id: int
    flags: int
    state: str = ""

    @property
    def sampled(self) -> bool:
        """Whether the trace was recorded."""
        return bool(self.flags & _SAMPLED)

    @property
    def trace_id_text(self) -> str:
        """The trace id as trace backends show it: 32 hexadecimal digits."""
        return f"{self.trace_id:032x}"


def context_of(headers: Sequence[Header]) -> TraceContext | None:
    """Return the trace context in a record's headers; None without a valid one. The first valid `traceparent` counts."""
    for name, value in headers:
        if name == TRACEPARENT and (found := _parsed(value)) is not None:
            return found._replace(state=_state_of(headers))
    return None


def with_only(headers: Sequence[Header], context: TraceContext) -> list[Header]:
    """Return the headers with this context and no other one. The other headers keep their order."""
    others: list[Header] = [one for one in headers if one[0] not in (TRACEPARENT, TRACESTATE)]
    return [*others, *context_headers(context)]


def context_headers(context: TraceContext) -> tuple[Header, ...]:
    """Return the headers that carry the context."""
    trace_id, span_id, flags, state = context
    parent = (TRACEPARENT, b"00-%032x-%016x-%02x" % (trace_id, span_id, flags))
    return (parent, (TRACESTATE, state.encode())) if state else (parent,)


def carries_one(headers: Sequence[Header]) -> bool:
    """Return whether exactly one header is a `traceparent`."""
    return [name for name, _ in headers].count(TRACEPARENT) == 1


def _parsed(value: bytes | None) -> TraceContext | None:
    """Return the context of a `traceparent`. A version above 00 may have further fields; ff is invalid."""
    found = _FORM.fullmatch(value or b"")
    if found is None or found[1] == b"ff" or (found[1] == b"00" and found[5] is not None):
        return None
    trace_id, span_id = int(found[2], 16), int(found[3], 16)
    return TraceContext(trace_id, span_id, int(found[4], 16)) if trace_id and span_id else None


def _state_of(headers: Sequence[Header]) -> str:
    values = [value for name, value in headers if name == TRACESTATE and value]
    return ",".join(value.decode("ascii", "replace") for value in values)
