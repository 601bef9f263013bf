"""Draw the time to decision of dead letters on their page: what is late, and a table of the topics."""

from __future__ import annotations

import contextlib
import time
from pathlib import Path

import streamlit as st

from producer_core.dashboard.components import live_table
from producer_core.dashboard.components.live_table import Column, TablePart, TableRow
from producer_core.dashboard.queries.decisions import RANGES, DecisionsPage
from producer_core.dashboard.views import common, dead_letter_reads
from producer_core.dashboard.wording import decisions as decision_wording
from producer_core.dlq.objectives import TopicDecisions
from producer_core.errors import StoreError

_PERIOD = "28 days"
_COLUMNS = (
    Column("Topic"),
    Column("Objective"),
    Column("In time", number=True),
    Column("Pending", number=True),
    Column("Next deadline"),
    Column("p50", number=True, tooltip="Half of the decided dead letters took at most this long."),
    Column("p95", number=True, tooltip="95% of the decided dead letters took at most this long."),
    Column("Record kept", tooltip=decision_wording.RECORD),
)


def late(path: Path) -> None:
    """Show the objectives that are missed or will be within an hour. Nothing is shown without such an objective."""
    with contextlib.suppress(StoreError):  # the totals already show the error
        page = dead_letter_reads.decisions(path, RANGES[_PERIOD])
        if page.late:
            common.message("warning", decision_wording.late(page.late, common.zone(), time.time()))


def table(path: Path) -> None:
    """Draw the table of topics over a range that the user selects."""
    with common.panel(path):
        with st.container(horizontal=True, vertical_alignment="center", gap="small"):
            common.heading("Time to decision")
            window = st.segmented_control(
                "Range of the time to decision", list(RANGES), default=_PERIOD, key="decisions-range",
                required=True, label_visibility="collapsed",
            )  # fmt: skip
        page = dead_letter_reads.decisions(path, RANGES[window or _PERIOD])
        if page.topics:
            rows = [_row(one, page) for one in page.topics]
            live_table.live_table(_COLUMNS, rows, key="decisions", alt="Time to decision by topic")
        else:
            common.note(decision_wording.NONE)
        common.note(decision_wording.DEFINITION)


def _row(one: TopicDecisions, page: DecisionsPage) -> TableRow:
    now, zone, probe = time.time(), common.zone(), page.probes[one.topic]
    return TableRow(
        one.topic,
        (
            one.topic,
            str(one.objective or "–"),
            TablePart(decision_wording.met(one), "bad" if one.is_missed else "plain"),
            TablePart(decision_wording.pending(one), "bad" if one.overdue else "plain"),
            TablePart(decision_wording.next_deadline(one, zone, now), "warning" if one.due else "plain"),
            decision_wording.taken(one.p50),
            decision_wording.taken(one.p95),
            TablePart(probe.text, "bad" if probe.left is not None and probe.left <= 0 else "plain"),
        ),
    )
