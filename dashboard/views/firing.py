"""The alerts that fire now: what, since when, what to do, and who looks after it."""

from __future__ import annotations

import streamlit as st

from dashboard import actions, data, words
from dashboard.views import common
from producer_core.store import Store


def show(store: Store, shown: data.Overview, now: float) -> None:
    for alert in shown.alerts:
        text, button = st.columns([6, 1], vertical_alignment="center")
        with text:
            common.say(words.TONES[alert["severity"]], words.alert(alert, now))
        with button:
            _acknowledge(store, alert["alert_id"], alert["acknowledged_by"])


def _acknowledge(store: Store, alert_id: str, by: str | None) -> None:
    if by is not None:
        common.note(f"{by} looks after it")
    else:  # a callback: the click counts also when a refresh begins at the same moment
        key = f"acknowledge-{alert_id}"
        st.button(
            "Acknowledge", key=key, width="stretch", on_click=actions.acknowledge, args=(store, alert_id)
        )
