"""Require a session for every page, file and connection of the dashboard, and serve the sign-in form for passwords.

The middleware runs before Streamlit (ASGI), so it also closes the WebSocket of a page whose session has ended.
"""

from __future__ import annotations

import asyncio
import html
import logging
import time
from collections import Counter
from http.cookies import CookieError, SimpleCookie
from typing import NamedTuple
from urllib.parse import parse_qs, quote, urlsplit

from producer_core.dashboard.auth import known_devices, password
from producer_core.dashboard.auth.access_rules import AccessRules
from producer_core.dashboard.auth.asgi import App, Message, Receive, Scope, Send, path_prefix
from producer_core.dashboard.auth.sessions import COOKIE, LoginAttempts, LoginSessions, network
from producer_core.dashboard.theme import asset

logger = logging.getLogger(__name__)

SIGN_IN = "/sign-in"

_PUBLIC_PATHS = ("/_stcore/health",)
"""Reports only that the server is running."""

_MAX_FORM_BYTES = 4096
_MAX_QUEUED = 32
_MAX_QUEUED_PER_CLIENT = 2
_GRACE = 30.0
"""Seconds in which a page whose session has ended can still show that; then the server closes its connection."""


class LoginMiddleware:
    """Reject every request without a session, except the sign-in itself. ASGI middleware."""

    def __init__(
        self,
        app: App,
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
        request = _parse(scope)
        path = scope["path"].removeprefix(self._base)
        token = request.token
        if scope["type"] == "http" and path == SIGN_IN:
            return await self._sign_in(scope, request, receive, send)
        if path in _PUBLIC_PATHS or self._sessions.name(token) is not None:
            return await self._app(scope, self._receive_until_session_ends(token, receive), send)
        if scope["type"] == "websocket":
            return await send({"type": "websocket.close", "code": 1008})
        if scope["method"] == "GET" and "text/html" in request.header("accept"):
            return await _redirect(send, self._sign_in_url(scope))
        return await _respond(send, 401, "Sign in first.", kind="text/plain")

    def _sign_in_url(self, scope: Scope) -> str:
        """Return the address of the sign-in form, with the requested page as its destination.

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

    async def _sign_in(self, scope: Scope, request: _LoginRequest, receive: Receive, send: Send) -> None:
        destination = self._destination(request.query("next"))
        if scope["method"] in ("GET", "HEAD"):
            if self._sessions.name(request.token) is not None:
                return await _redirect(send, destination)
            return await _respond(send, 200, _form_page(destination, ""))
        if scope["method"] != "POST" or not request.same_origin:
            return await _respond(
                send, 403, "The request does not come from this dashboard.", kind="text/plain"
            )
        form = await _read_form(receive)
        name, entered = form.get("name", "").strip()[:200], form.get("password", "")
        destination = self._destination(form.get("next", ""))
        device = known_devices.known(request.cookie(known_devices.COOKIE), name, self._password_hash(name))
        problem = await self._problem(name, entered, request.address, device)
        if problem is not None:
            return await _respond(
                send, 429 if problem.startswith("Too many") else 401, _form_page(destination, problem, name)
            )
        secure = scope["scheme"] == "https" or request.header("origin").startswith("https:")
        # Without Path the browser uses the folder of the sign-in page, which is correct below a stripped path as well.
        attributes = f"; HttpOnly; SameSite=Lax{'; Secure' if secure else ''}"
        device_value = known_devices.issue(name, self._password_hash(name) or "")
        device_cookie = f"{known_devices.COOKIE}={device_value}{attributes}; Max-Age={known_devices.SECONDS}"
        session_cookie = (
            f"{COOKIE}={self._sessions.begin(name)}{attributes}; Max-Age={self._rules.session:.0f}"
        )
        return await _redirect(send, destination, cookies=(device_cookie, session_cookie))

    def _destination(self, page: str) -> str:
        """Return the page to open after the sign-in; the first page if `page` is not on this server."""
        relative = page.startswith("./") and page.isprintable()
        return page if relative else local_path(page, f"{self._base or '.'}/")

    def _password_hash(self, name: str) -> str | None:
        return self._rules.passwords.get(name) if self._rules.can_view(name) else None

    async def _problem(self, name: str, entered: str, address: str, device: str) -> str | None:
        """Check the password and return why the sign-in fails; None if it succeeds.

        One password is checked at a time. The queue admits few requests of one address, so that a client that repeats
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
            logger.info("signed in", extra={"user": name, "address": address})
            return None
        self._attempts.failed(name, address, device)
        logger.warning("sign-in refused", extra={"user": name, "address": address})
        return "The name or the password is wrong."


class _LoginRequest(NamedTuple):
    """The headers, query parameters and client address of a request."""

    headers: dict[str, str]
    params: dict[str, list[str]]
    address: str

    def header(self, name: str) -> str:
        return self.headers.get(name, "")

    def query(self, name: str) -> str:
        return self.params.get(name, [""])[0]

    @property
    def token(self) -> str | None:
        return self.cookie(COOKIE) or None

    def cookie(self, name: str) -> str:
        try:
            found = SimpleCookie(self.header("cookie")).get(name)
        except CookieError:
            return ""
        return found.value if found is not None else ""

    @property
    def same_origin(self) -> bool:
        """Return whether the form was sent by a page of this server; another site must not sign a user in."""
        if site := self.header("sec-fetch-site"):
            return site == "same-origin"
        return bool(self.header("origin")) and urlsplit(self.header("origin")).netloc == self.header("host")


def _parse(scope: Scope) -> _LoginRequest:
    headers: dict[str, str] = {}
    for raw_name, raw in scope["headers"]:
        name = raw_name.decode("latin-1").lower()
        separator = "; " if name == "cookie" else ", "
        headers[name] = (
            f"{headers[name]}{separator}{raw.decode('latin-1')}" if name in headers else raw.decode("latin-1")
        )
    client = scope.get("client")
    return _LoginRequest(
        headers, parse_qs(scope["query_string"].decode("latin-1")), client[0] if client else ""
    )


def local_path(path: str, default: str) -> str:
    """Return the path if it is an absolute path on this server, and `default` otherwise."""
    is_local = path.startswith("/") and not path.startswith(("//", "/\\")) and path.isprintable()
    return path if is_local else default


async def _read_form(receive: Receive) -> dict[str, str]:
    body, more = b"", True
    while more and len(body) <= _MAX_FORM_BYTES:
        message = await receive()
        body += message.get("body", b"")
        more = message.get("more_body", False)
    if len(body) > _MAX_FORM_BYTES:
        return {}
    return {name: values[0] for name, values in parse_qs(body.decode("latin-1")).items()}


async def _redirect(send: Send, path: str, *, cookies: tuple[str, ...] = ()) -> None:
    headers = [(b"location", path.encode("latin-1", "replace")), (b"cache-control", b"no-store")]
    headers += [(b"set-cookie", cookie.encode("latin-1")) for cookie in cookies]
    await send({"type": "http.response.start", "status": 303, "headers": headers})
    await send({"type": "http.response.body", "body": b""})


_POLICY = "default-src 'none'; style-src 'unsafe-inline'; form-action 'self'; frame-ancestors 'none'; base-uri 'none'"


async def _respond(send: Send, status: int, text: str, *, kind: str = "text/html") -> None:
    headers = [
        (b"content-type", f"{kind}; charset=utf-8".encode()),
        (b"cache-control", b"no-store"),
        (b"content-security-policy", _POLICY.encode()),
        (b"x-frame-options", b"DENY"),
        (b"referrer-policy", b"no-referrer"),
        (b"x-content-type-options", b"nosniff"),
    ]
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": text.encode()})


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
