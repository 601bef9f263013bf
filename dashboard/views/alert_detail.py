"""Draw the page of one alert: its metric, its timeline, its notifications, its rule, and links to related data."""

from __future__ import annotations

import html
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import streamlit as st

from producer_core._internal.masking import mask_text
from producer_core.alerts import Alert
from producer_core.alerts.alert_groups import AlertGroup
from producer_core.dashboard import wording
from producer_core.dashboard.charts.alert_metric import alert_metric, marks
from producer_core.dashboard.components.live_chart import live_plotly
from producer_core.dashboard.queries import alerts as alert_queries
from producer_core.dashboard.views import (
    alert_cards,
    alert_reads,
    alert_tables,
    common,
    header,
    incident_export,
)
from producer_core.dashboard.wording import alerts as alert_wording
from producer_core.dlq import DeadLetterFilter
from producer_core.errors import ConfigError


def show(path: Path, alert_id: str) -> None:
    with st.container(horizontal=True, vertical_alignment="center"):
        common.heading("Alert")
        st.button("All alerts", key="alert_close", icon=":material/arrow_back:", on_click=_close)
    detail = alert_reads.detail(path, alert_id)
    if detail is None:
        common.message(
            "quiet",
            "This store has no alert with this id. Resolved alerts expire with the hourly statistics.",
        )
        return
    item = detail.alert
    incident_export.show(path, detail.since, min(detail.until, detail.now))
    group = AlertGroup(item, (item.alert_id,))
    alert_cards.draw(path, group, detail.rule, detail.silence, detail.now, detail.names, linked=False)
    with common.panel(path):
        _metric(path, detail)
    left, right = st.columns(2, gap="medium")
    with left:
        _timeline(detail)
        _rule(detail)
    with right, common.panel(path):
        _related(path, detail)
    alert_tables.episodes(detail)


def _close() -> None:
    st.query_params.pop("alert", None)


def _metric(path: Path, detail: alert_queries.AlertDetail) -> None:
    """Draw the metric that the rule evaluates, with its threshold, or the last value where there is no history."""
    item, metric = detail.alert, alert_reads.metric(path, detail.alert.alert_id)
    if metric is None:
        if text := alert_wording.last_value(item, detail.rule):
            common.note(text)
        return
    title = alert_wording.metric_title(metric.metric, detail.names.get(item.subject, item.subject))
    common.heading(title)
    live_plotly(
        alert_metric(metric), key="alert-metric", alt=f"{title}, with the threshold", marks=marks(metric)
    )


def _timeline(detail: alert_queries.AlertDetail) -> None:
    """Draw the events and notifications of the alert in order of time."""
    item = detail.alert
    events = [*_events(item), *map(_notification, detail.notifications)]
    common.heading("Timeline")
    lines = [
        f"<li>{common.time_element(at)}<span>{html.escape(mask_text(text))}</span></li>"
        for at, text in sorted(filter(None, events), key=lambda event: event[0])
    ]
    st.html(f'<ul class="pc-events">{"".join(lines)}</ul>')
    if not detail.notifications and item.state != "pending":
        reason = wording.local(mask_text(item.muted_by), common.zone(), detail.now) if item.muted_by else ""
        common.note(f"No notification was sent{f': {reason}' if reason else ''}.")


def _events(item: Alert) -> Iterator[tuple[float, str]]:
    fired_at_once = item.fired_at is not None and item.fired_at <= item.started_at
    yield (
        item.started_at,
        "The condition was met, and the alert fired." if fired_at_once else "The condition was met.",
    )
    if item.fired_at is not None and not fired_at_once:
        yield item.fired_at, "The alert fired."
    if item.acknowledged_at is not None:
        yield item.acknowledged_at, f"{item.acknowledged_by} acknowledged the alert."
    if item.state == "firing" and item.since is not None:
        yield item.since, "The condition was no longer met."
    if item.resolved_at is not None:
        yield item.resolved_at, "The alert was resolved."


