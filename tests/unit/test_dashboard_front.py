"""The front of the dashboard: pages say where their server is and what they need next; their files come packed."""

from __future__ import annotations

import asyncio
import gzip

import pytest

from producer_core.dashboard.server.command import PLOTLY_JS
from producer_core.dashboard.server.page_middleware import PageMiddleware
from producer_core.dashboard.server.static_files import StaticFiles

PAGE = (
    b'<!DOCTYPE html><html><head><title>Streamlit</title><script type="module" src="./static/js/index.a1.js">'
    b'</script><link rel="stylesheet" href="./static/css/index.b2.css"></head></html>'
)
SCRIPT = (
    b"<head><script>window.__streamlit = { BACKEND_BASE_URL: new URL('.', location.href).href"
    b", HOST_CONFIG: { allowedOrigins: [location.origin], useExternalAuthToken: false } }</script>"
)


@pytest.fixture
def files(tmp_path):
    """Streamlit's folder in small: what the page names, a part that imports another file, and one that nobody needs."""
    made = {
        "index.html": PAGE.decode(),
        "static/js/index.a1.js": "index",
        "static/css/index.b2.css": "css",
        "static/js/Html.c3.js": 'import{a}from"./index.a1.js";import{b}from"./purify.d4.js";',
        "static/js/purify.d4.js": "purify",
        "static/js/Video.e5.js": "video",
        f"own/{PLOTLY_JS}": "plotly",
    }
    for name, text in made.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    return StaticFiles(tmp_path, tmp_path / "own")


def answered(
    files, *, path="/alerts", kind=b"text/html; charset=utf-8", accept=b"text/html,*/*", status=200, body=PAGE,
    extra=(), query=b"", **front,
):  # fmt: skip
    """What a browser gets, and what the app was asked, if it was."""
    asked, sent = [], []

    async def app(scope, receive, send):
        asked.append(scope)
        headers = [
            (b"content-type", kind),
            (b"content-length", str(len(body)).encode()),
            (b"etag", b"x"),
            *extra,
        ]
        await send({"type": "http.response.start", "status": status, "headers": headers})
        await send({"type": "http.response.body", "body": body[:20], "more_body": True})
        await send({"type": "http.response.body", "body": body[20:]})

    async def send(message):
        sent.append(message)

    scope = {
        "type": "http", "method": "GET", "path": path, "query_string": query,
        "headers": [(b"accept", accept), (b"accept-encoding", b"gzip"), (b"if-none-match", b"x")],
    }  # fmt: skip
    asyncio.run(PageMiddleware(app, files=files, **front)(scope, None, send))
    return (
        dict(sent[0]["headers"]),
        b"".join(one.get("body", b"") for one in sent[1:]),
        dict(asked[0]["headers"]) if asked else None,
    )


def test_a_page_says_where_its_server_is(files):
    headers, body, asked = answered(files)
    assert SCRIPT in body
    assert headers[b"content-length"] == str(len(body)).encode()
    assert b"etag" not in headers and b"accept-encoding" not in asked and b"if-none-match" not in asked


def test_where_streamlit_has_to_know_a_person_first_it_connects_only_then(files):
    assert b"HOST_CONFIG" not in answered(files, at_once=False)[1]


def test_a_page_names_what_it_needs_next_and_nothing_twice(files):
    _, body, _ = answered(files)
    assert body.count(b"index.a1.js") == 1
    assert body.count(b'<link rel="modulepreload" crossorigin href="./static/js/') == 2
    assert b"Html.c3.js" in body and b"purify.d4.js" in body and b"Video" not in body


@pytest.mark.parametrize(("path", "there"), [("/", True), ("/below/latency", True), ("/below/alerts", False)])
def test_only_a_page_with_a_chart_loads_plotly_at_once(files, path, there):
    _, body, _ = answered(files, path=path, base="below")
    assert (f'<script defer src="./app/static/{PLOTLY_JS}"'.encode() in body) is there


@pytest.mark.parametrize(
    "other",
    [
        {"kind": b"application/json"},
        {"accept": b"*/*"},
        {"status": 404},
        {"extra": [(b"content-encoding", b"gzip")]},
        {"path": "/static/js/Video.e5.js", "accept": b"*/*"},
    ],
    ids=[
        "no page",
        "nobody asks for a page",
        "not found",
        "packed already",
        "a file that no page begins with",
    ],
)
def test_nothing_else_is_changed(files, other):
    files.pack()
    headers, body, _ = answered(files, **other)
    assert body == PAGE
    assert headers[b"etag"] == b"x"


@pytest.mark.parametrize(
    ("path", "text"),
    [
        ("/below/static/js/index.a1.js", b"index"),
        ("/below/static/css/index.b2.css", b"css"),
        ("/below/static/js/purify.d4.js", b"purify"),
        (f"/below/app/static/{PLOTLY_JS}", b"plotly"),
    ],
)
def test_a_file_that_pages_begin_with_comes_packed_and_may_be_kept(files, path, text):
    assert (
        answered(files, path=path, base="/below")[2] is not None
    )  # nothing is packed yet: Streamlit sends it

    files.pack()

    headers, body, asked = answered(files, path=path, base="/below")
    assert asked is None and gzip.decompress(body) == text
    assert headers[b"content-encoding"] == b"gzip" and b"immutable" in headers[b"cache-control"]


@pytest.mark.parametrize(
    ("path", "base", "location"),
    [
        ("/overview", "", b"./?range=1+hour"),
        ("/overview/", "", b"../?range=1+hour"),
        ("/shop/overview", "/shop", b"./?range=1+hour"),
    ],
)
def test_the_overview_opens_by_its_name_like_every_other_page(files, path, base, location):
    headers, body, asked = answered(files, path=path, base=base, query=b"range=1+hour")
    assert (headers[b"location"], body, asked) == (location, b"", None)
