"""Load in advance what the first page needs, so that the first browser does not wait for it."""

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


def start_warm_up(path: Path, files: StaticFiles, page: str) -> threading.Thread:
    """Load the `page` module and the libraries that the first page needs, on a thread of its own.

    The server answers requests at the same time. Errors of the store are ignored here: the page reports them.
    """
    thread = threading.Thread(
        target=_warm_up, args=(path, files, page), name="dashboard-warm-up", daemon=True
    )
    thread.start()
    return thread


def _warm_up(path: Path, files: StaticFiles, page: str) -> None:
    import_module(page)
    import_module("plotly.graph_objects")  # which the first chart imports
    import_module("pandas")  # Streamlit imports it when it draws its first element
    files.compress()
    with contextlib.suppress(ProducerError):
        _draw_overview(path)


def _draw_overview(path: Path) -> None:
    queries: Any = import_module("producer_core.dashboard.queries")
    charts: Any = import_module("producer_core.dashboard.charts")
    store = Store.open(path, create=False)
    try:
        charts.overview_lines(charts.lines_of(queries.overview(store, queries.View(), time.time())))
    finally:
        store.close()
