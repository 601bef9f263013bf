"""Show why sending is slow or fails: ranked findings with their numbers and the setting to change."""

from __future__ import annotations

import html
from collections.abc import Sequence

import streamlit as st

from producer_core.dashboard import queries, wording
from producer_core.dashboard.views import common
from producer_core.diagnostics.causes import CauseFinding

_SHOWN = 6


def show(page: queries.LatencyPage) -> None:
    common.heading("Why is it slow or failing?")
    if not page.findings:
        common.message("quiet", wording.no_client_stats(page.window))
        return
    st.html(_list(page.findings[:_SHOWN], page.now))
    if len(page.findings) > _SHOWN:
        common.note(f"{wording.plural(len(page.findings) - _SHOWN, 'more finding')} with less impact.")


def _list(findings: Sequence[CauseFinding], now: float) -> str:
    return f"<div class='pc-causes' role='list'>{''.join(_item(one, now) for one in findings)}</div>"


def _item(one: CauseFinding, now: float) -> str:
    """Return a finding as HTML. All texts are escaped, because names of topics and brokers can contain markup."""
    when = wording.when(one.since, one.until, now, lasted=one.lasted, ongoing=one.ongoing, zone=common.zone())
    tone = one.tone if one.ongoing or one.tone == "good" else "quiet"
    lines = [
        f"<strong>{'' if one.ongoing else 'Earlier: '}{html.escape(one.title)}</strong>",
        f"<span>{html.escape(f'{wording.evidence(one.evidence, partly=one.partly)} {when}'.strip())}</span>",
    ]
    if one.suggestion:
        setting = f" <code>{html.escape(one.setting)}</code>" if one.setting else ""
        lines.append(f"<span><b>What to do:</b> {html.escape(one.suggestion)}{setting}</span>")
    return f"<div class='pc-message pc-{tone}' role='listitem'>{''.join(lines)}</div>"
