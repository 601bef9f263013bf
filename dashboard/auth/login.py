"""Require a session for every page, file and connection of the dashboard, and serve the sign-in form for passwords.

The middleware runs before Streamlit (ASGI), so it also closes the WebSocket of a page whose session has ended.
"""

from __future__ import annotations

import asyncio
import html
import logging
import time
from collections import Counter
from urllib.parse import quote

from starlette.datastructures import QueryParams
from starlette.requests import ClientDisconnect, HTTPConnection, Request
from starlette.responses import HTMLResponse, PlainTextResponse, RedirectResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send
from starlette.websockets import WebSocketClose

from producer_core._internal.log_fields import with_fields
from producer_core.dashboard.auth import known_devices, password
from producer_core.dashboard.auth.access_rules import AccessRules
from producer_core.dashboard.auth.asgi import header_value, path_prefix, split_url
from producer_core.dashboard.auth.sessions import COOKIE, LoginAttempts, LoginSessions, network
from producer_core.dashboard.theme import asset

logger = logging.getLogger(__name__)

SIGN_IN = "/sign-in"

_PUBLIC_PATHS = ("/_stcore/health",)
"""Reports only that the server is running."""

_HEADERS = {
    "cache-control": "no-store",
    "content-security-policy": (
        "default-src 'none'; style-src 'unsafe-inline'; form-action 'self'; frame-ancestors 'none'; base-uri 'none'"
    ),
    "x-frame-options": "DENY",
    "referrer-policy": "no-referrer",
    "x-content-type-options": "nosniff",
}

_MAX_FORM_BYTES = 4096
_MAX_QUEUED = 32
_MAX_QUEUED_PER_CLIENT = 2
_GRACE = 30.0
_MAX_LOGGED = 100
"""Characters of an entered name in the log."""
"""Seconds in which a page whose session has ended can still show that; then the server closes its connection."""


class LoginMiddleware:
    """Reject every request without a session, except the sign-in itself. ASGI middleware."""

    def __init__(
        self,
        app: ASGIApp,
        *,
        rules: AccessRules,
        sessions: LoginSessions,
        attempts: LoginAttempts,
        base: str = "",
    ) -> None:
        self._app = app
        self._rules = rules
        self._sessions = sessions
        self._attempts = attempts
        self._base = path_prefix(base)
        self._one_at_a_time = asyncio.Lock()  # each check takes 32 MB
        self._queued: Counter[str] = Counter()  # by device, else by address

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] not in ("http", "websocket"):
            return await self._app(scope, receive, send)
        path = scope["path"].removeprefix(self._base)
        if scope["type"] == "http" and path == SIGN_IN:
            response = await self._sign_in(Request(scope, receive))
            return await response(scope, receive, send)
        token = HTTPConnection(scope).cookies.get(COOKIE)
        if path in _PUBLIC_PATHS or self._sessions.name(token) is not None:
            return await self._app(scope, self._receive_until_session_ends(token, receive), send)
        if scope["type"] == "websocket":
            return await WebSocketClose(1008)(scope, receive, send)
        return await self._rejection(Request(scope))(scope, receive, send)

    def _rejection(self, request: Request) -> Response:
        """Return the response without a session: a redirect to the sign-in for a page, an error for all others."""
        if request.method == "GET" and "text/html" in header_value(request.headers, "accept"):
            return _redirect(self._sign_in_url(request.scope))
        return PlainTextResponse("Sign in first.", 401, _HEADERS)

    def _sign_in_url(self, scope: Scope) -> str:
        """Return the URL of the sign-in form, with the requested page as its destination.

        Without a base path both are relative, because a proxy may serve the dashboard below a path that it strips.
        """
        query = f"?{scope['query_string'].decode()}" if scope["query_string"] else ""
        path = quote(scope["path"])
        if self._base:
            return f"{self._base}{SIGN_IN}?next={quote(path + query, safe='')}"
        above = "../" * (path.count("/") - 1) or "./"
        return f"{above}{SIGN_IN[1:]}?next={quote(f'.{path}{query}', safe='')}"

    def _receive_until_session_ends(self, token: str | None, receive: Receive) -> Receive:
        ended_at: float | None = None

        async def receive_while_signed_in() -> Message:
            nonlocal ended_at
            message = await receive()
            if message["type"] != "websocket.receive" or self._sessions.name(token) is not None:
                return message
            ended_at = ended_at if ended_at is not None else time.monotonic()
            if time.monotonic() - ended_at > _GRACE:
                return {"type": "websocket.disconnect", "code": 1008}
            return message

        return receive_while_signed_in

    async def _sign_in(self, request: Request) -> Response:
        destination = self._destination(request.query_params.get("next", ""))
        if request.method in ("GET", "HEAD"):
            if self._sessions.name(request.cookies.get(COOKIE)) is not None:
                return _redirect(destination)
            return HTMLResponse(_form_page(destination, ""), headers=_HEADERS)
        if request.method != "POST" or not _is_same_origin(request):
            return PlainTextResponse("The request did not come from this dashboard.", 403, _HEADERS)
        try:
            form = await _read_form(request)
        except ClientDisconnect:
            return PlainTextResponse("The form is incomplete.", 400, _HEADERS)
        name, entered = form.get("name", "").strip()[:200], form.get("password", "")
        destination = self._destination(form.get("next", ""))
        device = known_devices.known(
            request.cookies.get(known_devices.COOKIE, ""), name, self._password_hash(name)
        )
        problem = await self._problem(name, entered, request.client.host if request.client else "", device)
        if problem is not None:
            status = 429 if problem.startswith("Too many") else 401
            return HTMLResponse(_form_page(destination, problem, name), status, _HEADERS)
        return self._signed_in(request, name, destination)

    def _signed_in(self, request: Request, name: str, destination: str) -> Response:
        """Return the redirect to the destination, with the cookies of the device and of a new session."""
        response = _redirect(destination)
        secure = request["scheme"] == "https" or header_value(request.headers, "origin").startswith("https:")
        device = known_devices.issue(name, self._password_hash(name) or "")
        for cookie, value, seconds in (
            (known_devices.COOKIE, device, known_devices.SECONDS),
            (COOKIE, self._sessions.begin(name), round(self._rules.session)),
        ):
            # Without Path the browser uses the folder of the sign-in page, which is correct below a stripped path as well.
            response.set_cookie(
                cookie, value, max_age=seconds, path=None, secure=secure, httponly=True, samesite="lax"
            )
        return response

    def _destination(self, page: str) -> str:
        """Return the page to open after the sign-in; the first page if `page` is not on this server."""
        relative = page.startswith("./") and page.isprintable()
        return page if relative else local_path(page, f"{self._base or '.'}/")

    def _password_hash(self, name: str) -> str | None:
        return self._rules.passwords.get(name) if self._rules.can_view(name) else None

    async def _problem(self, name: str, entered: str, address: str, device: str) -> str | None:
        """Check the password and return why the sign-in fails; None if it succeeds.

        One password is checked at a time. The queue admits few requests from one address, so that a client that repeats
        its attempts leaves room for others.
        """
        if wait := self._attempts.wait(name, address, device):
            return f"Too many attempts. Wait {wait + 0.5:.0f} s."
        client = device or network(address)
        full = not device and self._queued.total() >= _MAX_QUEUED
        if full or self._queued[client] >= _MAX_QUEUED_PER_CLIENT:
            return "Too many users are signing in. Wait a few seconds."
        self._queued[client] += 1
        try:
            async with self._one_at_a_time:
                return await self._check(name, entered, address, device)
        finally:
            self._queued -= Counter([client])

    async def _check(self, name: str, entered: str, address: str, device: str) -> str | None:
        if wait := self._attempts.wait(name, address, device):
            return f"Too many attempts. Wait {wait + 0.5:.0f} s."
        if await asyncio.to_thread(password.verify, entered, self._password_hash(name)):
            self._attempts.succeeded(name, address, device)
            logger.info(**with_fields("signed in", address=address, user=_printable(name)))
            return None
        self._attempts.failed(name, address, device)
        logger.warning(**with_fields("sign-in refused", address=address, user=_printable(name)))
        return "Incorrect name or password."


