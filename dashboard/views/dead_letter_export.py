"""The export of a selection of dead letters: a masked file for the browser, or the command that writes everything."""

from __future__ import annotations

import time
from pathlib import Path

import streamlit as st

from producer_core.dashboard import actions, wording
from producer_core.dashboard.actions import exports
from producer_core.dashboard.server.stores import opened
from producer_core.dashboard.views import common
from producer_core.dlq import DeadLetterFilter
from producer_core.dlq.files.manifest import Format
from producer_core.errors import ProducerError


def show(path: Path, about: DeadLetterFilter, number: int) -> None:
    """A button that opens what can be taken: `number` is that of the dead letters that `about` means."""
    allowed, reason = actions.may_act()
    with st.popover(
        "Export",
        icon=":material/download:",
        key="letters_export",
        disabled=not number or not allowed,
        help=reason or None,
    ):
        common.note(
            f"{wording.plural(number, 'dead letter')}, masked as they are shown here, the oldest message first. "
            "In CSV no cell is a formula. Each export stands in the audit."
        )
        fits = number <= exports.MOST_LETTERS
        if not fits:
            common.say(
                "warning",
                f"A download has at most {exports.MOST_LETTERS:,} letters. Narrow the selection, or use the command.",
            )
        with st.container(horizontal=True, gap="small"):
            for label, form in exports.FORMATS.items():
                _button(path, about, label, form, disabled=not (fits and allowed))
        for failed in _failed().values():
            common.say("bad", failed)
        common.note("Any number of them, unmasked, so that they can be imported again:")
        st.code(exports.command(path, about), language=None, wrap_lines=True)


def _button(path: Path, about: DeadLetterFilter, label: str, form: Format, *, disabled: bool) -> None:
    store, failed, who = opened(path), _failed(), actions.user()

    def file() -> bytes:
        """Made when the button is pressed, outside the script's thread."""
        try:
            made = exports.export(store, about, form, who=who, now=time.time())
        except ProducerError as error:
            failed[form] = str(error)
            raise
        failed.pop(form, None)
        return made.content

    st.download_button(
        label, file, file_name=f"dead-letters.{form}", key=f"export_{form}", disabled=disabled, on_click="ignore"
    )  # fmt: skip


def _failed() -> dict[str, str]:
    """Why the last export of a format failed: a plain value, because a download runs outside of the session."""
    found: dict[str, str] = st.session_state.setdefault("export_failed", {})
    return found
