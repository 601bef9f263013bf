"""The fleet page: every producer the store knows, sorted by trouble, what they deliver together, jobs and audits."""

from __future__ import annotations

import time
from pathlib import Path

import streamlit as st

from producer_core.dashboard import wording
from producer_core.dashboard.charts import Tile
from producer_core.dashboard.charts.fleet import fleet_percentiles, spread
from producer_core.dashboard.components import live_table
from producer_core.dashboard.components.live_chart import live_plotly
from producer_core.dashboard.components.live_dom import live_dom
from producer_core.dashboard.components.live_table import Column, Line, TablePart, TableRow
from producer_core.dashboard.queries.fleet import STATES, TROUBLED, Fleet, Member, fleet
from producer_core.dashboard.queries.view import View
from producer_core.dashboard.server.stores import opened
from producer_core.dashboard.views import adaptive_cache, audit, common, header, pipeline, tiles
from producer_core.dashboard.wording import fleet as say
from producer_core.metrics.histogram import RELATIVE_ERROR

SHOWN = 50
WHO = ("In the range", "In trouble", "All known")


def show(path: Path) -> None:
    view = header.view(path, "Fleet")
    live_table.style()
    if asked := st.query_params.get("audit"):
        audit.show(path, asked, header.every(view))
        return
    st.fragment(_live, run_every=header.every(view))(path, view)


def _asked() -> str:
    """Whom the field asks for, before it is drawn: it stands by its table, below the charts, which are seen sooner so."""
    return str(st.session_state.get("who") or st.query_params.get("who") or WHO[0])


def _choices() -> tuple[str, str]:
    with st.container(horizontal=True, vertical_alignment="center", gap="small"):
        who = st.segmented_control(
            "Producers",
            WHO,
            default=WHO[0],
            key="who",
            bind="query-params",
            required=True,
            label_visibility="collapsed",
        )
        text = st.text_input(
            "Find a producer",
            key="find",
            bind="query-params",
            placeholder="Find by name, host, version or id",
            label_visibility="collapsed",
            width=280,
        )
    return who or WHO[0], text or ""


def _live(path: Path, view: View) -> None:
    everybody = _asked() == WHO[2]
    shown = adaptive_cache.read(path, "fleet", (view, everybody), lambda: reading(path, view, everybody))
    if shown is None:
        return
    now = time.time()
    common.stays(shown.seen_at, now)
    pipeline.unheard(shown)
    common.say(*say.fleet_summary(_crowd(shown)))
    pipeline.trouble(shown)
    _tiles(shown)
    left, right = st.columns(2, gap="medium")
    with left:
        common.heading("Latency of all producers together")
        common.note(f"From merged histograms: each percentile is right to {wording.percent(RELATIVE_ERROR)}.")
        live_plotly(
            fleet_percentiles(shown), key="fleet-latency", alt="Percentiles of all producers together"
        )
    with right:
        common.heading("Who stands apart")
        common.note("Each producer by its messages a second and its p99.")
        live_plotly(spread(shown), key="fleet-spread", alt="Each producer by rate and p99")
    _producers(shown, now)
    pipeline.jobs(shown, now)
    pipeline.audits(path, shown, now)


@st.cache_data(ttl=0.8, max_entries=16, show_spinner=False)  # type: ignore[untyped-decorator]  # streamlit is Any here
def reading(path: Path, view: View, everybody: bool) -> Fleet:
    """Once for all browsers that look at the same."""
    return fleet(opened(path), view, time.time(), include_all=everybody)


def _crowd(shown: Fleet) -> say.FleetSummary:
    states = shown.states
    return say.FleetSummary(
        running=shown.running,
        hosts=shown.hosts,
        known=shown.known,
        troubled=[(state, states[state]) for state in STATES if state in TROUBLED and states.get(state)],
        critical=any(severity == "critical" for member in shown.troubled for severity, _ in member.alerts),
    )


