"""The way back: who signs in by OIDC comes out on the page that he asked for, not on the first one.

Streamlit always leads to the first page. The address is kept in a cookie of ten minutes while the provider asks.
"""

from __future__ import annotations

from http.cookies import CookieError, SimpleCookie
from urllib.parse import quote, unquote, urlsplit

from producer_core.dashboard.auth.asgi import App, Message, Receive, Scope, Send, rooted
from producer_core.dashboard.auth.login import local

COOKIE = "producer_core_back"

_LEAVES, _RETURNS = "/auth/login", "/oauth2callback"
_LONGEST = 2000
_SECONDS = 600


class OidcReturn:
    """ASGI middleware; it changes nothing but where a sign-in begins and ends."""

    def __init__(self, app: App, *, base: str = "") -> None:
        self._app = app
        self._base = rooted(base)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        path = scope["path"].removeprefix(self._base) if scope["type"] == "http" else ""
        if path == _LEAVES and (page := _asked_on(scope)):
            await self._app(scope, receive, self._keeping(send, page, secure=scope["scheme"] == "https"))
        elif path == _RETURNS and (page := _kept(scope)):
            await self._app(scope, receive, self._leading(send, page))
        else:
            await self._app(scope, receive, send)

    def _keeping(self, send: Send, page: str, *, secure: bool) -> Send:
        cookie = f"{COOKIE}={quote(page, safe='')}; {self._where}; Max-Age={_SECONDS}{'; Secure' if secure else ''}"

        async def keeping(message: Message) -> None:
            await send(_with(message, (b"set-cookie", cookie.encode("latin-1"))))

        return keeping

    def _leading(self, send: Send, page: str) -> Send:
        over = f"{COOKIE}=; {self._where}; Max-Age=0"

        async def leading(message: Message) -> None:
            if message["type"] == "http.response.start" and 300 <= message["status"] < 400:
                others = [pair for pair in message["headers"] if pair[0].lower() != b"location"]
                message = {**message, "headers": [*others, (b"location", page.encode("latin-1"))]}
            await send(_with(message, (b"set-cookie", over.encode("latin-1"))))

        return leading

    @property
    def _where(self) -> str:
        return f"Path={self._base or '/'}; HttpOnly; SameSite=Lax"


def _with(message: Message, header: tuple[bytes, bytes]) -> Message:
    if message["type"] != "http.response.start":
        return message
    return {**message, "headers": [*message["headers"], header]}


def _asked_on(scope: Scope) -> str:
    """The page of ours from which somebody went to sign in; empty where it is another's, or no browser says."""
    came = urlsplit(_header(scope, b"referer"))
    if came.netloc != _header(scope, b"host"):
        return ""
    return _ours(f"{came.path}?{came.query}" if came.query else came.path)


def _kept(scope: Scope) -> str:
    try:
        found = SimpleCookie(_header(scope, b"cookie")).get(COOKIE)
    except CookieError:
        return ""
    return _ours(unquote(found.value)) if found is not None else ""


def _ours(page: str) -> str:
    return local(page, "") if len(page) <= _LONGEST and page.isascii() else ""


def _header(scope: Scope, name: bytes) -> str:
    values = [value.decode("latin-1") for found, value in scope["headers"] if found.lower() == name]
    return "; ".join(values)
