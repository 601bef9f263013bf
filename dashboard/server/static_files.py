"""Compress the static files that a browser loads before it can draw a page, and keep them in memory.

Streamlit reads each of its ninety files from disk for every browser and sends it uncompressed. A browser requests a
third of them only after the first elements have arrived.
"""

from __future__ import annotations

import gzip
import re
from collections.abc import Iterable, Iterator
from itertools import chain
from pathlib import Path
from typing import NamedTuple

from producer_core.dashboard.server.command import PLOTLY_JS

CHART_PAGES = frozenset(("", "overview", "latency", "errors", "fleet"))
"""The URL paths of the pages that start with a chart."""

_ELEMENTS = ("BidiComponent", "ButtonGroup", "Checkbox", "Html", "Selectbox")
"""The elements at the top of every page, by the names of Streamlit's JavaScript files."""
_MORE_ELEMENTS = {"fleet": ("TextInput",)}
"""Additional elements by the URL path of a page."""
_IN_PAGE = re.compile(r'(?:src|href)="\./(static/[\w./-]+\.(?:js|css|woff2))"')
_IMPORTS = re.compile(r'(?:from|import)\s*["\'`]\./([\w.-]+\.js)["\'`]')
_CONTENT_TYPES = {".js": "text/javascript", ".css": "text/css"}


class CompressedFile(NamedTuple):
    """A gzipped file with its content type."""

    body: bytes
    content_type: str


class StaticFiles:
    """Hold compressed files: Streamlit's from `streamlit`, the dashboard's from `own` (served as `app/static`).

    Streamlit itself serves files that are not compressed yet, and all other files.
    """

    def __init__(self, streamlit: Path, own: Path) -> None:
        self._streamlit = streamlit
        self._own = own
        # written by the warm-up thread, read by the server's
        self._compressed: dict[str, CompressedFile] = {}
        in_page = _IN_PAGE.findall(self._index())
        self._modules = tuple(self._modules_of(_ELEMENTS, in_page))
        self._more_modules = {
            page: tuple(self._modules_of(elements, (*in_page, *self._modules)))
            for page, elements in _MORE_ELEMENTS.items()
        }

    def compress(self) -> None:
        """Compress the files that pages load first; that takes a quarter of a second of one core."""
        self._compress(f"app/static/{PLOTLY_JS}", self._own / PLOTLY_JS)
        in_page = _IN_PAGE.findall(self._index())
        for name in (*in_page, *self._modules, *chain(*self._more_modules.values())):
            self._compress(name, self._streamlit / name)

    def compressed(self, path: str) -> CompressedFile | None:
        """Return the file at a URL path without its leading slash; None if it is not compressed."""
        return self._compressed.get(path)

    def hints(self, page: str) -> bytes:
        """Return the HTML for the head of a page that makes the browser load its files at once."""
        names = (*self._modules, *self._more_modules.get(page, ()))
        modules = "".join(f'<link rel="modulepreload" crossorigin href="./{name}">' for name in names)
        plotly = f'<script defer src="./app/static/{PLOTLY_JS}" onerror="this.remove()"></script>'
        return (modules + (plotly if page in CHART_PAGES else "")).encode()

    def _compress(self, address: str, file: Path) -> None:
        if file.suffix in _CONTENT_TYPES and file.is_file():
            body = gzip.compress(file.read_bytes(), 6, mtime=0)
            self._compressed[address] = CompressedFile(body, _CONTENT_TYPES[file.suffix])

    def _index(self) -> str:
        page = self._streamlit / "index.html"
        return page.read_text() if page.is_file() else ""

    def _modules_of(self, elements: Iterable[str], loaded: Iterable[str]) -> Iterator[str]:
        """Yield the files of the elements and all files that they import, except those loaded already."""
        folder, known = self._streamlit / "static" / "js", set(loaded)
        queue = [file.name for element in elements for file in sorted(folder.glob(f"{element}.*.js"))]
        while queue:
            name = f"static/js/{queue.pop(0)}"
            if name not in known and (self._streamlit / name).is_file():
                known.add(name)
                yield name
                queue += _IMPORTS.findall((self._streamlit / name).read_text())
