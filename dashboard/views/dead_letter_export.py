"""Export a selection of dead letters as a masked download, or show the command that exports everything unmasked."""

from __future__ import annotations

import time
from pathlib import Path

import streamlit as st

from producer_core.dashboard import actions, wording
from producer_core.dashboard.actions import exports
from producer_core.dashboard.server.stores import open_store
from producer_core.dashboard.views import common
from producer_core.dlq import DeadLetterFilter
from producer_core.dlq.files.manifest import Format
from producer_core.errors import ProducerError


def show(path: Path, where: DeadLetterFilter, count: int) -> None:
    """Draw the Export button for the `count` dead letters that the filter selects."""
    allowed, reason = actions.may_act(path)
    with st.popover(
        "Export",
        icon=":material/download:",
        key="dead_letters_export",
        disabled=not count or not allowed,
        help=reason or None,
    ):
        common.note(
            f"{wording.plural(count, 'dead letter')}, masked as shown here, oldest message first. "
            "CSV cells that look like formulas are escaped. The audit log records exports."
        )
        fits = count <= exports.MAX_DEAD_LETTERS
        if not fits:
            common.message(
                "warning",
                f"A download holds at most {exports.MAX_DEAD_LETTERS:,} dead letters. Narrow the selection, or use the "
                "command.",
            )
        with st.container(horizontal=True, gap="small"):
            for label, form in exports.FORMATS.items():
                _button(path, where, label, form, disabled=not (fits and allowed))
        for error in _errors().values():
            common.message("bad", error)
        common.note("To export any number of dead letters unmasked, in a form that can be imported:")
        st.code(exports.command(path, where), language=None, wrap_lines=True)


def _button(path: Path, where: DeadLetterFilter, label: str, form: Format, *, disabled: bool) -> None:
    store, errors, who = open_store(path), _errors(), actions.user()

    def content() -> bytes:
        """Create the file. Streamlit calls it when the user clicks, outside the script's thread."""
        try:
            file = exports.export(store, where, form, who=who, now=time.time())
        except ProducerError as error:
            errors[form] = str(error)
            raise
        errors.pop(form, None)
        return file.content

    st.download_button(
        label, content, file_name=f"dead-letters.{form}", key=f"export_{form}", disabled=disabled, on_click="ignore"
    )  # fmt: skip


def _errors() -> dict[str, str]:
    """Return the errors of failed exports by format; a plain dictionary, because a download runs outside the session."""
    errors: dict[str, str] = st.session_state.setdefault("export_failed", {})
    return errors
