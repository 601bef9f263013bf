"""Test the page middleware: the server address and the preload hints in pages, and compressed static files."""

from __future__ import annotations

import asyncio
import gzip
from pathlib import Path

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
    """Create a small copy of Streamlit's folder: files of the page, a module with an import, and an unused module."""
    contents = {
        "index.html": PAGE.decode(),
        "static/js/index.a1.js": "index",
        "static/css/index.b2.css": "css",
        "static/js/Html.c3.js": 'import{a}from"./index.a1.js";import{b}from"./purify.d4.js";',
        "static/js/purify.d4.js": "purify",
        "static/js/Video.e5.js": "video",
        f"own/{PLOTLY_JS}": "plotly",
    }
    for name, text in contents.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    return StaticFiles(tmp_path, tmp_path / "own")


def response(
    files, *, path="/alerts", kind=b"text/html; charset=utf-8", accept=b"text/html,*/*", status=200, body=PAGE,
    extra=(), extra_request=(), query=b"", **options,
):  # fmt: skip
    """Return the headers and the body of the response, and the headers of the request that reached the app, if any."""
    requests, sent = [], []

    async def app(scope, receive, send):
        requests.append(scope)
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
        "headers": [(b"accept", accept), (b"accept-encoding", b"gzip"), (b"if-none-match", b"x"), *extra_request],
    }  # fmt: skip
    asyncio.run(PageMiddleware(app, files=files, **options)(scope, None, send))
    return (
        dict(sent[0]["headers"]),
        b"".join(one.get("body", b"") for one in sent[1:]),
        dict(requests[0]["headers"]) if requests else None,
    )


def test_a_page_contains_the_server_address(files):
    headers, body, request = response(files)
    assert SCRIPT in body
    assert headers[b"content-length"] == str(len(body)).encode()
    assert b"etag" not in headers and b"accept-encoding" not in request and b"if-none-match" not in request


def test_without_early_connection_the_page_requests_its_configuration_first(files):
    assert b"HOST_CONFIG" not in response(files, connect_early=False)[1]


def test_a_page_preloads_each_file_once(files):
    _, body, _ = response(files)
    assert body.count(b"index.a1.js") == 1
    assert body.count(b'<link rel="modulepreload" crossorigin href="./static/js/') == 2
    assert b"Html.c3.js" in body and b"purify.d4.js" in body and b"Video" not in body


@pytest.mark.parametrize(("path", "there"), [("/", True), ("/below/latency", True), ("/below/alerts", False)])
def test_only_chart_pages_load_plotly_in_the_head(files, path, there):
    _, body, _ = response(files, path=path, base="below")
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
        "no page requested",
        "not found",
        "already compressed",
        "a file that is not preloaded",
    ],
)
def test_other_responses_are_unchanged(files, other):
    files.compress()
    headers, body, _ = response(files, **other)
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
def test_preloaded_files_are_sent_compressed_and_immutable(files, path, text):
    # not compressed yet, so Streamlit sends it
    assert response(files, path=path, base="/below")[2] is not None

    files.compress()

    headers, body, request = response(files, path=path, base="/below")
    assert request is None and gzip.decompress(body) == text
    assert headers[b"content-encoding"] == b"gzip" and b"immutable" in headers[b"cache-control"]
    assert headers[b"content-type"] in (b"text/javascript; charset=utf-8", b"text/css; charset=utf-8")
    assert headers[b"vary"] == b"Accept-Encoding" and headers[b"x-content-type-options"] == b"nosniff"


def test_a_page_is_not_sent_as_a_file_path():
    """The middleware changes the body, so the app must send the body."""
    requests = []

    async def app(scope, receive, send):
        requests.append(scope)

    files = StaticFiles(Path("missing"), Path("missing"))
    scope = {
        "type": "http", "method": "GET", "path": "/", "headers": [(b"accept", b"text/html")],
        "extensions": {"http.response.pathsend": {}, "other": {}},
    }  # fmt: skip
    asyncio.run(PageMiddleware(app, files=files)(scope, None, None))

    assert requests[0]["extensions"] == {"other": {}}
    assert "http.response.pathsend" in scope["extensions"]


def test_a_request_for_a_part_of_a_file_is_left_to_streamlit(files):
    files.compress()
    requested = response(
        files, path="/static/js/index.a1.js", accept=b"*/*", extra_request=[(b"range", b"bytes=0-1")]
    )[2]

    assert requested[b"range"] == b"bytes=0-1"


@pytest.mark.parametrize(
    ("path", "base", "location"),
    [
        ("/overview", "", b"./?range=1+hour"),
        ("/overview/", "", b"../?range=1+hour"),
        ("/shop/overview", "/shop", b"./?range=1+hour"),
    ],
)
def test_the_overview_address_redirects_to_the_root(files, path, base, location):
    headers, body, request = response(files, path=path, base=base, query=b"range=1+hour")
    assert (headers[b"location"], body, request) == (location, b"", None)


@pytest.mark.parametrize(
    ("path", "target"),
    [
        ("/settings/x", b"../settings?topic=a"),
        ("/settings/x/", b"../../settings?topic=a"),
        ("/nope/x/y", b"../../nope?topic=a"),
    ],
)
def test_an_address_below_a_page_opens_the_page(files, path, target):
    headers, _, request = response(files, path=path, query=b"topic=a")
    assert (headers[b"location"], request) == (target, None)


def test_pages_of_components_are_not_redirected(files):
    assert response(files, path="/component/producer_core.x/index.html")[2] is not None