def _printable(name: str) -> str:
    """Return the start of an entered name without control characters, because a log line is shown in a terminal."""
    name = name[:_MAX_LOGGED]
    return name if name.isprintable() else ascii(name)


def _is_same_origin(request: Request) -> bool:
    """Return whether the form was sent by a page of this server; another site must not sign a user in."""
    if site := header_value(request.headers, "sec-fetch-site"):
        return site == "same-origin"
    origin = header_value(request.headers, "origin")
    return bool(origin) and split_url(origin).netloc == header_value(request.headers, "host")


def local_path(path: str, default: str) -> str:
    """Return the path if it is an absolute path on this server, and `default` otherwise."""
    is_local = path.startswith("/") and not path.startswith(("//", "/\\")) and path.isprintable()
    return path if is_local else default


async def _read_form(request: Request) -> QueryParams:
    """Return the fields of the form; none if it is too long. `Request.form` would read the whole body."""
    body = b""
    async for chunk in request.stream():
        body += chunk
        if len(body) > _MAX_FORM_BYTES:
            return QueryParams()
    return QueryParams(body)


def _redirect(address: str) -> RedirectResponse:
    return RedirectResponse(address, 303, {"cache-control": "no-store"})


def _form_page(destination: str, problem: str, name: str = "") -> str:
    alert = f'<p class="problem" role="alert">{html.escape(problem)}</p>' if problem else ""
    name_focus, password_focus = ("", "autofocus") if name else ("autofocus", "")
    return f"""<!doctype html>
<html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width, initial-scale=1">
<title>Sign in · producer_core</title><style>{asset("auth/login.css")}</style></head>
<body><main><h1>producer_core dashboard</h1>{alert}
<form method="post">
<input type="hidden" name="next" value="{html.escape(destination)}">
<label for="name">Name</label>
<input id="name" name="name" value="{html.escape(name)}" autocomplete="username" required {name_focus}>
<label for="password">Password</label>
<input id="password" name="password" type="password" autocomplete="current-password" required {password_focus}>
<button type="submit">Sign in</button>
</form></main></body></html>"""
