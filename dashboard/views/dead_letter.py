"""One dead letter from inside: what it says, what happened to it, and whether a resend is safe."""

from __future__ import annotations

import html
from collections.abc import Mapping
from pathlib import Path

import streamlit as st

from producer_core._internal.masking import mask_text, rules
from producer_core.dashboard import actions, wording
from producer_core.dashboard.actions import exports
from producer_core.dashboard.queries import dead_letter_list as of_dead_letters
from producer_core.dashboard.server.stores import opened
from producer_core.dashboard.views import common, dead_letter_reads, dead_letter_url, header
from producer_core.dashboard.wording import dead_letters as said
from producer_core.dlq.timeline import TimelineEvent
from producer_core.errors import StoreError
from producer_core.events import SAFE_VERDICTS, DeadLetter
from producer_core.kafka.classify import failure_of

_REVEALED = "letter_revealed"
_TONES = {
    "attempt failed": "bad",
    "malformed": "bad",
    "dead": "bad",
    "failed again": "bad",
    "quarantined": "bad",
    "acknowledged": "good",
    "landed": "good",
    "restored": "good",
}

_WHOSE_WORDS = {False: "The broker's words", True: "What is wrong"}


def show(path: Path, message_id: str) -> None:
    """Values are masked, and nothing of a message is ever drawn as Markdown or HTML."""
    stamp = of_dead_letters.change_stamp(opened(path), message_id)
    reveal = st.session_state.get(_REVEALED) == message_id
    found = stamp and dead_letter_reads.inside(path, message_id, stamp, rules(), reveal=reveal)
    with st.container(border=True, key="pc-inside"):
        _head(found.dead_letter if found else None, message_id)
        if not stamp or not found:
            common.say(
                "warning",
                "This dead letter is not in the store any more. It may have been removed while you looked, or the address is of another store.",
            )
            return
        _state(found.dead_letter)
        _story(found.dead_letter, found.key, found.producer)
        _content(path, found, reveal=reveal)
        common.heading("What happened")
        _life(
            dead_letter_reads.life(path, message_id, stamp),
            {found.dead_letter.producer_id: found.producer} if found.producer else {},
        )


def _head(dead_letter: DeadLetter | None, message_id: str) -> None:
    with st.container(horizontal=True, vertical_alignment="center", horizontal_alignment="distribute"):
        common.heading("Inside the dead letter")
        st.button(
            "Close", key="letter_close", type="tertiary", icon=":material/close:",
            on_click=dead_letter_url.open, args=(None,),
        )  # fmt: skip
    if dead_letter is None:
        common.note(said.visible_line(message_id))


def _state(dead_letter: DeadLetter) -> None:
    """Said on top where it is not what one expects of a dead letter: somebody may have acted while it was open."""
    if dead_letter.state != "dead":
        common.say(
            "good" if dead_letter.state in ("replayed", "landed") else "quiet", said.STATES[dead_letter.state]
        )
    elif dead_letter.quarantined:
        common.say(
            "warning",
            f"It failed again in {wording.plural(dead_letter.replay_count, 'replay')}, so a replay of many leaves it out. "
            "Chosen by hand it is sent.",
        )


def _story(dead_letter: DeadLetter, key: said.RecordContent, producer: str) -> None:
    failure = failure_of(dead_letter.code)
    _verdict(dead_letter)
    _facts(
        (
            "Error",
            html.escape(said.visible_line(dead_letter.code)),
            f"{failure.meaning} {failure.advice}".strip(),
        ),
        (
            _WHOSE_WORDS[dead_letter.never_a_message],
            "",
            said.visible_line(masked(dead_letter.error_text), 2_000),
        ),
        ("Topic", html.escape(said.visible_line(dead_letter.topic)), _partition(dead_letter.partition)),
        (
            "Key",
            html.escape(said.visible_line(key.text, 2_000)) if key.kind in ("text", "json") else "",
            _key_about(key),
        ),
        ("Died", common.moment(dead_letter.failed_at), _accepted(dead_letter)),
        ("Producer", html.escape(said.visible_line(producer or dead_letter.producer_id)), _from(dead_letter)),
        *((("Source", "", said.visible_line(masked(dead_letter.source))),) if dead_letter.source else ()),
        *((("Producer id", "", said.visible_line(dead_letter.producer_id)),) if producer else ()),
        ("Message id", html.escape(said.visible_line(dead_letter.message_id)), ""),
    )
    st.button(
        "Only dead letters with this cause", key="letter_cause", type="tertiary", icon=":material/filter_alt:",
        on_click=dead_letter_url.group, args=(dead_letter.fingerprint,),
    )  # fmt: skip


def _verdict(dead_letter: DeadLetter) -> None:
    """Whether a resend is safe, and how we know."""
    meant = wording.VERDICTS.get(dead_letter.verdict, "nobody knows what that means")
    reason = wording.sentence_case(masked(dead_letter.verdict_reason))
    text = f"{wording.sentence_case(dead_letter.verdict.replace('_', ' '))}: {meant}. {reason}"
    common.say("good" if dead_letter.verdict in SAFE_VERDICTS else "warning", said.visible_line(text, 2_000))


