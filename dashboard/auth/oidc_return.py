"""Return the browser to the requested page after an OIDC sign-in.

Streamlit itself always returns to the first page. During the sign-in a ten-minute cookie holds the requested page.
"""

from __future__ import annotations

from collections.abc import Callable
from urllib.parse import quote, unquote

from starlette.datastructures import MutableHeaders
from starlette.requests import HTTPConnection
from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from producer_core.dashboard.auth.asgi import header_value, path_prefix, split_url
from producer_core.dashboard.auth.login import local_path

COOKIE = "producer_core_back"

_LOGIN_PATH, _CALLBACK_PATH = "/auth/login", "/oauth2callback"
_MAX_PAGE_LENGTH = 2000
_SECONDS = 600


class OidcReturn:
    """Remember the requested page before the sign-in and redirect to it afterwards. ASGI middleware."""

    def __init__(self, app: ASGIApp, *, base: str = "") -> None:
        self._app = app
        self._base = path_prefix(base)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        path = scope["path"].removeprefix(self._base) if scope["type"] == "http" else ""
        if path == _LOGIN_PATH and (page := _referring_page(HTTPConnection(scope))):
            send = self._remembering(send, page, secure=scope["scheme"] == "https")
        elif path == _CALLBACK_PATH and (page := _remembered_page(HTTPConnection(scope))):
            send = self._redirecting(send, page)
        await self._app(scope, receive, send)

    def _remembering(self, send: Send, page: str, *, secure: bool) -> Send:
        def remember(message: Message) -> None:
            self._add_cookie(message, quote(page, safe=""), seconds=_SECONDS, secure=secure)

        return _changing(send, remember)

    def _redirecting(self, send: Send, page: str) -> Send:
        def redirect(message: Message) -> None:
            if 300 <= message["status"] < 400:
                MutableHeaders(scope=message)["location"] = page
            self._add_cookie(message, "", seconds=0)

        return _changing(send, redirect)

    def _add_cookie(self, message: Message, value: str, *, seconds: int, secure: bool = False) -> None:
        cookie = Response()
        cookie.set_cookie(
            COOKIE,
            value,
            max_age=seconds,
            path=self._base or "/",
            secure=secure,
            httponly=True,
            samesite="lax",
        )
        MutableHeaders(scope=message).append("set-cookie", cookie.headers["set-cookie"])


def _changing(send: Send, change: Callable[[Message], None]) -> Send:
    """Return a `send` that changes the start of the response."""

    async def send_changed(message: Message) -> None:
        if message["type"] == "http.response.start":
            change(message)
        await send(message)

    return send_changed


def _referring_page(request: HTTPConnection) -> str:
    """Return the page of this dashboard from which the user started the sign-in.

    The result is empty if the referring page is on another server or the browser sends no Referer.
    """
    referer = split_url(header_value(request.headers, "referer"))
    if referer.netloc != header_value(request.headers, "host"):
        return ""
    return _valid_page(f"{referer.path}?{referer.query}" if referer.query else referer.path)


def _remembered_page(request: HTTPConnection) -> str:
    return _valid_page(unquote(request.cookies.get(COOKIE, "")))


def _valid_page(page: str) -> str:
    return local_path(page, "") if len(page) <= _MAX_PAGE_LENGTH and page.isascii() else ""
