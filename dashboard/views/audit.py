"""One audit from all sides: its verdict, what it found by kind and place, what it read, and the audits before it."""

from __future__ import annotations

import time
from pathlib import Path

import streamlit as st

from producer_core._internal.masking import mask_text
from producer_core.dashboard import wording
from producer_core.dashboard.components.live_dom import live_dom
from producer_core.dashboard.components.live_table import Cell, Column, Line, TablePart, TableRow, live_table
from producer_core.dashboard.html import link, node
from producer_core.dashboard.queries import audits as of
from producer_core.dashboard.server.stores import opened
from producer_core.dashboard.views import adaptive_cache, common, header, pipeline, replay_tables
from producer_core.dashboard.wording import audits as told

_PARTS = 200


def show(path: Path, audit_id: str, every: float | None) -> None:
    """The audit that the address names; it is looked at again while it runs."""
    found = _read(path, audit_id)
    runs = found is not None and found.audit.state == "running"
    st.fragment(_draw, run_every=every if runs else None)(path, audit_id)


def _read(path: Path, audit_id: str) -> of.AuditPage | None:
    asked = ("audit", audit_id)
    read = adaptive_cache.read(
        path, "audit-page", asked, lambda: (of.one(opened(path), audit_id, time.time()),)
    )
    return read[0] if read else None


def _draw(path: Path, audit_id: str) -> None:
    back = link("The fleet and all audits", header.link("fleet", audit=None))
    live_dom(node("p", back, class_="pc-note"), key="audit-back")
    page = _read(path, audit_id)
    if page is None:
        common.say("quiet", told.UNKNOWN.format(audit_id[:40]))
        return
    audit, now = page.audit, time.time()
    common.heading(f"Audit of {wording.short(audit.topic, 80)}")
    common.say(*told.verdict(audit, now))
    if why := told.why_unauditable(audit):
        common.say("warning", f"Unauditable. {why}")
    for line in audit.notes:
        common.note(mask_text(line))
    if audit.state == "done":
        kind = told.kind_of(st.query_params.get("kind"), page.kinds)
        left, right = st.columns([3, 2], gap="medium")
        with left:
            _counts(page, kind)
        with right:
            _facts(audit, now)
        if kind is not None:
            _findings(path, page, kind)
        _everything(page)
        _parts(page)
    else:
        _facts(audit, now)
    _others(page, now)
    common.heading("Audit it again")
    st.code(told.command(str(path), audit.topic), language=None, wrap_lines=True)


# what was found


def _counts(page: of.AuditPage, chosen: str | None) -> None:
    common.heading("What was found")
    columns = (Column("Kind"), Column("Messages", number=True), Column("Means", wide=True))
    rows = [
        TableRow(kind, (_kind(page, kind), number, meaning), chosen=kind == chosen)
        for kind, number, meaning in told.counts(page.audit)
    ]
    live_table(columns, rows, key="audit-counts", alt="What was found, by kind")


def _kind(page: of.AuditPage, kind: str) -> Cell:
    here = pipeline.address(page.audit.audit_id, kind=kind) if page.held.get(kind) else ""
    if not page.audit.numbers.get(kind):
        return TablePart(told.LABELS[kind], href=here)
    part = pipeline.fault(told.LABELS[kind], kind, True)
    return TablePart(part.text, part.look, here)


_COLUMNS = (
    Column("Message id"),
    Column("Partition", number=True),
    Column("Offset", number=True),
    Column("What", wide=True),
    Column("This store has"),
)


def _findings(path: Path, page: of.AuditPage, kind: str) -> None:
    audit_id = page.audit.audit_id
    most = of.MANY if st.query_params.get("findings") == "more" else of.SHOWN
    read = adaptive_cache.read(
        path,
        "audit-findings",
        (audit_id, kind, most),
        lambda: of.findings(opened(path), audit_id, kind, most),
    )
    if read is None:
        return
    common.heading(f"{told.LABELS[kind]}, by message id")
    rows = [_finding(number, one) for number, one in enumerate(read)]
    live_table(_COLUMNS, rows, key="audit-findings", alt=f"Findings: {told.LABELS[kind]}")
    if note := told.listed(len(read), page.held[kind], page.audit.numbers.get(kind)):
        common.note(note)
    if most < of.MANY and len(read) < page.held[kind]:
        more = link("Show more", pipeline.address(audit_id, kind=kind, findings="more"))
        live_dom(node("p", more, class_="pc-note"), key="audit-more")


