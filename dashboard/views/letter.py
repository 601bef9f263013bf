"""One dead letter from inside: what it says, what happened to it, and whether a resend is safe."""

from __future__ import annotations

import streamlit as st

from dashboard import data, words
from dashboard.views import common
from producer_core.events import DeadLetter
from producer_core.failures import failure_of
from producer_core.masking import mask_headers, mask_text, shown, shown_key
from producer_core.store import Store

_LONGEST = 20_000


def show(store: Store, message_id: str) -> None:
    """Values are masked, and nothing of a message is ever drawn as Markdown or HTML."""
    found = data.letter(store, message_id)
    with st.container(border=True):
        common.heading("Inside the letter")
        common.note("Click its row again to close this.")
        if found is None:
            common.note("It is not here any more.")
            return
        left, right = st.columns(2)
        with left:
            _story(found)
        with right:
            _content(found)


def _story(letter: DeadLetter) -> None:
    failure = failure_of(letter.code)
    where = "" if letter.partition is None else f", partition {letter.partition}"
    common.fact("Topic", f"{letter.topic}{where}")
    common.fact(
        f"Verdict: {letter.verdict.replace('_', ' ')}",
        f"{words.sentence_case(words.VERDICTS.get(letter.verdict, ''))}. {masked(letter.verdict_reason)}",
    )
    common.fact(letter.code, f"{failure.meaning} {failure.advice}")
    if letter.source:
        common.fact("Source", masked(letter.source))
    common.fact(
        "State", f"{words.sentence_case(letter.state)}, accepted {words.moment(letter.accepted_at)} UTC"
    )
    for number, attempt in enumerate(letter.attempts, start=1):
        at = f"Attempt {number}, {words.moment(attempt.failed_at)} UTC"
        common.fact(at, f"{attempt.code}: {masked(attempt.text)}")
    common.fact("Message id", letter.message_id)


def _content(letter: DeadLetter) -> None:
    common.note("Key")
    st.code(key_of(letter.key), language=None, wrap_lines=True)
    common.note("Value, with what looks secret masked")
    st.code(text_of(letter.value), language=None, wrap_lines=True)
    common.note("Headers")
    lines = [f"{name}: {words.pretty(value, _LONGEST)}" for name, value in mask_headers(letter.headers)]
    st.code("\n".join(lines) or "none", language=None, wrap_lines=True)


def masked(text: str) -> str:
    return mask_text(text)


def key_of(key: bytes | None) -> str:
    """A key, masked; nothing apart from empty."""
    return "null" if key is None else shown_key(key) or "(empty)"


def text_of(value: bytes | None) -> str:
    """JSON indented, text as it is, other bytes only counted; masked, and nothing apart from empty."""
    if value is None:
        return "null"
    if not value:
        return "(empty)"
    return words.pretty(shown(value), _LONGEST)
