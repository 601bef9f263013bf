"""The alerts that fire now: what, since when, what to do, and who looks after it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import streamlit as st

from producer_core.dashboard import actions, queries, wording
from producer_core.dashboard.components.live_dom import live_dom
from producer_core.dashboard.html import Node, link, node
from producer_core.dashboard.views import common, header, reads
from producer_core.dashboard.wording import alerts
from producer_core.store import Store

_SHOWN = 3


def show(store: Store, shown: queries.OverviewPage, now: float) -> None:
    """The worst ones, each a link to everything about it; the others are one click away."""
    for alert in shown.alerts[:_SHOWN]:
        with st.container(
            key=f"pc-alert-{alert['alert_id']}", horizontal=True, vertical_alignment="center", gap="small"
        ):
            live_dom(_line(alert, now), key=f"alert-{alert['alert_id']}")
            _acknowledge(store, alert["alert_ids"], alert["acknowledged_by"])
    if (left := len(shown.alerts) - _SHOWN) > 0:
        address = header.link("alerts", range=None, topic=None, producer=None)
        more = link(f"and {wording.plural(left, 'more alert')}", address)
        live_dom(node("p", more, class_="pc-note"), key="alerts")


def _line(alert: Mapping[str, Any], now: float) -> Node:
    over = alerts.recovery_note(alert, now)
    tone = "quiet" if over else wording.TONES[alert["severity"]]
    title, colon, rest = wording.local(wording.alert(alert, now), common.zone(), now).partition(":")
    address = header.link("alerts", alert=alert["alert_id"])
    # a phone has no room for the advice; it stands on the alert's own page as well
    advice = "" if over else str(alert["advice"] or "")
    text, more = rest.removesuffix(advice), node("span", advice, class_="pc-opt")
    return node("p", link(f"{title}{colon}", address), text, more, class_=f"pc-say pc-alert pc-{tone}")


def _acknowledge(store: Store, alert_ids: Sequence[str], by: str | None) -> None:
    if by is not None:
        common.note(f"{by} looks after it")
    else:  # a callback: the click counts also when a refresh begins at the same moment
        may, why_not = actions.may_act()
        st.button(
            "Acknowledge", key=f"acknowledge-{alert_ids[0]}", on_click=_act, args=(store, alert_ids),
            disabled=not may, help=why_not or None,
        )  # fmt: skip


def _act(store: Store, alert_ids: Sequence[str]) -> None:
    for alert_id in alert_ids:
        actions.acknowledge(store, alert_id)
    reads.overview.clear()
