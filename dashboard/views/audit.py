"""Draw the page of one audit: its verdict, its findings, the offsets it read, and earlier audits of the topic."""

from __future__ import annotations

import time
from pathlib import Path

import streamlit as st

from producer_core._internal.masking import mask_text
from producer_core.dashboard import wording
from producer_core.dashboard.components.live_dom import live_dom
from producer_core.dashboard.components.live_table import Cell, Column, Line, TablePart, TableRow, live_table
from producer_core.dashboard.html import link, node
from producer_core.dashboard.queries import audits as audit_queries
from producer_core.dashboard.server.stores import open_store
from producer_core.dashboard.views import adaptive_cache, common, header, pipeline, replay_tables
from producer_core.dashboard.wording import audits as audit_wording

_SHOWN_PARTITIONS = 200


def show(path: Path, audit_id: str, every: float | None) -> None:
    """Draw an audit, and redraw it every `every` seconds while the audit runs."""
    page = _read(path, audit_id)
    running = page is not None and page.audit.state == "running"
    st.fragment(_draw, run_every=every if running else None)(path, audit_id)


def _read(path: Path, audit_id: str) -> audit_queries.AuditPage | None:
    request = ("audit", audit_id)
    read = adaptive_cache.read(
        path, "audit-page", request, lambda: (audit_queries.one(open_store(path), audit_id, time.time()),)
    )
    return read[0] if read else None


def _draw(path: Path, audit_id: str) -> None:
    back = link("Fleet and all audits", header.link("fleet", audit=None))
    live_dom(node("p", back, class_="pc-note"), key="audit-back")
    page = _read(path, audit_id)
    if page is None:
        common.message("quiet", audit_wording.UNKNOWN.format(audit_id[:40]))
        return
    audit, now = page.audit, time.time()
    common.heading(f"Audit of {audit.topic}")
    common.message(*audit_wording.verdict(audit, now))
    if reason := audit_wording.why_unauditable(audit):
        common.message("warning", f"Unauditable. {reason}")
    for line in audit.notes:
        common.note(mask_text(line))
    if audit.state == "done":
        kind = audit_wording.kind_of(st.query_params.get("kind"), page.kinds)
        left, right = st.columns([3, 2], gap="medium")
        with left:
            _counts(page, kind)
        with right:
            _facts(audit, now)
        if kind is not None:
            _findings(path, page, kind)
        _all_findings(page)
        _partitions(page)
    else:
        _facts(audit, now)
    _other_audits(page, now)
    common.heading("Run it again")
    sources = audit_queries.sources(open_store(path), audit.topic, audit.cluster_id)
    st.code(audit_wording.command(str(path), audit.topic, sources), language=None, wrap_lines=True)


# findings


def _counts(page: audit_queries.AuditPage, selected: str | None) -> None:
    common.heading("Result")
    columns = (Column("Kind"), Column("Messages", number=True), Column("Meaning", wide=True))
    rows = [
        TableRow(kind, (_kind(page, kind), number, meaning), selected=kind == selected)
        for kind, number, meaning in audit_wording.counts(page.audit)
    ]
    live_table(columns, rows, key="audit-counts", alt="Result by kind of finding")


def _kind(page: audit_queries.AuditPage, kind: str) -> Cell:
    href = pipeline.address(page.audit.audit_id, kind=kind) if page.held.get(kind) else ""
    if not page.audit.numbers.get(kind):
        return TablePart(audit_wording.LABELS[kind], href=href)
    part = pipeline.fault(audit_wording.LABELS[kind], kind, True)
    return TablePart(part.text, part.style, href)


_COLUMNS = (
    Column("Message id"),
    Column("Partition", number=True),
    Column("Offset", number=True),
    Column("Finding", wide=True),
    Column("In this store"),
)


def _findings(path: Path, page: audit_queries.AuditPage, kind: str) -> None:
    audit_id = page.audit.audit_id
    limit = audit_queries.MANY if st.query_params.get("findings") == "more" else audit_queries.SHOWN
    read = adaptive_cache.read(
        path,
        "audit-findings",
        (audit_id, kind, limit),
        lambda: audit_queries.findings(open_store(path), audit_id, kind, limit),
    )
    if read is None:
        return
    common.heading(f"{audit_wording.LABELS[kind]}, by message id")
    rows = [_finding(number, one) for number, one in enumerate(read)]
    live_table(_COLUMNS, rows, key="audit-findings", alt=f"Findings: {audit_wording.LABELS[kind]}")
    if note := audit_wording.listed(len(read), page.held[kind], page.audit.numbers.get(kind)):
        common.note(note)
    if limit < audit_queries.MANY and len(read) < page.held[kind]:
        more = link("Show more", pipeline.address(audit_id, kind=kind, findings="more"))
        live_dom(node("p", more, class_="pc-note"), key="audit-more")


