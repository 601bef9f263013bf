"""The front of the dashboard: pages say where their server is, and nothing else is changed."""

from __future__ import annotations

import asyncio

import pytest

from dashboard.front import Front, with_base

PAGE = b"<!DOCTYPE html><html><head><title>Streamlit</title></head></html>"


def answered(*, kind=b"text/html; charset=utf-8", accept=b"text/html,*/*", status=200, body=PAGE, extra=()):
    """What a browser gets, and what the app was asked."""
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
        "type": "http", "method": "GET", "path": "/alerts",
        "headers": [(b"accept", accept), (b"accept-encoding", b"gzip"), (b"if-none-match", b"x")],
    }  # fmt: skip
    asyncio.run(Front(app)(scope, None, send))
    return (
        dict(sent[0]["headers"]),
        b"".join(one.get("body", b"") for one in sent[1:]),
        dict(asked[0]["headers"]),
    )


def test_a_page_says_where_its_server_is():
    headers, body, asked = answered()
    assert (
        b"<head><script>window.__streamlit = { BACKEND_BASE_URL: new URL('.', location.href).href }" in body
    )
    assert body.endswith(b"<title>Streamlit</title></head></html>")
    assert headers[b"content-length"] == str(len(body)).encode()
    assert b"etag" not in headers and b"accept-encoding" not in asked and b"if-none-match" not in asked


@pytest.mark.parametrize(
    "other",
    [
        {"kind": b"application/json"},
        {"accept": b"*/*"},
        {"status": 404},
        {"extra": [(b"content-encoding", b"gzip")]},
    ],
    ids=["no page", "nobody asks for a page", "not found", "packed already"],
)
def test_nothing_else_is_changed(other):
    headers, body, _ = answered(**other)
    assert body == PAGE
    assert headers[b"etag"] == b"x"


def test_the_parts_of_the_app_stay():
    made = with_base({"middleware": ["door"], "lifespan": "life"})
    assert made["lifespan"] == "life"
    assert [made["middleware"][0], made["middleware"][1].cls] == ["door", Front]
