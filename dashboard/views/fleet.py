"""Draw the fleet page: all producers with their problems first, their combined statistics, jobs and audits."""

from __future__ import annotations

import time
from pathlib import Path

import streamlit as st

from producer_core.dashboard import wording
from producer_core.dashboard.charts import Tile
from producer_core.dashboard.charts.fleet import comparable, fleet_percentiles, spread
from producer_core.dashboard.components import live_table
from producer_core.dashboard.components.live_chart import live_plotly
from producer_core.dashboard.components.live_dom import live_dom
from producer_core.dashboard.components.live_table import Column, Line, TablePart, TableRow
from producer_core.dashboard.queries.fleet import STATES, TROUBLED, Fleet, Member, fleet
from producer_core.dashboard.queries.view import View
from producer_core.dashboard.server.stores import open_store
from producer_core.dashboard.views import adaptive_cache, audit, common, event_reads, header, pipeline, tiles
from producer_core.dashboard.wording import fleet as fleet_wording
from producer_core.metrics.histogram import RELATIVE_ERROR

SHOWN = 50
_LONGEST = 160
"""The number of characters after which the text of a state is clipped."""
SCOPES = ("In the range", "Unhealthy", "All known")


def show(path: Path) -> None:
    view = header.view(path, "Fleet")
    live_table.load_style_sheet()
    if audit_id := st.query_params.get("audit"):
        audit.show(path, audit_id, header.every(view))
        return
    st.fragment(_live, run_every=header.every(view))(path, view)


def _scope() -> str:
    """Return the scope before its control is drawn: the control is beside the table, below the charts."""
    return str(st.session_state.get("who") or st.query_params.get("who") or SCOPES[0])


def _controls() -> tuple[str, str]:
    """Draw the controls of the table, and return the scope and the search text."""
    with st.container(horizontal=True, vertical_alignment="center", gap="small"):
        scope = st.segmented_control(
            "Producers",
            SCOPES,
            default=SCOPES[0],
            key="who",
            bind="query-params",
            required=True,
            label_visibility="collapsed",
        )
        text = st.text_input(
            "Find a producer",
            key="find",
            bind="query-params",
            placeholder="Name, host, version or id",
            label_visibility="collapsed",
            width=280,
        )
    return scope or SCOPES[0], text or ""


def _live(path: Path, view: View) -> None:
    all_known = _scope() == SCOPES[2]
    page = adaptive_cache.read(path, "fleet", (view, all_known), lambda: read_fleet(path, view, all_known))
    if page is None:
        return
    now = time.time()
    common.data_age(page.seen_at, now)
    pipeline.telemetry_warning(page)
    common.message(*fleet_wording.fleet_summary(_summary(page)))
    pipeline.problems(page)
    _tiles(page)
    if not comparable(page):
        _latency(path, page, view)
    else:
        left, right = st.columns(2, gap="medium")
        with left:
            _latency(path, page, view)
        with right:
            common.heading("Outliers")
            common.note("Each producer by its messages per second and its p99 latency.")
            live_plotly(spread(page), key="fleet-spread", alt="Each producer by rate and p99 latency")
    _producers(page, now)
    pipeline.jobs(page, now)
    pipeline.audits(path, page, now)


def _latency(path: Path, page: Fleet, view: View) -> None:
    common.heading("Latency of all producers")
    common.note(f"From merged histograms; the relative error is at most {wording.percent(RELATIVE_ERROR)}.")
    live_plotly(
        fleet_percentiles(page),
        key="fleet-latency",
        alt="Latency percentiles of all producers",
        marks=event_reads.chart_marks(path, view),
    )


@st.cache_data(ttl=0.8, max_entries=16, show_spinner=False)  # type: ignore[untyped-decorator]  # streamlit is Any here
def read_fleet(path: Path, view: View, all_known: bool) -> Fleet:
    """Read the page once for all browsers that show the same view."""
    return fleet(open_store(path), view, time.time(), include_all=all_known)


def _summary(page: Fleet) -> fleet_wording.FleetSummary:
    states = page.states
    return fleet_wording.FleetSummary(
        running=page.running,
        hosts=page.hosts,
        known=page.known,
        troubled=[(state, states[state]) for state in STATES if state in TROUBLED and states.get(state)],
        critical=any(severity == "critical" for member in page.troubled for severity, _ in member.alerts),
    )


