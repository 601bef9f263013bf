"""The producers of the last day: who is alive, who reaches a broker, who stopped without a word."""

from __future__ import annotations

import html
from collections.abc import Sequence

import streamlit as st

from dashboard import data, words
from dashboard.views import common

_SHOWN = 12
_HEAD = ("Producer", "Host", "State", "Pending", "Queue", "Memory")


def table(shown: data.Overview, now: float) -> None:
    common.heading("Producers")
    if not shown.producers:
        common.note("None in the last day.")
        return
    rows = [
        (
            row["client_id"],
            f"{row['host']}, process {row['pid']}",
            words.producer_state(row, now),
            words.count(row["pending"]),
            f"{words.count(row['queue_messages'])} of {words.compact(row['queue_limit'])}",
            words.size(row["memory_bytes"]),
        )
        for row in shown.producers[:_SHOWN]
    ]
    st.html(_table(rows))
    if len(shown.producers) > _SHOWN:
        common.note(f"and {len(shown.producers) - _SHOWN:,} more")


def _table(rows: Sequence[tuple[str, ...]]) -> str:
    head = "".join(f"<th scope='col'>{name}</th>" for name in _HEAD)
    body = "".join(f"<tr>{''.join(f'<td>{html.escape(cell)}</td>' for cell in row)}</tr>" for row in rows)
    table = f"<table class='pc-rows'><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"
    return f"<div class='pc-wide' role='region' aria-label='Producers' tabindex='0'>{table}</div>"