def _finding(number: int, one: of.AuditFinding) -> TableRow:
    return TableRow(
        f"{number} {one.message_id}",
        (
            TablePart(wording.short(one.message_id, 64), "mono", more=one.message_id),
            wording.count(one.partition),
            wording.count(one.offset),
            wording.short(one.text, 200),
            _known(one),
        ),
    )


def _known(one: of.AuditFinding) -> Cell:
    """The dead letter of that message, and the replay that sent it."""
    lines: list[Line] = []
    if one.dead_letter is not None:
        text = told.DEAD_LETTER_STATES.get(one.dead_letter, one.dead_letter)
        lines.append(TablePart(text, href=replay_tables.letter_address(one.message_id)))
    if one.operation_id is not None:
        lines.append(TablePart("its replay", href=replay_tables.address(one.operation_id)))
    return lines or TablePart("no dead letter", "small")


def _everything(page: of.AuditPage) -> None:
    """Where all findings are, when the store has only the first."""
    if not page.held:
        return
    path = page.audit.findings_path
    if path is None:
        if page.cut:
            common.note(told.NO_PARQUET)
        return
    common.note(told.IN_PARQUET)
    st.code(told.query(path), language=None, wrap_lines=True)


# what was read


def _facts(audit: of.Audit, now: float) -> None:
    common.heading("How it was made")
    pairs = [
        part
        for name, text in told.facts(audit, common.zone(), now)
        for part in (node("dt", name), node("dd", text))
    ]
    live_dom(node("dl", *pairs, class_="pc-facts"), key="audit-facts")


def _parts(page: of.AuditPage) -> None:
    if not page.audit.parts:
        return
    common.heading("What was read, by partition")
    columns = (
        Column("Partition"),
        Column("From offset", number=True),
        Column("To before", number=True),
        Column("Began then at", number=True, more="The low watermark: what is below was gone by then."),
        Column("Readable to", number=True, more="The last stable offset: an open transaction hides what is above."),
        *(Column(told.LABELS[kind], number=True) for kind in of.FAULTS),
    )  # fmt: skip
    rows = [_part(page, part) for part in page.audit.parts[:_PARTS]]
    live_table(columns, rows, key="audit-parts", alt="What was read, by partition")
    if len(page.audit.parts) > _PARTS:
        common.note(f"The first {_PARTS} of {len(page.audit.parts):,} partitions.")


def _part(page: of.AuditPage, part: of.AuditedPart) -> TableRow:
    found = page.faults.get(part.partition, {})
    offsets = (part.start, part.end, part.low, part.stable)
    return TableRow(
        f"{part.partition}",
        (
            f"Partition {part.partition}",
            *(wording.count(offset) for offset in offsets),
            *(
                pipeline.fault(wording.count(found[kind]) if kind in found else "none", kind, kind in found)
                for kind in of.FAULTS
            ),
        ),
    )


def _others(page: of.AuditPage, now: float) -> None:
    if not page.others:
        return
    common.heading("Other audits of this topic")
    columns = (Column("When"), Column("What was found", wide=True), Column("Which part"))
    rows = []
    for audit in page.others:
        when = wording.stamp(audit.started_at, common.zone(), now)
        tone, text = told.verdict(audit, now)
        rows.append(
            TableRow(
                audit.audit_id,
                (
                    TablePart(when.text, href=pipeline.address(audit.audit_id), more=when.more),
                    TablePart(wording.short(text, 300), tone, more=text),
                    told.audited_range(audit, common.zone(), now),
                ),
            )
        )
    live_table(columns, rows, key="audit-others", alt="Other audits of this topic, the latest first")
