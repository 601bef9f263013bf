"""The front: pages name what a browser needs next, so that it need not find out; their files come packed, from memory.

Without it Streamlit asks `/alerts/_stcore/health` before `/_stcore/health`, each such 404 stands in the console, and
only when both have answered does it connect.
"""

from __future__ import annotations

from producer_core.dashboard.auth.asgi import App, Message, Receive, Scope, Send, rooted
from producer_core.dashboard.server import first_paint
from producer_core.dashboard.server.static_files import PackedFile, StaticFiles

_WHERE = b"window.__streamlit = { BACKEND_BASE_URL: new URL('.', location.href).href"
"""The folder of the page, from which its files come too; so it holds behind a proxy that serves it below a path."""
_AT_ONCE = b", HOST_CONFIG: { allowedOrigins: [location.origin], useExternalAuthToken: false }"
"""With it Streamlit connects first and asks for its settings meanwhile. No other site may talk to the page."""
_HEAD, _END = b"<head>", b"</head>"
_FIRST = "overview"
"""The page whose address is the folder itself. Streamlit knows it by no name."""
_CONDITIONS = (b"accept-encoding", b"if-none-match", b"if-modified-since", b"range")
_CHANGED = (b"content-length", b"etag", b"last-modified")


class PageMiddleware:
    """ASGI middleware; it changes nothing but pages that a browser opens, and the way some of their files are sent."""

    def __init__(self, app: App, *, files: StaticFiles, base: str = "", at_once: bool = True) -> None:
        """`at_once`: not where Streamlit has to know a person by a cookie, which comes with its first answer."""
        self._app = app
        self._files = files
        self._script = b"<script>" + _WHERE + (_AT_ONCE if at_once else b"") + b" }</script>"
        self._base = rooted(base)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or scope["method"] != "GET":
            return await self._app(scope, receive, send)
        path = scope["path"].removeprefix(self._base).lstrip("/")
        packed = self._files.packed(path)
        if packed is not None and _takes_gzip(scope):
            return await _send_packed(packed, send)
        if not _asks_for_a_page(scope):
            return await self._app(scope, receive, send)
        if path.rstrip("/") == _FIRST:
            return await _send_to(b"../" if path.endswith("/") else b"./", scope, send)
        headers = [(name, value) for name, value in scope["headers"] if name.lower() not in _CONDITIONS]
        extensions = {
            name: one
            for name, one in (scope.get("extensions") or {}).items()
            if name != "http.response.pathsend"
        }
        changed = _Changed(send, self._script, self._files.hints(path))
        return await self._app({**scope, "headers": headers, "extensions": extensions}, receive, changed)


class _Changed:
    """Holds a page back until it is whole, and sends it with the script and the hints in it."""

    def __init__(self, send: Send, script: bytes, hints: bytes) -> None:
        self._send = send
        self._script, self._hints = script, hints
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
        body = self._body.replace(_HEAD, _HEAD + self._script, 1).replace(_END, self._hints + _END, 1)
        body = first_paint.added(body)
        headers = [(name, value) for name, value in start["headers"] if name.lower() not in _CHANGED]
        headers.append((b"content-length", str(len(body)).encode()))
        self._start = None
        await self._send({**start, "headers": headers})
        await self._send({"type": "http.response.body", "body": body})


async def _send_to(address: bytes, scope: Scope, send: Send) -> None:
    """Redirect to an address relative to this one, with the same query."""
    query = scope.get("query_string", b"")
    headers = [(b"location", address + (b"?" + query if query else b"")), (b"content-length", b"0")]
    await send({"type": "http.response.start", "status": 307, "headers": headers})
    await send({"type": "http.response.body", "body": b""})


async def _send_packed(packed: PackedFile, send: Send) -> None:
    """Its name changes whenever it does, so a browser need never ask again."""
    headers = [
        (b"content-type", packed.kind),
        (b"content-encoding", b"gzip"),
        (b"content-length", str(len(packed.body)).encode()),
        (b"cache-control", b"public, immutable, max-age=31536000"),
        (b"vary", b"Accept-Encoding"),
        (b"x-content-type-options", b"nosniff"),
    ]
    await send({"type": "http.response.start", "status": 200, "headers": headers})
    await send({"type": "http.response.body", "body": packed.body})


def _takes_gzip(scope: Scope) -> bool:
    headers = {name.lower(): value for name, value in scope["headers"]}
    return b"gzip" in headers.get(b"accept-encoding", b"") and b"range" not in headers


def _asks_for_a_page(scope: Scope) -> bool:
    return any(name.lower() == b"accept" and b"text/html" in value for name, value in scope["headers"])


def _is_page(message: Message) -> bool:
    headers = {name.lower(): value for name, value in message["headers"]}
    kind = headers.get(b"content-type", b"")
    return message["status"] == 200 and kind.startswith(b"text/html") and b"content-encoding" not in headers
