"""The files of a page: what a browser loads before anything can be drawn, packed once and sent from memory.

Streamlit reads each of its ninety files from disk for every browser and sends it unpacked, and a browser learns of every
third one only when the first elements have come.
"""

from __future__ import annotations

import gzip
import re
from collections.abc import Iterable, Iterator
from itertools import chain
from pathlib import Path
from typing import NamedTuple

from producer_core.dashboard.server.command import PLOTLY_JS

CHARTED = frozenset(("", "overview", "latency", "errors", "fleet"))
"""The addresses of the pages that open with a chart."""

_PARTS = ("BidiComponent", "ButtonGroup", "Checkbox", "Html", "Selectbox")
"""What every page of ours begins with, as Streamlit names the files in which its elements are."""
_ALSO = {"fleet": ("TextInput",)}
"""By the address of a page: what it has besides."""
_IN_PAGE = re.compile(r'(?:src|href)="\./(static/[\w./-]+\.(?:js|css|woff2))"')
_IMPORTED = re.compile(r'(?:from|import)\s*["\'`]\./([\w.-]+\.js)["\'`]')
_KINDS = {".js": b"text/javascript; charset=utf-8", ".css": b"text/css; charset=utf-8"}


class PackedFile(NamedTuple):
    """A file as it is sent to a browser that takes gzip."""

    body: bytes
    kind: bytes


class StaticFiles:
    """Streamlit's own files below `streamlit`, ours in `own`, which stands in addresses as `app/static`.

    Before `pack` has come to a file, and for every other, there is None: then Streamlit sends it as ever.
    """

    def __init__(self, streamlit: Path, own: Path) -> None:
        self._streamlit = streamlit
        self._own = own
        self._packed: dict[
            str, PackedFile
        ] = {}  # written by the thread that packs, read by that of the server
        given = _IN_PAGE.findall(self._page())
        self._parts = tuple(self._all_of(_PARTS, given))
        self._also = {page: tuple(self._all_of(also, (*given, *self._parts))) for page, also in _ALSO.items()}

    def pack(self) -> None:
        """Pack all that pages begin with: a quarter of a second of one core."""
        self._pack(f"app/static/{PLOTLY_JS}", self._own / PLOTLY_JS)
        for name in (*_IN_PAGE.findall(self._page()), *self._parts, *chain(*self._also.values())):
            self._pack(name, self._streamlit / name)

    def packed(self, path: str) -> PackedFile | None:
        """By its address, without the slash before it."""
        return self._packed.get(path)

    def hints(self, page: str) -> bytes:
        """What to load at once, for the head of a page: HTML."""
        named = (*self._parts, *self._also.get(page, ()))
        parts = "".join(f'<link rel="modulepreload" crossorigin href="./{name}">' for name in named)
        plotly = f'<script defer src="./app/static/{PLOTLY_JS}" onerror="this.remove()"></script>'
        return (parts + (plotly if page in CHARTED else "")).encode()

    def _pack(self, address: str, file: Path) -> None:
        if file.suffix in _KINDS and file.is_file():
            self._packed[address] = PackedFile(
                gzip.compress(file.read_bytes(), 6, mtime=0), _KINDS[file.suffix]
            )

    def _page(self) -> str:
        page = self._streamlit / "index.html"
        return page.read_text() if page.is_file() else ""

    def _all_of(self, parts: Iterable[str], given: Iterable[str]) -> Iterator[str]:
        """The files of the parts, with all that they import and that is not given already."""
        folder, known = self._streamlit / "static" / "js", set(given)
        wanted = [file.name for part in parts for file in sorted(folder.glob(f"{part}.*.js"))]
        while wanted:
            name = f"static/js/{wanted.pop(0)}"
            if name not in known and (self._streamlit / name).is_file():
                known.add(name)
                yield name
                wanted += _IMPORTED.findall((self._streamlit / name).read_text())