def _tiles(page: Fleet) -> None:
    accuracy = f"All producers, from merged histograms. Relative error: {wording.percent(RELATIVE_ERROR)}."
    p50, _, p99, p999 = (wording.milliseconds(value) for value in page.found)
    values = [
        ("Producers", wording.count(page.running), f"Running producers, on {wording.plural(page.hosts, 'host')}."),
        ("Unhealthy", wording.count(len(page.troubled)), "Silent, disconnected, alerting, failing to deliver, or with a full queue."),
        ("Throughput", wording.rate(page.rate), "Acknowledged messages per second over the last minute, or over a past range."),
        ("Error rate", wording.percent(page.error_rate), "Share of settled messages that became dead letters."),
        ("Latency p50", p50, accuracy),
        ("Latency p99", p99, accuracy),
        ("Latency p99.9", p999, accuracy),
        ("Pending", wording.compact(page.pending), "Accepted but not settled, in memory and in journals."),
    ]  # fmt: skip
    figures = [Tile(label, value, more=more) for label, value, more in values]
    live_dom(tiles.tiles(figures, css_class="pc-eight"), key="fleet-tiles")


# producers

_COLUMNS = (
    Column("Producer", wide=True),
    Column("State"),
    Column("Rate", number=True, tooltip="Acknowledged messages per second over the last minute, or over a past range."),
    Column("Error rate", number=True, tooltip="Share of settled messages that became dead letters."),
    Column("p99", number=True),
    Column("Dead letters", number=True, tooltip="Pending dead letters in this store."),
    Column("Pending", number=True, tooltip="Accepted but not settled, in memory and in the journal."),
    Column("Memory", number=True),
    Column("Last seen"),
)  # fmt: skip


def _producers(page: Fleet, now: float) -> None:
    common.heading("Producers")
    scope, text = _controls()
    if len(page.versions) > 1:
        common.note(fleet_wording.versions(page.versions))
    found = [
        member for member in page.members if matches(member, text) and (scope != SCOPES[1] or member.troubled)
    ]
    if not found:
        common.note("No producer matches." if page.known else "No producer has written to this store yet.")
        return
    rows = [_row(member, now) for member in found[:SHOWN]]
    alt = "Producers, unhealthy ones first"
    live_dom(live_table.table(_COLUMNS, rows, alt=alt, look="pc-plain pc-dense"), key="fleet-producers")
    unfiltered = len(found) == len(page.members)
    if note := fleet_wording.listed(len(rows), len(found), page.known if unfiltered else len(found)):
        common.note(note)


def matches(member: Member, text: str) -> bool:
    """Return whether every word of the text occurs in the producer's name, host, version or id."""
    searched = f"{member.name} {member.host} {member.version} {member.producer_id}".lower()
    return all(word in searched for word in text.lower().split())


def _row(member: Member, now: float) -> TableRow:
    first, others = fleet_wording.alerts_of(member.state, member.alerts)
    style, state = fleet_wording.state(
        member.state,
        now,
        seen_at=member.seen_at,
        closed_at=member.closed_at,
        error=member.connection_error,
        alert=first,
        dead=member.dead,
        settled=member.dead + member.acknowledged,
        fill=member.fill,
    )
    title: list[Line] = [
        TablePart(member.name, "strong", header.link("overview", producer=member.producer_id), member.producer_id),
        TablePart(f"{member.host}, process {member.pid}", "small"),
        TablePart(f"version {member.version}", "small"),
    ]  # fmt: skip
    states: list[Line] = [TablePart(wording.clipped(state, _LONGEST), style, tooltip=state)]
    states += [TablePart(wording.clipped(text, _LONGEST), "small", tooltip=text) for text in others]
    seen, seen_utc = wording.stamp(member.seen_at, common.zone(), now)
    return TableRow(
        member.producer_id,
        (
            title,
            states,
            wording.rate(member.rate) if member.rate else "–",
            wording.percent(member.error_rate),
            wording.milliseconds(member.p99),
            TablePart(wording.count(member.dead_letters), href=_dead_letters(member))
            if member.dead_letters
            else TablePart("none", "small"),
            wording.count(member.pending),
            wording.size(member.memory),
            TablePart(seen, tooltip=seen_utc),
        ),
    )


def _dead_letters(member: Member) -> str:
    return header.link("dead-letters", range=None, producer=None, producer_id=member.producer_id)
