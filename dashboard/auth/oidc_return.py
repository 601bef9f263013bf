"""Return the browser to the requested page after an OIDC sign-in.

Streamlit itself always returns to the first page. During the sign-in a cookie of ten minutes holds the requested page.
"""

from __future__ import annotations

from http.cookies import CookieError, SimpleCookie
from urllib.parse import quote, unquote, urlsplit

from producer_core.dashboard.auth.asgi import App, Message, Receive, Scope, Send, path_prefix
from producer_core.dashboard.auth.login import local_path

COOKIE = "producer_core_back"

_LOGIN_PATH, _CALLBACK_PATH = "/auth/login", "/oauth2callback"
_MAX_PAGE_LENGTH = 2000
_SECONDS = 600


class OidcReturn:
    """Remember the requested page before the sign-in and redirect to it afterwards. ASGI middleware."""

    def __init__(self, app: App, *, base: str = "") -> None:
        self._app = app
        self._base = path_prefix(base)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        path = scope["path"].removeprefix(self._base) if scope["type"] == "http" else ""
        if path == _LOGIN_PATH and (page := _referring_page(scope)):
            await self._app(
                scope, receive, self._setting_cookie(send, page, secure=scope["scheme"] == "https")
            )
        elif path == _CALLBACK_PATH and (page := _remembered_page(scope)):
            await self._app(scope, receive, self._redirecting(send, page))
        else:
            await self._app(scope, receive, send)

    def _setting_cookie(self, send: Send, page: str, *, secure: bool) -> Send:
        value = (
            f"{quote(page, safe='')}; {self._attributes}; Max-Age={_SECONDS}{'; Secure' if secure else ''}"
        )

        async def send_with_cookie(message: Message) -> None:
            await send(_with_header(message, (b"set-cookie", f"{COOKIE}={value}".encode("latin-1"))))

        return send_with_cookie

    def _redirecting(self, send: Send, page: str) -> Send:
        deletion = f"{COOKIE}=; {self._attributes}; Max-Age=0"

        async def send_redirect(message: Message) -> None:
            if message["type"] == "http.response.start" and 300 <= message["status"] < 400:
                others = [pair for pair in message["headers"] if pair[0].lower() != b"location"]
                message = {**message, "headers": [*others, (b"location", page.encode("latin-1"))]}
            await send(_with_header(message, (b"set-cookie", deletion.encode("latin-1"))))

        return send_redirect

    @property
    def _attributes(self) -> str:
        return f"Path={self._base or '/'}; HttpOnly; SameSite=Lax"


def _with_header(message: Message, header: tuple[bytes, bytes]) -> Message:
    if message["type"] != "http.response.start":
        return message
    return {**message, "headers": [*message["headers"], header]}


def _referring_page(scope: Scope) -> str:
    """Return the page of this dashboard from which the user started the sign-in.

    The result is empty if the referring page is on another server or the browser sends no Referer.
    """
    referer = urlsplit(_header(scope, b"referer"))
    if referer.netloc != _header(scope, b"host"):
        return ""
    return _valid_page(f"{referer.path}?{referer.query}" if referer.query else referer.path)


def _remembered_page(scope: Scope) -> str:
    try:
        found = SimpleCookie(_header(scope, b"cookie")).get(COOKIE)
    except CookieError:
        return ""
    return _valid_page(unquote(found.value)) if found is not None else ""


def _valid_page(page: str) -> str:
    return local_path(page, "") if len(page) <= _MAX_PAGE_LENGTH and page.isascii() else ""


def _header(scope: Scope, name: bytes) -> str:
    values = [value.decode("latin-1") for found, value in scope["headers"] if found.lower() == name]
    return "; ".join(values)
