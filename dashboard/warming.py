"""The warming of a server: what the first page would wait for is done before anybody asks for one."""

from __future__ import annotations

import contextlib
import threading
import time
from importlib import import_module
from pathlib import Path
from typing import Any

from dashboard.files import Files
from producer_core.errors import ProducerError
from producer_core.store import Store


def warm(path: Path, files: Files) -> threading.Thread:
    """Begin, and return: the server answers meanwhile. What goes wrong with the store is for the page to say."""
    warming = threading.Thread(target=_warm, args=(path, files), name="warming", daemon=True)
    warming.start()
    return warming


def _warm(path: Path, files: Files) -> None:
    import_module("dashboard.app")  # the pages, and plotly
    import_module("pandas")  # Streamlit asks it about the first thing that is drawn
    files.pack()
    with contextlib.suppress(ProducerError):
        _draw(path)


def _draw(path: Path) -> None:
    data: Any = import_module("dashboard.data")
    figures: Any = import_module("dashboard.figures")
    store = Store.open(path, create=False)
    try:
        figures.overview_lines(figures.lines_of(data.overview(store, data.View(), time.time())))
    finally:
        store.close()
