"""Show the range of an incident bundle on every page, and a line that says what the bundle is."""

from __future__ import annotations

import math
from pathlib import Path

import streamlit as st

from producer_core.dashboard import wording
from producer_core.dashboard.server.stores import open_store
from producer_core.dashboard.views import common
from producer_core.diagnostics.incident.facts import IncidentFacts, incident_of

_RANGE = frozenset(("range", "since", "until"))


def show(path: Path) -> None:
    """Select the range of the bundle on the first page of a session, and show the line; nothing for another store."""
    facts = incident_of(open_store(path))
    if not facts:
        return
    if "view" not in st.session_state and not _RANGE & set(st.query_params):
        since, until = math.floor(facts["since"]), math.ceil(facts["until"])
        st.query_params.update({"since": str(since), "until": str(until)})
    common.message("quiet", sentence(facts, common.zone()))


def sentence(facts: IncidentFacts, zone: str | None) -> str:
    """Describe the bundle."""
    since, until, exported = (
        wording.stamp(at, zone).text for at in (facts["since"], facts["until"], facts["exported_at"])
    )
    kind = "Masked" if facts["masked"] else "Raw"
    return f"Incident bundle, {since} to {until}. {kind}, read-only. Exported {exported}."
