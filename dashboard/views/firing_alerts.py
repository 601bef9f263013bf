"""Show the alerts that are firing now on the overview page."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import streamlit as st

from producer_core.dashboard import actions, queries, wording
from producer_core.dashboard.actions import action_code
from producer_core.dashboard.components.live_dom import live_dom
from producer_core.dashboard.html import Node, link, node
from producer_core.dashboard.views import action_menu, common, header, reads
from producer_core.dashboard.wording import alerts as alert_wording
from producer_core.store import Store

_SHOWN = 3


def show(store: Store, page: queries.OverviewPage, now: float) -> None:
    """Show the most severe alerts, one line each with a link to its own page, and a link to the others."""
    for alert in page.alerts[:_SHOWN]:
        with st.container(
            key=f"pc-alert-{alert['alert_id']}", horizontal=True, vertical_alignment="center", gap="small"
        ):
            live_dom(_line(alert, now), key=f"alert-{alert['alert_id']}")
            _acknowledge(store, alert["alert_ids"], alert["acknowledged_by"])
    if (left := len(page.alerts) - _SHOWN) > 0:
        address = header.link("alerts", range=None, topic=None, producer=None)
        more = link(f"and {wording.plural(left, 'more alert')}", address)
        live_dom(node("p", more, class_="pc-note"), key="alerts")


def _line(alert: Mapping[str, Any], now: float) -> Node:
    over = alert_wording.recovery_note(alert, now)
    tone = "quiet" if over else wording.TONES[alert["severity"]]
    title, colon, rest = wording.local(wording.alert(alert, now), common.zone(), now).partition(":")
    address = header.link("alerts", alert=alert["alert_id"])
    # The line has no room for the advice; its tooltip and the alert's own page show it.
    advice = "" if over else str(alert["advice"] or "")
    text = node("span", rest.removesuffix(advice).rstrip())
    mark = node("span", class_=f"pc-mark pc-{tone}")
    return node("p", mark, link(f"{title}{colon}", address), text, class_="pc-alert", title=rest.strip())


def _acknowledge(store: Store, alert_ids: Sequence[str], by: str | None) -> None:
    if by is not None:
        common.note(f"Acknowledged by {by}")
    else:  # the action is a callback, so a refresh that starts at the same time does not lose the click
        allowed, reason = actions.may_act(store.path)
        st.button(
            "Acknowledge", key=f"acknowledge-{alert_ids[0]}", on_click=_acknowledge_all, args=(store, alert_ids),
            disabled=not allowed, help=reason or None,
        )  # fmt: skip
        code = action_code.acknowledge(store.path, alert_ids)
        action_menu.draw(store.path, {"Acknowledge": code}, key=f"acknowledge-code-{alert_ids[0]}")


def _acknowledge_all(store: Store, alert_ids: Sequence[str]) -> None:
    actions.acknowledge(store, *alert_ids)
    reads.overview.clear()
