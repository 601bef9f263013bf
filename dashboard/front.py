"""The front: every page says where its server is, so that a browser need not try the page's own address first.

Without it Streamlit asks `/alerts/_stcore/health` before `/_stcore/health`, and each such 404 stands in the console.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, MutableMapping
from typing import Any

from starlette.middleware import Middleware

Scope = MutableMapping[str, Any]
Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
App = Callable[[Scope, Receive, Send], Awaitable[None]]

_SCRIPT = b"<script>window.__streamlit = { BACKEND_BASE_URL: new URL('.', location.href).href }</script>"
"""The folder of the page, from which its files come too; so it holds behind a proxy that serves it below a path."""
_HEAD = b"<head>"
_CONDITIONS = (b"accept-encoding", b"if-none-match", b"if-modified-since", b"range")
_CHANGED = (b"content-length", b"etag", b"last-modified")


def with_base(parts: Mapping[str, Any]) -> dict[str, Any]:
    """The parts of the app, its pages with the address of their server in them."""
    return {**parts, "middleware": [*parts.get("middleware", ()), Middleware(Front)]}


class Front:
    """ASGI middleware; it changes nothing but pages that a browser opens."""

    def __init__(self, app: App) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or scope["method"] != "GET" or not _asks_for_a_page(scope):
            await self._app(scope, receive, send)
            return
        headers = [(name, value) for name, value in scope["headers"] if name.lower() not in _CONDITIONS]
        extensions = {
            name: one
            for name, one in (scope.get("extensions") or {}).items()
            if name != "http.response.pathsend"
        }
        await self._app({**scope, "headers": headers, "extensions": extensions}, receive, _Changed(send))


class _Changed:
    """Holds a page back until it is whole, and sends it with the script in it."""

    def __init__(self, send: Send) -> None:
        self._send = send
        self._start: Message | None = None
        self._body = b""

    async def __call__(self, message: Message) -> None:
        if message["type"] == "http.response.start" and _is_page(message):
            self._start = message
        elif self._start is None or message["type"] != "http.response.body":
            await self._send(message)
        else:
            self._body += message.get("body", b"")
            if not message.get("more_body", False):
                await self._whole(self._start)

    async def _whole(self, start: Message) -> None:
        body = self._body.replace(_HEAD, _HEAD + _SCRIPT, 1)
        headers = [(name, value) for name, value in start["headers"] if name.lower() not in _CHANGED]
        headers.append((b"content-length", str(len(body)).encode()))
        self._start = None
        await self._send({**start, "headers": headers})
        await self._send({"type": "http.response.body", "body": body})


def _asks_for_a_page(scope: Scope) -> bool:
    return any(name.lower() == b"accept" and b"text/html" in value for name, value in scope["headers"])


def _is_page(message: Message) -> bool:
    headers = {name.lower(): value for name, value in message["headers"]}
    kind = headers.get(b"content-type", b"")
    return message["status"] == 200 and kind.startswith(b"text/html") and b"content-encoding" not in headers
