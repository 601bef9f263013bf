"""Open the store of the page once for all sessions, and describe why a store cannot be opened."""

from __future__ import annotations

from pathlib import Path

import streamlit as st

from producer_core.errors import ProducerError, StoreUnavailable
from producer_core.store import Store


@st.cache_resource(show_spinner=False, max_entries=4)  # type: ignore[untyped-decorator]  # streamlit is Any here
def open_store(path: Path) -> Store:
    """Return the existing store at the path; raise StoreError, which says what to do, where it cannot be opened."""
    return Store.open(path, create=False)


def store_problem(path: Path, error: ProducerError) -> tuple[str, str]:
    """Return a tone and a message for a store that cannot be read."""
    if isinstance(error, StoreUnavailable) and not path.exists():
        return "quiet", (
            f"There is no store at {path} yet. This page opens as soon as the store exists. "
            f"A producer creates it when it starts, for example: producer-core send TOPIC FILE --store {path}"
        )
    return "bad", str(error)
