"""The trace of a dead letter, and the address at which a trace backend shows it."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from producer_core._internal.trace_context import context_of
from producer_core.store.setting_values import TRACE_LINK, TRACE_PLACEHOLDER

if TYPE_CHECKING:
    from producer_core.events import DeadLetter
    from producer_core.store import Store


class RecordTrace(NamedTuple):
    """A trace id of 32 hexadecimal digits. `sampled` tells whether the trace was recorded; `link` is None without a template."""

    trace_id: str
    sampled: bool
    link: str | None


def trace_of(store: Store, dead_letter: DeadLetter) -> RecordTrace | None:
    """Return the trace that created a dead letter's record; None for a record without a context."""
    context = context_of(dead_letter.headers)
    if context is None:
        return None
    template, trace_id = store.get_setting(TRACE_LINK), context.trace_id_text
    link = template.replace(TRACE_PLACEHOLDER, trace_id) if template and context.sampled else None
    return RecordTrace(trace_id, context.sampled, link)
