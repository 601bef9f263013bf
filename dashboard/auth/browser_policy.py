"""Rules for browsers: foreign sites cannot frame the pages, and requests under a foreign host name are refused."""

from __future__ import annotations

from collections.abc import Sequence
from urllib.parse import urlsplit

from producer_core.dashboard.auth.asgi import App, Message, Receive, Scope, Send, rooted

_POLICY = b"content-security-policy"
_HEADERS = ((_POLICY, b"frame-ancestors 'self'"), (b"x-frame-options", b"SAMEORIGIN"))
"""`self` and not `none`: a component of Streamlit and a notebook behind jupyter-server-proxy frame pages of their own
origin. X-Frame-Options is for browsers that do not know frame-ancestors."""

_HEALTH = "/_stcore/health"
"""Load balancers ask for it by address; the answer contains no data."""

_REFUSAL = (
    b"The dashboard does not answer to this host name. Start it with: producer-core dashboard --host NAME\n"
)


class BrowserPolicy:
    """ASGI middleware that stands before all others, so that every response carries the headers."""

    def __init__(self, app: App, *, hosts: Sequence[str], base: str = "") -> None:
        """`hosts` has the form of Streamlit's `server.allowedHosts`; Streamlit checks it for the WebSocket only."""
        self._app = app
        self._hosts = tuple(host.strip().lower().rstrip(".") for host in hosts)
        self._base = rooted(base)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] not in ("http", "websocket"):
            return await self._app(scope, receive, send)
        if not self._answers(scope):
            return await _refuse(scope, send)

        async def protected(message: Message) -> None:
            await send(_protected(message))

        return await self._app(scope, receive, protected)

    def _answers(self, scope: Scope) -> bool:
        if scope["type"] == "http" and scope["path"].removeprefix(self._base) == _HEALTH:
            return True
        given = [value.decode("latin-1") for name, value in scope["headers"] if name.lower() == b"host"]
        return len(given) == 1 and any(_matches(_hostname(given[0]), pattern) for pattern in self._hosts)


def _protected(message: Message) -> Message:
    if message["type"] != "http.response.start":
        return message
    headers = list(message.get("headers", ()))
    known = {name.lower(): value for name, value in headers}
    if b"frame-ancestors" in known.get(_POLICY, b""):  # the page has a stricter rule of its own
        return message
    return {**message, "headers": [*headers, *_HEADERS]}


def _hostname(host: str) -> str:
    """Return the name without its port in lower case; an empty string where the header is malformed."""
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


async def _refuse(scope: Scope, send: Send) -> None:
    if scope["type"] == "websocket":
        await send({"type": "websocket.close", "code": 1008})
        return
    headers = [
        (b"content-type", b"text/plain; charset=utf-8"),
        (b"content-length", str(len(_REFUSAL)).encode()),
        (b"cache-control", b"no-store"),
        *_HEADERS,
    ]
    await send({"type": "http.response.start", "status": 421, "headers": headers})
    await send({"type": "http.response.body", "body": _REFUSAL})
