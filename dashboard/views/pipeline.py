"""The pipeline on the fleet page: its jobs, and the last audit of each topic."""

from __future__ import annotations

import time
from pathlib import Path

import streamlit as st

from producer_core._internal.masking import mask_text
from producer_core.dashboard import wording
from producer_core.dashboard.components.live_table import Cell, Column, Line, TablePart, TableRow, live_table
from producer_core.dashboard.queries.audits import FAULTS, TopicAudit
from producer_core.dashboard.queries.fleet import Fleet
from producer_core.dashboard.queries.jobs import JobState
from producer_core.dashboard.views import common, header
from producer_core.dashboard.wording import audits as told
from producer_core.dashboard.wording import fleet as say
from producer_core.dashboard.wording import jobs as of

_JOBS, _TOPICS = 20, 50


def unheard(shown: Fleet) -> None:
    """That nobody brings telemetry, above what seems to follow from it: who is not heard of may be well."""
    telemetry = [job for job in shown.jobs if job.kind == "telemetry"]
    if telemetry and shown.states.get("silent") and not any(job.state == "running" for job in telemetry):
        common.say("warning", of.telemetry_stopped(time.time() - max(job.seen_at for job in telemetry)))


def trouble(shown: Fleet) -> None:
    """What an audit found, and jobs that died, above everything else."""
    if text := told.faults(shown.audits):
        common.say("bad", text)
    if dead := sum(job.state == "dead" for job in shown.jobs):
        common.say("bad", of.dead_jobs(dead))


# jobs

_JOB_COLUMNS = (
    Column("Job"),
    Column("State"),
    Column("Progress", number=True),
    Column("Behind", number=True, more="Records on its topics that it has not read yet."),
    Column("Last success"),
    Column("Says", wide=True),
)


def jobs(shown: Fleet, now: float) -> None:
    common.heading("Jobs")
    if shown.jobs:
        rows = [_job(job, now) for job in shown.jobs[:_JOBS]]
        live_table(_JOB_COLUMNS, rows, key="fleet-jobs", alt="Jobs of the pipeline, dead ones first")
        if len(shown.jobs) > _JOBS:
            common.note(f"The first {_JOBS} of {len(shown.jobs):,}.")
    if not any(job.kind == "telemetry" for job in shown.jobs):
        common.note(say.ONE_HOST if shown.known_hosts < 2 else say.NO_TELEMETRY_JOB)
        st.code(say.TELEMETRY_COMMANDS, language=None, wrap_lines=True)


def _job(job: JobState, now: float) -> TableRow:
    look, text = of.state(
        job.state, now, started_at=job.started_at, seen_at=job.seen_at, ended_at=job.ended_at
    )
    about: list[Line] = [
        TablePart(of.TITLES.get(job.kind, job.kind), "strong"),
        TablePart(wording.short(job.name, 48), "mono", more=job.name),
        TablePart(f"{wording.short(job.host, 40)}, process {job.pid}", "small", more=job.host),
    ]
    said = mask_text(job.message)
    ago = None if job.last_success_at is None else now - job.last_success_at
    cells: tuple[Cell, ...] = (
        about,
        TablePart(text, look),
        of.progress(job.kind, job.done, job.total, job.share),
        of.lag(job.lag),
        of.last_success(ago),
        TablePart(wording.short(said, 160), "small", more=said) if said else "–",
    )
    return TableRow(job.name, cells)


# audits

_AUDIT_COLUMNS = (
    Column("Topic"),
    Column("What was found", wide=True),
    *(Column(told.LABELS[kind], number=True, more=told.MEANINGS[kind]) for kind in FAULTS),
    Column("When"),
    Column("Which part"),
)


def audits(path: Path, shown: Fleet, now: float) -> None:
    common.heading("Audits")
    if not shown.audits:
        common.note(told.NONE_YET)
        st.code(told.command(str(path)), language=None, wrap_lines=True)
        return
    rows = [_audit(last, now) for last in shown.audits[:_TOPICS]]
    live_table(_AUDIT_COLUMNS, rows, key="fleet-audits", alt="The last audit of each topic, faults first")
    if len(shown.audits) > _TOPICS:
        more = "The first {} of {:,} topics; choose a topic above to see another."
        common.note(more.format(_TOPICS, len(shown.audits)))


def _audit(last: TopicAudit, now: float) -> TableRow:
    audit = last.audit
    tone, text = told.verdict(audit, now)
    when = wording.stamp(audit.started_at, common.zone(), now)
    name: list[Line] = [
        TablePart(wording.short(audit.topic, 40), "strong", address(audit.audit_id), audit.topic)
    ]
    if audit.unauditable:
        name.append(TablePart(told.UNAUDITABLE, "badge", more=told.why_unauditable(audit)))
    said: list[Line] = [TablePart(wording.short(text, 300), tone, more=text)]
    said += [TablePart(f"Also {more}.", "small")] if (more := told.other_counts(audit)) else []
    said += [TablePart(wording.short(told.later(last.later, now), 200), "small")] if last.later else []
    if before := last.earlier:
        text = told.earlier(before, now)
        said.append(TablePart(wording.short(text, 300), "warning", address(before.audit_id), text))
    return TableRow(
        f"{audit.cluster_id} {audit.topic}",
        (
            name,
            said,
            *(fault(told.number(audit, kind), kind, bool(audit.numbers[kind])) for kind in FAULTS),
            TablePart(when.text, more=when.more),
            told.audited_range(audit, common.zone(), now),
        ),
    )


def fault(text: str, kind: str, found: bool) -> TablePart:
    """A number of faults, in the look of its kind where there are any."""
    looks = {"lost": TablePart(text, "lost"), "duplicated": TablePart(text, "duplicated"), "reordered": TablePart(text, "reordered")}  # fmt: skip
    return looks.get(kind, TablePart(text)) if found else TablePart(text, "small")


def address(audit_id: str, **more: str | None) -> str:
    """Where one audit is shown from all sides."""
    return header.link("fleet", audit=audit_id, **more)
