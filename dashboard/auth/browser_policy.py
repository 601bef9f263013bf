"""Reject foreign frames, host names and WebSocket origins, and keep HTTPS cookies off plain HTTP."""

from __future__ import annotations

from collections.abc import Sequence
from urllib.parse import urlsplit

from starlette.datastructures import Headers, MutableHeaders
from starlette.responses import PlainTextResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send
from starlette.websockets import WebSocketClose

from producer_core.dashboard.auth.asgi import header_value, path_prefix

_POLICY = "content-security-policy"
_HEADERS = {_POLICY: "frame-ancestors 'self'", "x-frame-options": "SAMEORIGIN"}
"""`self` instead of `none`, because Streamlit's components and a notebook behind jupyter-server-proxy frame pages of
their own origin. X-Frame-Options serves browsers that do not support frame-ancestors."""

_HEALTH = "/_stcore/health"
"""Load balancers request it by IP address; the response contains no data."""

_SCHEMES = ("http", "https")
"""Schemes of a page that may open a WebSocket. Over https, http is excluded: any host on the network can forge such a page."""

_REFUSAL = (
    "The dashboard does not accept this host name. Start it with: producer-core dashboard --host NAME\n"
)


class BrowserPolicy:
    """Check the host and the origin of each request, and set the security headers. ASGI middleware.

    It wraps all other middleware, so that every response carries the headers.
    """

    def __init__(self, app: ASGIApp, *, hosts: Sequence[str], base: str = "", https: bool = False) -> None:
        """Take `hosts` in the form of Streamlit's `server.allowedHosts`, which Streamlit checks for the WebSocket only.

        `https` says that browsers use only https, even if a request arrives over http from a proxy.
        """
        self._app = app
        self._hosts = tuple(host.strip().lower().rstrip(".") for host in hosts)
        self._base = path_prefix(base)
        self._https = https

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] not in ("http", "websocket"):
            return await self._app(scope, receive, send)
        secure = self._https or scope.get("scheme") in ("https", "wss")
        if not self._accepts_host(scope) or _is_cross_origin(scope, secure=secure):
            return await _refuse(scope, receive, send)

        async def send_protected(message: Message) -> None:
            if message["type"] == "http.response.start":
                _protect(MutableHeaders(scope=message), secure=secure)
            await send(message)

        return await self._app(_with_unique_cookies(scope), receive, send_protected)

    def _accepts_host(self, scope: Scope) -> bool:
        if scope["type"] == "http" and scope["path"].removeprefix(self._base) == _HEALTH:
            return True
        given = Headers(scope=scope).getlist("host")
        return len(given) == 1 and any(_matches(_hostname(given[0]), pattern) for pattern in self._hosts)


def _is_cross_origin(scope: Scope, *, secure: bool) -> bool:
    """Return whether a page of another origin opens the WebSocket.

    Streamlit also accepts every port of localhost and of this machine's addresses. Before Streamlit rejects any other
    origin, it requests this machine's address from a public service and blocks all other requests for up to two seconds.
    """
    headers = Headers(scope=scope)
    origins = headers.getlist("origin") if scope["type"] == "websocket" else []
    own = [f"{scheme}://{host.lower()}" for scheme in _SCHEMES[secure:] for host in headers.getlist("host")]
    return bool(origins) and not (len(origins) == 1 and origins[0].lower() in own)


def _with_unique_cookies(scope: Scope) -> Scope:
    """Keep only the first cookie of each name, because Starlette and Streamlit use the last.

    Browsers send the cookie with the longest path first: that of a dashboard at /kafka before that of one at /.
    """
    headers = Headers(scope=scope).mutablecopy()
    pairs = [pair.strip() for line in headers.getlist("cookie") for pair in line.split(";")]
    first: dict[str, str] = {}
    for pair in pairs:
        first.setdefault(pair.partition("=")[0].strip(), pair)
    if len(first) == len(pairs):
        return scope
    headers["cookie"] = "; ".join(first.values())
    return {**scope, "headers": headers.raw}


def _protect(headers: MutableHeaders, *, secure: bool) -> None:
    if secure:
        headers.raw[:] = [
            (name, _secure(value) if name == b"set-cookie" else value) for name, value in headers.raw
        ]
    if "frame-ancestors" not in header_value(headers, _POLICY):  # the sign-in page sets a stricter rule
        for name, value in _HEADERS.items():
            headers.append(name, value)


def _secure(cookie: bytes) -> bytes:
    """Return the cookie with the Secure attribute, which Streamlit sets only if it serves https itself."""
    attributes = [part.strip().lower() for part in cookie.split(b";")[1:]]
    return cookie if b"secure" in attributes else cookie + b"; Secure"


def _hostname(host: str) -> str:
    """Return the name in lower case without its port; an empty string if the header is malformed."""
    try:
        found = urlsplit(f"//{host}")
        _ = found.port
    except ValueError:
        return ""
    more = found.username, found.password, found.path, found.query, found.fragment
    return "" if any(more) else (found.hostname or "").rstrip(".")


def _matches(name: str, pattern: str) -> bool:
    if not name:
        return False
    if pattern.startswith("*."):
        return name.endswith(pattern[1:])
    return pattern in ("*", name)


async def _refuse(scope: Scope, receive: Receive, send: Send) -> None:
    if scope["type"] == "websocket":
        return await WebSocketClose(1008)(scope, receive, send)
    headers = {"cache-control": "no-store", **_HEADERS}
    return await PlainTextResponse(_REFUSAL, 421, headers)(scope, receive, send)