def _notification(row: Mapping[str, Any]) -> tuple[float, str] | None:
    status, route = alert_wording.NOTIFICATION_KINDS.get(row["status"], row["status"]), row["route"]
    if row["settled_at"] is None:
        attempts = (
            f"; {wording.plural(row['attempts'], 'attempt')}: {row['answer']}" if row["attempts"] else ""
        )
        return row["queued_at"], f"Notification via {route} is pending ({status}{attempts})."
    if row["outcome"] == "told":
        return row["settled_at"], f"Notification delivered via {route} ({status}, {row['answer']})."
    if row["outcome"] == "given up":
        return row["settled_at"], f"Notification via {route} was dropped ({status}): {row['answer']}."
    return None


def _rule(detail: alert_queries.AlertDetail) -> None:
    item, rule = detail.alert, detail.rule
    common.heading("Rule")
    if rule is None:
        common.note(f"The rules file no longer contains {item.rule}.")
        return
    common.fact(
        f"{item.rule} ({rule.severity})", f"Condition: {alert_wording.rule_condition(item.rule, rule)}."
    )
    if rule.runbook:
        common.fact("Runbook", rule.runbook)
    if item.state == "resolved":
        common.fact("What to do", item.advice)


def _related(path: Path, detail: alert_queries.AlertDetail) -> None:
    """Draw links to the pages that show the time, topic and producer of the alert."""
    item, span = detail.alert, {"since": detail.since, "until": detail.until}
    common.heading("Related data")
    links = [
        (title, header.link(page, **span, topic=detail.topic, producer=detail.producer))
        for title, page in (
            ("Overview at that time", "overview"),
            ("Latency", "latency"),
            ("Errors", "errors"),
        )
    ]
    dead_letters = DeadLetterFilter(topic=detail.topic, since=detail.since, until=detail.until)
    links.append(
        ("Dead letters from that time", header.link("dead-letters", range=None, **_query(dead_letters)))
    )
    if detail.topic is not None and item.rule in alert_wording.LOSS_RULES:
        links.append(
            ("Audits of the topic", header.link("fleet", topic=detail.topic, producer=None, to="audits"))
        )
    st.html(f'<div class="pc-related">{"".join(common.link_element(*one) for one in links)}</div>')
    if detail.topic is not None:
        _causes(path, detail.topic, detail)
    _replays(path, detail)


def _query(where: DeadLetterFilter) -> dict[str, str | float | None]:
    return {"topic": None, "producer": None, "since": None, "until": None, **where.to_query()}


def _causes(path: Path, topic: str, detail: alert_queries.AlertDetail) -> None:
    with common.panel(path):
        groups = alert_reads.causes(path, topic, int(detail.since), int(detail.until) // 60 * 60 + 60)
        if not groups:
            return
        common.heading("Dead letters by cause")
        for group in groups:
            page = header.link(
                "dead-letters", range=None, **_query(DeadLetterFilter(group=group.fingerprint))
            )
            errors = header.link("errors", group=group.fingerprint, since=detail.since, until=detail.until)
            st.html(
                f'<p class="pc-fact"><span>{group.count:,} × {html.escape(group.code)}</span> '
                f"{html.escape(mask_text(group.meaning or group.sample_text))}<br>"
                f"{common.link_element('Error', errors)} · {common.link_element('Dead letters', page)}</p>"
            )


def _replays(path: Path, detail: alert_queries.AlertDetail) -> None:
    with common.panel(path):
        try:
            replays = alert_reads.replays(path, detail.topic, detail.alert.started_at)
        except ConfigError:
            return
        if not replays:
            return
        common.heading("Replays since then")
        for one in replays:
            address = header.link("replays", operation=one.operation_id)
            name = f"{one.state}, {wording.plural(one.total, 'record')}, by {one.who}"
            st.html(
                f'<p class="pc-fact">{common.time_element(one.created_at)} {common.link_element(name, address)}<br>'
                f"{html.escape(mask_text(one.message or ''))}</p>"
            )