def _tiles(shown: Fleet) -> None:
    near = f"Of all producers together, from merged histograms, right to {wording.percent(RELATIVE_ERROR)}."
    p50, _, p99, p999 = (wording.milliseconds(value) for value in shown.found)
    found = [
        ("Producers", wording.count(shown.running), f"Those that run, on {wording.plural(shown.hosts, 'host')}."),
        ("In trouble", wording.count(len(shown.troubled)), "Not heard of, without a broker, with an alert, with messages that died, or with a full queue."),
        ("Throughput", wording.rate(shown.rate), "Acknowledged messages a second, over the last minute of the range."),
        ("Error rate", wording.percent(shown.error_rate), "Messages that died, of all that were settled in the range."),
        ("Latency p50", p50, near),
        ("Latency p99", p99, near),
        ("Latency p99.9", p999, near),
        ("Pending", wording.compact(shown.pending), "Accepted and not settled yet, in memory and in journals."),
    ]  # fmt: skip
    eight = [Tile(label, value, more=more) for label, value, more in found]
    live_dom(tiles.tiles(eight, look="pc-eight"), key="fleet-tiles")


# producers

_COLUMNS = (
    Column("Producer", wide=True),
    Column("State"),
    Column("Rate", number=True, more="Acknowledged messages a second, over the last minute of the range."),
    Column("Error rate", number=True, more="Messages that died, of those settled in the range."),
    Column("p99", number=True),
    Column("Dead letters", number=True, more="They wait in this store."),
    Column("Pending", number=True, more="Accepted and not settled: in memory, and in the journal behind it where there is one."),
    Column("Memory", number=True),
    Column("Version"),
    Column("Last seen"),
)  # fmt: skip


def _producers(shown: Fleet, now: float) -> None:
    common.heading("Producers, by trouble")
    who, text = _choices()
    if len(shown.versions) > 1:
        common.note(say.versions({wording.short(name): number for name, number in shown.versions.items()}))
    found = [
        member for member in shown.members if matches(member, text) and (who != WHO[1] or member.troubled)
    ]
    if not found:
        common.note("None matches." if shown.known else "None has written here yet.")
        return
    rows = [_row(member, now) for member in found[:SHOWN]]
    live_table.live_table(_COLUMNS, rows, key="fleet-producers", alt="Producers, those in trouble first")
    everything = len(found) == len(shown.members)
    if note := say.listed(len(rows), len(found), shown.known if everything else len(found)):
        common.note(note)


def matches(member: Member, text: str) -> bool:
    """Whether every word of the text is in the producer's name, host, version or id."""
    about = f"{member.name} {member.host} {member.version} {member.producer_id}".lower()
    return all(word in about for word in text.lower().split())


def _row(member: Member, now: float) -> TableRow:
    first, others = say.alerts_of(member.state, member.alerts)
    look, said = say.state(
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
    about: list[Line] = [
        TablePart(wording.short(member.name, 40), "strong", header.link("overview", producer=member.producer_id), member.producer_id),
        TablePart(f"{wording.short(member.host, 40)}, process {member.pid}", "small", more=member.host),
    ]  # fmt: skip
    states: list[Line] = [TablePart(wording.short(said, 120), look, more=said)]
    states += [TablePart(wording.short(text, 120), "small", more=text) for text in others]
    text, more = wording.stamp(member.seen_at, common.zone(), now)
    return TableRow(
        member.producer_id,
        (
            about,
            states,
            wording.rate(member.rate) if member.rate else "–",
            wording.percent(member.error_rate),
            wording.milliseconds(member.p99),
            TablePart(wording.count(member.dead_letters), href=_dead_letters(member))
            if member.dead_letters
            else TablePart("none", "small"),
            wording.count(member.pending),
            wording.size(member.memory),
            TablePart(wording.short(member.version, 20), "small", more=member.version),
            TablePart(text, more=more),
        ),
    )


def _dead_letters(member: Member) -> str:
    return header.link("dead-letters", range=None, producer=None, producer_id=member.producer_id)
