"""Test the compressed static files."""

from __future__ import annotations

import gzip

import pytest

from producer_core.dashboard.server.command import PLOTLY_JS
from producer_core.dashboard.server.static_files import StaticFiles


@pytest.fixture
def folder(tmp_path):
    """Create a page, a module that imports another one and itself, and Plotly."""
    contents = {
        "index.html": '<script src="./static/js/index.a1.js"></script>',
        "static/js/index.a1.js": "index",
        "static/js/Html.c3.js": 'import{a}from"./purify.d4.js";import"./Html.c3.js";import"./missing.js"',
        "static/js/purify.d4.js": "purify",
        f"own/{PLOTLY_JS}": "plotly",
    }
    for name, text in contents.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    return tmp_path


def test_no_file_is_compressed_before_the_warm_up(folder):
    files = StaticFiles(folder, folder / "own")
    assert files.compressed("static/js/index.a1.js") is None

    files.compress()

    found = files.compressed("static/js/index.a1.js")
    assert (gzip.decompress(found.body), found.content_type) == (b"index", "text/javascript")
    assert gzip.decompress(files.compressed(f"app/static/{PLOTLY_JS}").body) == b"plotly"


@pytest.mark.parametrize("path", ["", "index.html", "../secrets.toml", "static/js/missing.js"])
def test_only_the_files_that_a_page_loads_are_compressed(folder, path):
    files = StaticFiles(folder, folder / "own")
    files.compress()

    assert files.compressed(path) is None


def test_a_page_preloads_its_modules_and_their_imports_once(folder):
    hints = StaticFiles(folder, folder / "own").hints("alerts").decode()

    assert hints.count("Html.c3.js") == hints.count("purify.d4.js") == 1
    assert "index.a1.js" not in hints and "missing.js" not in hints and PLOTLY_JS not in hints


def test_a_streamlit_without_static_files_has_no_preload_hints(tmp_path):
    files = StaticFiles(tmp_path, tmp_path)
    files.compress()

    assert files.hints("alerts") == b""