def _finding(number: int, one: audit_queries.AuditFinding) -> TableRow:
    return TableRow(
        f"{number} {one.message_id}",
        (
            TablePart(wording.short(one.message_id, 64), "mono", tooltip=one.message_id),
            wording.count(one.partition),
            wording.count(one.offset),
            wording.clipped(one.text, 200),
            _store_links(one),
        ),
    )


def _store_links(one: audit_queries.AuditFinding) -> Cell:
    """Return links to the dead letter of the message and to the replay that sent it."""
    lines: list[Line] = []
    if one.dead_letter is not None:
        text = audit_wording.DEAD_LETTER_STATES.get(one.dead_letter, one.dead_letter)
        lines.append(TablePart(text, href=replay_tables.dead_letter_address(one.message_id)))
    if one.operation_id is not None:
        lines.append(TablePart("replay", href=replay_tables.address(one.operation_id)))
    return lines or TablePart("no dead letter", "small")


def _all_findings(page: audit_queries.AuditPage) -> None:
    """Show where all findings are, because the store keeps only the first ones."""
    if not page.held:
        return
    path = page.audit.findings_path
    if path is None:
        if page.cut:
            common.note(audit_wording.NO_PARQUET)
        return
    common.note(audit_wording.IN_PARQUET)
    st.code(audit_wording.query(path), language=None, wrap_lines=True)


# details of the audit


def _facts(audit: audit_queries.Audit, now: float) -> None:
    common.heading("Details")
    pairs = [
        part
        for name, text in audit_wording.facts(audit, common.zone(), now)
        for part in (node("dt", name), node("dd", text))
    ]
    live_dom(node("dl", *pairs, class_="pc-facts"), key="audit-facts")


def _partitions(page: audit_queries.AuditPage) -> None:
    if not page.audit.parts:
        return
    common.heading("Offsets read, by partition")
    columns = (
        Column("Partition"),
        Column("First offset", number=True),
        Column("End offset", number=True, tooltip="The first offset that the audit did not read."),
        Column("Low watermark", number=True, tooltip="Records below it were already deleted."),
        Column("Last stable offset", number=True, tooltip="An open transaction hides the records from this offset on."),
        *(Column(audit_wording.LABELS[kind], number=True) for kind in audit_queries.FAULTS),
    )  # fmt: skip
    rows = [_partition(page, part) for part in page.audit.parts[:_SHOWN_PARTITIONS]]
    live_table(columns, rows, key="audit-parts", alt="Offsets read, by partition")
    if len(page.audit.parts) > _SHOWN_PARTITIONS:
        common.note(f"Showing the first {_SHOWN_PARTITIONS} of {len(page.audit.parts):,} partitions.")


def _partition(page: audit_queries.AuditPage, part: audit_queries.AuditedPart) -> TableRow:
    found = page.faults.get(part.partition, {})
    offsets = (part.start, part.end, part.low, part.stable)
    return TableRow(
        f"{part.partition}",
        (
            f"Partition {part.partition}",
            *(wording.count(offset) for offset in offsets),
            *(
                pipeline.fault(wording.count(found[kind]) if kind in found else "none", kind, kind in found)
                for kind in audit_queries.FAULTS
            ),
        ),
    )


def _other_audits(page: audit_queries.AuditPage, now: float) -> None:
    if not page.others:
        return
    common.heading("Other audits of this topic")
    columns = (Column("Started"), Column("Result", wide=True), Column("Range"))
    rows = []
    for audit in page.others:
        when = wording.stamp(audit.started_at, common.zone(), now)
        tone, text = audit_wording.verdict(audit, now)
        rows.append(
            TableRow(
                audit.audit_id,
                (
                    TablePart(when.text, href=pipeline.address(audit.audit_id), tooltip=when.more),
                    TablePart(wording.clipped(text, 300), tone, tooltip=text),
                    audit_wording.audited_range(audit, common.zone(), now),
                ),
            )
        )
    live_table(columns, rows, key="audit-others", alt="Other audits of this topic, latest first")
