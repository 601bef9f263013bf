"""Draw the value, key and headers of a dead letter, masked unless the user shows them unmasked."""

from __future__ import annotations

import html
from pathlib import Path

import streamlit as st

from producer_core.dashboard import actions
from producer_core.dashboard.actions import exports
from producer_core.dashboard.components.copy_button import copy_button
from producer_core.dashboard.server.stores import open_store
from producer_core.dashboard.views import common, dead_letter_reads
from producer_core.dashboard.wording import dead_letters as dead_letter_wording
from producer_core.errors import StoreError

_REVEALED = "dead_letter_revealed"
_FORM = "dead_letter_form"
_FORMATTED, _RAW, _HEX = "Formatted", "Raw", "Hex"


def revealed(message_id: str) -> bool:
    """Return whether the user shows this dead letter unmasked."""
    return bool(st.session_state.get(_REVEALED) == message_id)


def copy(record: dead_letter_reads.OpenRecord, *, reveal: bool) -> None:
    """Draw the button that copies the value as it is shown."""
    copy_button(
        "Copy", _text(record, reveal=reveal), key="dead_letter_copy", tooltip="Copies the value as shown."
    )


def value(path: Path, record: dead_letter_reads.OpenRecord, *, reveal: bool) -> None:
    """Draw the value in the chosen form."""
    content = record.value
    with st.container(horizontal=True, vertical_alignment="center", horizontal_alignment="distribute"):
        common.heading("Value")
        if content.kind not in ("null", "empty"):
            st.segmented_control(
                "Form of the value", [_FORMATTED, _RAW, _HEX], default=_FORMATTED, key=_FORM, required=True,
                label_visibility="collapsed",
            )  # fmt: skip
        _reveal_button(path, record.dead_letter.message_id, reveal=reveal)
    if error := st.session_state.get("reveal_failed"):
        common.message("bad", error)
    common.note(f"{content.about}. {_note(content, reveal=reveal)}")
    if text := _text(record, reveal=reveal):
        language = "json" if content.kind == "json" and _form() == _FORMATTED else None
        st.code(text, language=language, wrap_lines=_form() != _HEX, height=_height(text))


def key_and_headers(record: dead_letter_reads.OpenRecord, *, reveal: bool) -> None:
    """Draw a key that is not text, and the headers."""
    if reveal and record.key.kind == "bytes":
        common.note("Key")
        st.code(record.key.text, language=None)
    common.heading("Headers")
    _headers(record.headers)


def _form() -> str:
    return str(st.session_state.get(_FORM) or _FORMATTED)


def _text(record: dead_letter_reads.OpenRecord, *, reveal: bool) -> str:
    """Return the value in the chosen form; the stored bytes cannot be masked, so they are shown unmasked only."""
    data = record.dead_letter.value
    if _form() == _FORMATTED:
        return record.value.text
    if not data or not reveal:
        return ""
    return dead_letter_wording.raw_text(data) if _form() == _RAW else dead_letter_wording.hexadecimal(data)


def _note(content: dead_letter_wording.RecordContent, *, reveal: bool) -> str:
    if content.kind in ("null", "empty"):
        return ""
    if reveal:
        return "Unmasked."
    if _form() != _FORMATTED:
        return "The stored bytes cannot be masked. “Show unmasked” displays them."
    if content.kind == "hidden":
        return ""
    return (
        "“Show unmasked” displays it in hexadecimal."
        if content.kind == "bytes"
        else "Sensitive data is masked."
    )


def _height(text: str) -> int | str:
    return 360 if text.count("\n") > 15 or len(text) > 1_200 else "content"


def _reveal_button(path: Path, message_id: str, *, reveal: bool) -> None:
    allowed, reason = actions.may_act(path)
    if reveal:
        st.button("Mask again", key="mask", type="tertiary", on_click=_mask)
        return
    st.button(
        "Show unmasked", key="reveal", type="tertiary", icon=":material/visibility:", disabled=not allowed,
        help=reason or "The audit log records the user and the time.", on_click=_reveal, args=(path, message_id),
    )  # fmt: skip


def _reveal(path: Path, message_id: str) -> None:
    """Audit the access first; if that fails, the content stays masked."""
    try:
        done = exports.reveal(open_store(path), message_id)
    except StoreError as error:
        done = actions.ActionResult(False, str(error))
    dead_letter_reads.timeline.clear()
    st.session_state.pop("reveal_failed", None)
    if done.ok:
        st.session_state[_REVEALED] = message_id
    else:
        st.session_state["reveal_failed"] = done.text


def _mask() -> None:
    st.session_state.pop(_REVEALED, None)


def _headers(headers: tuple[dead_letter_wording.RecordHeader, ...]) -> None:
    if not headers:
        common.note("None.")
        return
    rows = [
        f"<tr><th scope='row'>{html.escape(one.name)}</th>"
        f"<td>{html.escape(one.text) if one.kind == 'text' else f'<i>{one.kind}</i>'}</td></tr>"
        for one in headers
    ]
    st.html(f'<table class="pc-headers"><tbody>{"".join(rows)}</tbody></table>')