def _accepted(dead_letter: DeadLetter) -> str:
    return (
        "" if dead_letter.never_a_message else said.accepted(dead_letter.failed_at - dead_letter.accepted_at)
    )


def _partition(partition: int | None) -> str:
    return "" if partition is None else f"asked for partition {partition}"


def _key_about(key: said.RecordContent) -> str:
    return "" if key.kind in ("text", "json") else key.about


def _from(dead_letter: DeadLetter) -> str:
    on = f"on {dead_letter.host}" if dead_letter.host else ""
    return said.visible_line(
        ", ".join(part for part in (on, dead_letter.version and f"version {dead_letter.version}") if part)
    )


def _facts(*rows: tuple[str, str, str]) -> None:
    """A name, what is HTML already, and a text."""
    lines = [
        f"<dt>{html.escape(name)}</dt><dd>{f'<strong>{strong}</strong> ' if strong else ''}{html.escape(text)}</dd>"
        for name, strong, text in rows
        if strong or text
    ]
    st.html(f'<dl class="pc-facts">{"".join(lines)}</dl>')


def _content(path: Path, found: dead_letter_reads.OpenRecord, *, reveal: bool) -> None:
    with st.container(horizontal=True, vertical_alignment="center", horizontal_alignment="distribute"):
        common.heading("Value")
        _reveal_button(path, found.dead_letter.message_id, reveal=reveal)
    if failed := st.session_state.get("reveal_failed"):
        common.say("bad", failed)
    common.note(f"{found.value.about}. {_how(found.value, reveal=reveal)}")
    if found.value.text:
        language = "json" if found.value.kind == "json" else None
        st.code(found.value.text, language=language, wrap_lines=True, height=_height(found.value.text))
    if reveal and found.key.kind == "bytes":
        common.note("Key")
        st.code(found.key.text, language=None)
    common.heading("Headers")
    _headers(found.headers)


def _how(content: said.RecordContent, *, reveal: bool) -> str:
    if content.kind in ("null", "empty") or (content.kind == "hidden" and not reveal):
        return ""
    if reveal:
        return "Unmasked."
    return (
        "Unmasked they are shown in hexadecimal."
        if content.kind == "bytes"
        else "What looks secret is masked."
    )


def _height(text: str) -> int | str:
    return 360 if text.count("\n") > 15 or len(text) > 1_200 else "content"


def _reveal_button(path: Path, message_id: str, *, reveal: bool) -> None:
    allowed, reason = actions.may_act()
    if reveal:
        st.button("Mask again", key="letter_mask", type="tertiary", on_click=_hide)
        return
    st.button(
        "Show unmasked", key="letter_reveal", type="tertiary", icon=":material/visibility:", disabled=not allowed,
        help=reason or "The audit says who looked, and when.", on_click=_reveal, args=(path, message_id),
    )  # fmt: skip


def _reveal(path: Path, message_id: str) -> None:
    """Written into the audit first; what cannot be written down is not shown."""
    try:
        done = exports.reveal(opened(path), message_id)
    except StoreError as error:
        done = actions.ActionResult(False, str(error))
    dead_letter_reads.life.forget()
    st.session_state.pop("reveal_failed", None)
    if done.ok:
        st.session_state[_REVEALED] = message_id
    else:
        st.session_state["reveal_failed"] = done.text


def _hide() -> None:
    st.session_state.pop(_REVEALED, None)


def _headers(headers: tuple[said.RecordHeader, ...]) -> None:
    if not headers:
        common.note("None.")
        return
    rows = [
        f"<tr><th scope='row'>{html.escape(one.name)}</th>"
        f"<td>{html.escape(one.text) if one.kind == 'text' else f'<i>{one.kind}</i>'}</td></tr>"
        for one in headers
    ]
    st.html(f'<table class="pc-headers"><tbody>{"".join(rows)}</tbody></table>')


def _life(moments: tuple[TimelineEvent, ...], names: Mapping[str, str]) -> None:
    """`names` are of producers, by their ids."""
    lines = [
        f'<li class="pc-l-{_TONES.get(one.what, "quiet")}">{common.moment(one.at)}<b>{html.escape(one.what)}</b>'
        f"{f' by {html.escape(said.visible_line(names.get(one.who, one.who)))}' if one.who else ''}"
        f"<span>{html.escape(said.visible_line(masked(_told(one.text)), 2_000))}{_link(one)}</span></li>"
        for one in moments
    ]
    st.html(f'<ol class="pc-life">{"".join(lines)}</ol>')


def _link(moment: TimelineEvent) -> str:
    """To the replay that is meant: its id is the first word."""
    if moment.what != "replay planned":
        return ""
    return f" {common.anchor('Look at the replay', header.link('replays', operation=moment.text.split()[0]))}"


def _told(text: str) -> str:
    """A verdict at its beginning as words."""
    verdict, colon, rest = text.partition(":")
    return f"{verdict.replace('_', ' ')}{colon}{rest}" if verdict in wording.VERDICTS else text


def masked(text: str) -> str:
    return mask_text(said.bounded(text))
