"""One alert from all sides: its life, whom it was told to, and where to look: the time, the error, the records."""

from __future__ import annotations

import html
from pathlib import Path

import streamlit as st

from producer_core._internal.masking import mask_text
from producer_core.dashboard import wording
from producer_core.dashboard.queries import alerts as of
from producer_core.dashboard.views import alert_cards, alert_reads, common, header
from producer_core.dashboard.wording import alerts as said
from producer_core.dlq import DeadLetterFilter
from producer_core.errors import ConfigError


def show(path: Path, alert_id: str) -> None:
    with st.container(horizontal=True, vertical_alignment="center"):
        common.heading("One alert")
        st.button("All alerts", key="alert_close", icon=":material/arrow_back:", on_click=_close)
    found = alert_reads.detail(path, alert_id)
    if found is None:
        common.say(
            "quiet", "There is no alert of this id here. What is over is kept as long as the statistics are."
        )
        return
    item = found.alert
    alert_cards.draw(path, item, found.rule, found.silence, found.now, found.names, opens=False)
    left, right = st.columns(2, gap="medium")
    with left:
        _life(found)
        _rule(found)
    with right, common.panel(path):
        _ways(path, found)


def _close() -> None:
    st.query_params.pop("alert", None)


def _life(found: of.AlertDetail) -> None:
    """What happened to it, in the order of time."""
    item = found.alert
    at_once = item.fired_at is not None and item.fired_at <= item.started_at
    events = [
        (item.started_at, "It began, and fired at once." if at_once else "Its condition began to hold.")
    ]
    if item.fired_at is not None and not at_once:
        events.append((item.fired_at, "It fired."))
    if item.acknowledged_at is not None:
        events.append((item.acknowledged_at, f"{item.acknowledged_by} acknowledged it."))
    if item.state == "firing" and item.since is not None:
        events.append((item.since, "Its condition was over."))
    if item.resolved_at is not None:
        events.append((item.resolved_at, "It was resolved."))
    for row in found.notifications:
        what, route = said.NOTIFICATION_KINDS.get(row["status"], row["status"]), row["route"]
        if row["settled_at"] is None:
            tried = (
                f"; {wording.plural(row['attempts'], 'attempt')}: {row['answer']}" if row["attempts"] else ""
            )
            events.append((row["queued_at"], f"Waits to be told over {route} {what}{tried}."))
        elif row["outcome"] == "told":
            events.append((row["settled_at"], f"Told over {route} {what} ({row['answer']})."))
        elif row["outcome"] == "given up":
            events.append((row["settled_at"], f"Given up telling over {route} {what}: {row['answer']}."))
    common.heading("What happened")
    lines = [
        f"<li>{common.moment(at)}<span>{html.escape(mask_text(text))}</span></li>"
        for at, text in sorted(events, key=lambda event: event[0])
    ]
    st.html(f'<ul class="pc-story">{"".join(lines)}</ul>')
    if not found.notifications and item.state != "pending":
        common.note(
            f"Nobody was told{f': {wording.local(mask_text(item.muted_by), common.zone(), found.now)}' if item.muted_by else ''}."
        )


def _rule(found: of.AlertDetail) -> None:
    item, rule = found.alert, found.rule
    common.heading("The rule")
    if rule is None:
        common.note(f"{item.rule} is not in the file of rules any more.")
        return
    common.fact(f"{item.rule} ({rule.severity})", f"Fires when: {said.rule_condition(rule)}.")
    if rule.runbook:
        common.fact("Runbook", rule.runbook)
    if item.state == "resolved":
        common.fact("What to do", item.advice)


def _ways(path: Path, found: of.AlertDetail) -> None:
    """Where the cause may be seen."""
    span = {"since": found.since, "until": found.until}
    common.heading("Where to look")
    links = [
        (title, header.link(page, **span, topic=found.topic, producer=found.producer))
        for title, page in (
            ("Overview at that time", "overview"),
            ("Latency", "latency"),
            ("Errors", "errors"),
        )
    ]
    dead_letters = DeadLetterFilter(topic=found.topic, since=found.since, until=found.until)
    links.append(
        ("Dead letters of that time", header.link("dead-letters", range=None, **_query(dead_letters)))
    )
    st.html(f'<div class="pc-ways">{"".join(common.anchor(*one) for one in links)}</div>')
    if found.topic is not None:
        _causes(path, found.topic, found)
    _replays(path, found)


def _query(where: DeadLetterFilter) -> dict[str, str | float | None]:
    return {"topic": None, "producer": None, "since": None, "until": None, **where.to_query()}


def _causes(path: Path, topic: str, found: of.AlertDetail) -> None:
    with common.panel(path):
        groups = alert_reads.causes(path, topic, int(found.since), int(found.until) // 60 * 60 + 60)
        if not groups:
            return
        common.heading("Dead letters of that time by cause")
        for group in groups:
            page = header.link(
                "dead-letters", range=None, **_query(DeadLetterFilter(group=group.fingerprint))
            )
            errors = header.link("errors", group=group.fingerprint, since=found.since, until=found.until)
            st.html(
                f'<p class="pc-fact"><span>{group.count:,} × {html.escape(group.code)}</span> '
                f"{html.escape(mask_text(group.meaning or group.sample_text))}<br>"
                f"{common.anchor('The error', errors)} · {common.anchor('The records', page)}</p>"
            )


def _replays(path: Path, found: of.AlertDetail) -> None:
    with common.panel(path):
        try:
            replays = alert_reads.replays(path, found.topic, found.alert.started_at)
        except ConfigError:
            return
        if not replays:
            return
        common.heading("Replays since")
        for one in replays:
            address = header.link("replays", operation=one.operation_id)
            name = f"{one.state}, {one.total:,} records, by {one.who}"
            st.html(
                f'<p class="pc-fact">{common.moment(one.created_at)} {common.anchor(name, address)}<br>'
                f"{html.escape(mask_text(one.message or ''))}</p>"
            )
