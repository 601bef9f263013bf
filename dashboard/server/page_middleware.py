"""Speed up the first load: insert the server URL and preload hints into pages, and send their files compressed.

Without the URL, Streamlit's front end first requests `/alerts/_stcore/health` and then `/_stcore/health`. Each such
404 appears in the browser's console, and the page connects only after both responses.
"""

from __future__ import annotations

from starlette.datastructures import Headers
from starlette.responses import RedirectResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from producer_core.dashboard.auth.asgi import header_value, path_prefix
from producer_core.dashboard.server import first_paint
from producer_core.dashboard.server.static_files import CompressedFile, StaticFiles

_BACKEND_URL = b"window.__streamlit = { BACKEND_BASE_URL: new URL('.', location.href).href"
"""The folder of the page, as for its files, so that it is correct behind a proxy that serves the app below a path."""
_HOST_CONFIG = b", HOST_CONFIG: { allowedOrigins: [location.origin], useExternalAuthToken: false }"
"""With it the front end connects first and requests its configuration in parallel. No other site may embed the page."""
_HEAD, _HEAD_END = b"<head>", b"</head>"
_FIRST_PAGE = "overview"
"""The page at the root URL, which Streamlit does not serve under a name."""
_SERVER_FOLDERS = frozenset({"_stcore", "app", "auth", "component", "media", "static"})
"""The folders that Streamlit serves. A page has a URL path of one segment, and its files are relative to that."""
_CONDITIONAL_HEADERS = ("accept-encoding", "if-none-match", "if-modified-since", "range")


class PageMiddleware:
    """Rewrite the HTML page that a browser opens, and send the compressed static files. ASGI middleware.

    All other responses pass unchanged.
    """

    def __init__(
        self, app: ASGIApp, *, files: StaticFiles, base: str = "", connect_early: bool = True
    ) -> None:
        """Let the page connect before its first request is answered, if `connect_early`.

        With OIDC that is not possible: Streamlit identifies the user by a cookie that its first response sets.
        """
        self._app = app
        self._files = files
        self._script = b"<script>" + _BACKEND_URL + (_HOST_CONFIG if connect_early else b"") + b" }</script>"
        self._base = path_prefix(base)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or scope["method"] != "GET":
            return await self._app(scope, receive, send)
        path = scope["path"].removeprefix(self._base).lstrip("/")
        headers = Headers(scope=scope).mutablecopy()
        file = self._files.compressed(path)
        if file is not None and _accepts_gzip(headers):
            return await _compressed(file)(scope, receive, send)
        if "text/html" not in header_value(headers, "accept"):
            return await self._app(scope, receive, send)
        if path.rstrip("/") == _FIRST_PAGE:
            return await _redirect("../" if path.endswith("/") else "./", scope)(scope, receive, send)
        page, *below = path.rstrip("/").split("/")
        if below and page not in _SERVER_FOLDERS:
            steps = len(below) - (not path.endswith("/"))
            return await _redirect(f"{'../' * (steps + 1)}{page}", scope)(scope, receive, send)
        for name in _CONDITIONAL_HEADERS:
            del headers[name]
        extensions = {
            name: extension
            for name, extension in (scope.get("extensions") or {}).items()
            if name != "http.response.pathsend"
        }
        rewriter = _PageRewriter(send, self._script, self._files.hints(path))
        return await self._app({**scope, "headers": headers.raw, "extensions": extensions}, receive, rewriter)


class _PageRewriter:
    """Buffer an HTML page until it is complete, and send it with the script and the hints inserted."""

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
                await self._send_page(self._start)

    async def _send_page(self, start: Message) -> None:
        body = self._body.replace(_HEAD, _HEAD + self._script, 1)
        body = body.replace(_HEAD_END, self._hints + _HEAD_END, 1)
        body = first_paint.with_first_paint(body)
        headers = Headers(scope=start).mutablecopy()
        headers["content-length"] = str(len(body))
        del headers["etag"]
        del headers["last-modified"]
        self._start = None
        await self._send({**start, "headers": headers.raw})
        await self._send({"type": "http.response.body", "body": body})


def _redirect(address: str, scope: Scope) -> Response:
    """Redirect to a URL relative to this one, with the same query."""
    query = scope.get("query_string", b"").decode("latin-1")
    return RedirectResponse(f"{address}?{query}" if query else address)


def _compressed(file: CompressedFile) -> Response:
    """Send the file as immutable: each version has its own name, so a browser never requests it again."""
    headers = {
        "content-encoding": "gzip",
        "cache-control": "public, immutable, max-age=31536000",
        "vary": "Accept-Encoding",
        "x-content-type-options": "nosniff",
    }
    return Response(file.body, headers=headers, media_type=file.content_type)


def _accepts_gzip(headers: Headers) -> bool:
    return "gzip" in header_value(headers, "accept-encoding") and "range" not in headers


def _is_page(message: Message) -> bool:
    headers = Headers(scope=message)
    is_html = headers.get("content-type", "").startswith("text/html")
    return message["status"] == 200 and is_html and "content-encoding" not in headers
