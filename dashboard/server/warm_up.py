"""The warming of a server: what the first page would wait for is done before anybody asks for one."""

from __future__ import annotations

import contextlib
import threading
import time
from importlib import import_module
from pathlib import Path
from typing import Any

from producer_core.dashboard.server.static_files import StaticFiles
from producer_core.errors import ProducerError
from producer_core.store import Store


def warm(path: Path, files: StaticFiles, page: str) -> threading.Thread:
    """Load the `page` module and the libraries that the first page needs, on a thread of its own.

    The server answers at the same time. The page reports what is wrong with the store.
    """
    warming = threading.Thread(target=_warm, args=(path, files, page), name="warming", daemon=True)
    warming.start()
    return warming


def _warm(path: Path, files: StaticFiles, page: str) -> None:
    import_module(page)  # and plotly
    import_module("pandas")  # Streamlit asks it about the first thing that is drawn
    files.pack()
    with contextlib.suppress(ProducerError):
        _draw(path)


def _draw(path: Path) -> None:
    data: Any = import_module("producer_core.dashboard.queries")
    figures: Any = import_module("producer_core.dashboard.charts")
    store = Store.open(path, create=False)
    try:
        figures.overview_lines(figures.lines_of(data.overview(store, data.View(), time.time())))
    finally:
        store.close()
