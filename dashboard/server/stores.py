"""The store of this page, opened once for all sessions, and what to say when it cannot be."""

from __future__ import annotations

from pathlib import Path

import streamlit as st

from producer_core.errors import ProducerError, StoreUnavailable
from producer_core.store import Store


@st.cache_resource(show_spinner=False, max_entries=4)  # type: ignore[untyped-decorator]  # streamlit is Any here
def opened(path: Path) -> Store:
    """The store, which must be there; StoreError says what to do when it is not."""
    return Store.open(path, create=False)


def trouble(path: Path, error: ProducerError) -> tuple[str, str]:
    """What to tell a person whose store cannot be read: a tone and sentences that help."""
    if isinstance(error, StoreUnavailable) and not path.exists():
        return "quiet", (
            f"There is no store at {path} yet. This page waits for it and opens by itself. "
            f"A producer makes it when it starts, for example: producer-core send TOPIC FILE --store {path}"
        )
    return "bad", str(error)
