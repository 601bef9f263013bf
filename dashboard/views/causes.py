"""The panel that says why sending is slow or fails: ranked sentences, each with its numbers and what to change."""

from __future__ import annotations

import html
from collections.abc import Sequence

import streamlit as st

from producer_core.dashboard import queries, wording
from producer_core.dashboard.views import common
from producer_core.diagnostics.causes import CauseFinding

_SHOWN = 6


def show(shown: queries.LatencyPage) -> None:
    common.heading("Why is it slow or failing?")
    if not shown.findings:
        common.say("quiet", wording.no_client_stats(shown.window))
        return
    st.html(_list(shown.findings[:_SHOWN], shown.now))
    if len(shown.findings) > _SHOWN:
        common.note(f"and {wording.plural(len(shown.findings) - _SHOWN, 'finding')} more that weigh less")


def _list(findings: Sequence[CauseFinding], now: float) -> str:
    return f"<div class='pc-why' role='list'>{''.join(_item(one, now) for one in findings)}</div>"


def _item(one: CauseFinding, now: float) -> str:
    """Nothing of it is markup: a topic's or a broker's name may be anything."""
    when = wording.when(one.since, one.until, now, lasted=one.lasted, ongoing=one.ongoing, zone=common.zone())
    tone = one.tone if one.ongoing or one.tone == "good" else "quiet"
    lines = [
        f"<strong>{'' if one.ongoing else 'Earlier: '}{html.escape(one.title)}</strong>",
        f"<span>{html.escape(f'{wording.evidence(one.evidence, partly=one.partly)} {when}'.strip())}</span>",
    ]
    if one.suggestion:
        setting = f" <code>{html.escape(one.setting)}</code>" if one.setting else ""
        lines.append(f"<span><b>What to do:</b> {html.escape(one.suggestion)}{setting}</span>")
    return f"<div class='pc-say pc-{tone}' role='listitem'>{''.join(lines)}</div>"
