"""Export the time range of a page or an alert as an incident bundle."""

from __future__ import annotations

import math
from pathlib import Path

import streamlit as st

from producer_core.dashboard import actions
from producer_core.dashboard.actions import incidents
from producer_core.dashboard.server.stores import open_store
from producer_core.dashboard.views import common
from producer_core.diagnostics.incident import IncidentWindow
from producer_core.errors import ProducerError, TransferError


def show(path: Path, since: float, until: float) -> None:
    """Draw the button for the range [since, until)."""
    allowed, reason = actions.may_act(path)
    try:
        window = IncidentWindow(float(math.floor(since)), float(math.ceil(until)))
    except TransferError as error:
        window, reason = None, str(error)
    with st.popover(
        "Export incident",
        icon=":material/inventory_2:",
        key="incident_export",
        disabled=window is None or not allowed,
        help=reason or None,
    ):
        if window is not None:
            _content(path, window, allowed=allowed)


def _content(path: Path, window: IncidentWindow, *, allowed: bool) -> None:
    common.note(
        "One file with the statistics, alerts, masked dead letters, replays and operator actions of this range, of all "
        "topics. The audit log records it. Open it: producer-core dashboard --bundle FILE."
    )
    store, errors, who = open_store(path), _errors(), actions.user()

    def content() -> bytes:
        """Create the file. Streamlit calls it when the user clicks, outside the script's thread."""
        try:
            file = incidents.export(store, window, who=who)
        except ProducerError as error:
            errors["incident"] = str(error)
            raise
        errors.pop("incident", None)
        return file.content

    st.download_button(
        "Download",
        content,
        file_name=incidents.name(window),
        key="export_incident",
        disabled=not allowed,
        on_click="ignore",
    )
    for error in errors.values():
        common.message("bad", error)
    common.note("The same on the command line, also for large stores:")
    st.code(incidents.command(path, window), language=None, wrap_lines=True)


def _errors() -> dict[str, str]:
    """Return the error of a failed export; a plain dictionary, because a download runs outside the session."""
    errors: dict[str, str] = st.session_state.setdefault("incident_export_failed", {})
    return errors
