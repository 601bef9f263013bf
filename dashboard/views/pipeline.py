"""Draw the pipeline's jobs and the last audit of each topic on the fleet page."""

from __future__ import annotations

import time
from pathlib import Path

import streamlit as st

from producer_core._internal.masking import mask_text
from producer_core.dashboard import wording
from producer_core.dashboard.components.live_table import Cell, Column, Line, TablePart, TableRow, live_table
from producer_core.dashboard.components.scroll_into_view import scroll_into_view
from producer_core.dashboard.queries import audits as audit_queries
from producer_core.dashboard.queries.audits import FAULTS, TopicAudit
from producer_core.dashboard.queries.fleet import Fleet
from producer_core.dashboard.queries.jobs import JobState
from producer_core.dashboard.server.stores import open_store
from producer_core.dashboard.views import common, header
from producer_core.dashboard.wording import audits as audit_wording
from producer_core.dashboard.wording import fleet as fleet_wording
from producer_core.dashboard.wording import jobs as job_wording

_SHOWN_JOBS, _SHOWN_TOPICS = 20, 50


def telemetry_warning(page: Fleet) -> None:
    """Warn that no telemetry job is running, because silent producers may then be healthy."""
    telemetry = [job for job in page.jobs if job.kind == "telemetry"]
    if telemetry and page.states.get("silent") and not any(job.state == "running" for job in telemetry):
        common.message(
            "warning", job_wording.telemetry_stopped(time.time() - max(job.seen_at for job in telemetry))
        )


def problems(page: Fleet) -> None:
    """Show the faults that audits found and the number of jobs that died."""
    if text := audit_wording.faults(page.audits):
        common.message("bad", text)
        faulty = [one.audit for one in page.audits if one.audit.faults][:3]
        links = [common.link_element(f"Audit of {one.topic}", address(one.audit_id)) for one in faulty]
        st.html(f'<p class="pc-note">{" · ".join(links)}</p>')
    if dead := sum(job.state == "dead" for job in page.jobs):
        common.message("bad", job_wording.dead_jobs(dead))


# jobs

_JOB_COLUMNS = (
    Column("Job"),
    Column("State"),
    Column("Progress", number=True),
    Column("Lag", number=True, tooltip="Records on the job's topics that the job has not read yet."),
    Column("Last success"),
    Column("Message", wide=True),
)


def jobs(page: Fleet, now: float) -> None:
    common.heading("Jobs")
    if page.jobs:
        rows = [_job(job, now) for job in page.jobs[:_SHOWN_JOBS]]
        live_table(_JOB_COLUMNS, rows, key="fleet-jobs", alt="Pipeline jobs, dead ones first")
        if len(page.jobs) > _SHOWN_JOBS:
            common.note(f"Showing the first {_SHOWN_JOBS} of {len(page.jobs):,}.")
    if not any(job.kind == "telemetry" for job in page.jobs):
        common.note(fleet_wording.ONE_HOST if page.known_hosts < 2 else fleet_wording.NO_TELEMETRY_JOB)
        st.code(fleet_wording.TELEMETRY_COMMANDS, language=None, wrap_lines=True)


def _job(job: JobState, now: float) -> TableRow:
    style, text = job_wording.state(
        job.state, now, started_at=job.started_at, seen_at=job.seen_at, ended_at=job.ended_at
    )
    title: list[Line] = [
        TablePart(job_wording.TITLES.get(job.kind, job.kind), "strong"),
        TablePart(job.name, "mono"),
        TablePart(f"{job.host}, process {job.pid}", "small"),
    ]
    message = mask_text(job.message)
    ago = None if job.last_success_at is None else now - job.last_success_at
    cells: tuple[Cell, ...] = (
        title,
        TablePart(text, style),
        job_wording.progress(job.kind, job.done, job.total, job.share),
        job_wording.lag(job.lag),
        job_wording.last_success(ago),
        TablePart(wording.clipped(message, 160), "small", tooltip=message) if message else "–",
    )
    return TableRow(job.name, cells)


# audits

_AUDIT_COLUMNS = (
    Column("Topic"),
    Column("Result", wide=True),
    *(
        Column(audit_wording.LABELS[kind], number=True, tooltip=audit_wording.MEANINGS[kind])
        for kind in FAULTS
    ),
    Column("Started"),
    Column("Range"),
)


def audits(path: Path, page: Fleet, now: float) -> None:
    scroll_into_view(key="fleet-audits-place", enabled=st.query_params.get("to") == "audits")
    common.heading("Audits")
    if not page.audits:
        common.note(audit_wording.NONE_YET)
        topic = header.selected_view().topic
        sources = audit_queries.sources(open_store(path), topic)
        st.code(audit_wording.command(str(path), topic or "TOPIC", sources), language=None, wrap_lines=True)
        return
    rows = [_audit(last, now) for last in page.audits[:_SHOWN_TOPICS]]
    live_table(_AUDIT_COLUMNS, rows, key="fleet-audits", alt="The last audit of each topic, faults first")
    if len(page.audits) > _SHOWN_TOPICS:
        common.note(
            f"Showing the first {_SHOWN_TOPICS} of {len(page.audits):,} topics. Select a topic above to see others."
        )


def _audit(last: TopicAudit, now: float) -> TableRow:
    audit = last.audit
    tone, text = audit_wording.verdict(audit, now)
    when = wording.stamp(audit.started_at, common.zone(), now)
    name: list[Line] = [TablePart(audit.topic, "strong", address(audit.audit_id))]
    if audit.unauditable:
        name.append(
            TablePart(audit_wording.UNAUDITABLE, "badge", tooltip=audit_wording.why_unauditable(audit))
        )
    result: list[Line] = [TablePart(wording.clipped(text, 300), tone, tooltip=text)]
    result += [TablePart(f"Also {more}.", "small")] if (more := audit_wording.other_counts(audit)) else []
    result += (
        [TablePart(wording.clipped(audit_wording.later(last.later, now), 200), "small")] if last.later else []
    )
    if before := last.earlier:
        text = audit_wording.earlier(before, now)
        result.append(TablePart(wording.clipped(text, 300), "warning", address(before.audit_id), text))
    return TableRow(
        f"{audit.cluster_id} {audit.topic}",
        (
            name,
            result,
            *(fault(audit_wording.number(audit, kind), kind, bool(audit.numbers[kind])) for kind in FAULTS),
            TablePart(when.text, tooltip=when.more),
            audit_wording.audited_range(audit, common.zone(), now),
        ),
    )


def fault(text: str, kind: str, found: bool) -> TablePart:
    """Return a number of faults, in the style of its kind if there are any."""
    styled = {"lost": TablePart(text, "lost"), "duplicated": TablePart(text, "duplicated"), "reordered": TablePart(text, "reordered")}  # fmt: skip
    return styled.get(kind, TablePart(text)) if found else TablePart(text, "small")


def address(audit_id: str, **query: str | None) -> str:
    """Return the URL of an audit's page."""
    return header.link("fleet", audit=audit_id, **query)
