"""One dead letter from inside: what it says, what happened to it, and whether a resend is safe."""

from __future__ import annotations

from datetime import UTC, datetime

import orjson
import streamlit as st

from dashboard import data, words
from producer_core.events import DeadLetter
from producer_core.failures import failure_of
from producer_core.masking import is_secret_name, mask_text, shown
from producer_core.store import Store


def show(store: Store, message_id: str) -> None:
    """Values are masked, and nothing of a message is ever drawn as Markdown or HTML."""
    found = data.letter(store, message_id)
    if found is None:
        st.info("This letter is not here any more.")
        return
    with st.container(border=True):
        st.markdown("**Inside the letter**")
        left, right = st.columns(2)
        with left:
            _story(found)
        with right:
            _content(found)


def _story(letter: DeadLetter) -> None:
    failure = failure_of(letter.code)
    st.text(
        f"Topic {letter.topic}" + (f", partition {letter.partition}" if letter.partition is not None else "")
    )
    st.text(f"Verdict: {letter.verdict} ({words.VERDICTS.get(letter.verdict, '')})\n{letter.verdict_reason}")
    st.text(f"{failure.meaning}\n{failure.advice}")
    if letter.source:
        st.text(f"From {letter.source}")
    st.caption("Attempts")
    for attempt in letter.attempts:
        at = datetime.fromtimestamp(attempt.failed_at, UTC).strftime("%Y-%m-%d %H:%M:%S UTC")
        st.text(f"{at}  {attempt.code}\n{mask_text(attempt.text)}")
    st.caption("Message id")
    st.code(letter.message_id, language=None)


def _content(letter: DeadLetter) -> None:
    st.caption("Key")
    st.code(_text(letter.key), language=None)
    st.caption("Value, masked")
    st.code(_text(letter.value), language=None, wrap_lines=True)
    st.caption("Headers")
    lines = [f"{name}: {'***' if is_secret_name(name) else _text(value)}" for name, value in letter.headers]
    st.code("\n".join(lines) or "none", language=None)


def _text(value: bytes | None) -> str:
    """JSON indented, text as it is, other bytes in hexadecimal; null apart from empty."""
    if value is None:
        return "null"
    if not value:
        return "(empty)"
    seen = shown(value)
    text = seen if isinstance(seen, str) else orjson.dumps(seen, option=orjson.OPT_INDENT_2).decode()
    return text if len(text) <= 20_000 else f"{text[:20_000]}\n… {len(text):,} characters in all"
