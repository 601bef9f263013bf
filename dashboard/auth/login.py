"""The door: no page, no file and no connection of the dashboard without a session, where people sign in by password.

It stands before Streamlit (ASGI), so it also ends the connection of a page whose session is over.
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
from producer_core.dashboard.auth.asgi import App, Message, Receive, Scope, Send, rooted
from producer_core.dashboard.auth.sessions import LoginAttempts, LoginSessions, network

logger = logging.getLogger(__name__)

COOKIE = "producer_core_session"
SIGN_IN = "/sign-in"

_OPEN = ("/_stcore/health",)
"""Says only that the server is there."""

_LONGEST_FORM = 4096
_ASKING_AT_MOST = 32
_ASKING_FROM_ONE_PLACE = 2
_GRACE = 30.0
"""Seconds in which a page whose session has ended may still say so; then its connection is cut."""


class LoginMiddleware:
    """ASGI middleware."""

    def __init__(
        self,
        app: App,
        *,
        admission: AccessRules,
        sessions: LoginSessions,
        attempts: LoginAttempts,
        base: str = "",
    ) -> None:
        self._app = app
        self._admission = admission
        self._sessions = sessions
        self._attempts = attempts
        self._base = rooted(base)
        self._one_at_a_time = asyncio.Lock()  # a guess costs 32 MB
        self._asking: Counter[str] = Counter()  # by device, else by address

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] not in ("http", "websocket"):
            return await self._app(scope, receive, send)
        asked = _asked(scope)
        path = scope["path"].removeprefix(self._base)
        token = asked.token
        if scope["type"] == "http" and path == SIGN_IN:
            return await self._sign_in(scope, asked, receive, send)
        if path in _OPEN or self._sessions.name(token) is not None:
            return await self._app(scope, self._until_it_ends(token, receive), send)
        if scope["type"] == "websocket":
            return await send({"type": "websocket.close", "code": 1008})
        if scope["method"] == "GET" and "text/html" in asked.header("accept"):
            return await _redirect(send, self._asking_first(scope))
        return await _say(send, 401, "Sign in first.", kind="text/plain")

    def _asking_first(self, scope: Scope) -> str:
        """The address of the sign-in, which leads to the page asked for.

        Without a base path both are relative: a proxy may serve the dashboard below a path that it strips.
        """
        query = f"?{scope['query_string'].decode()}" if scope["query_string"] else ""
        path = quote(scope["path"])
        if self._base:
            return f"{self._base}{SIGN_IN}?next={quote(path + query, safe='')}"
        above = "../" * (path.count("/") - 1) or "./"
        return f"{above}{SIGN_IN[1:]}?next={quote(f'.{path}{query}', safe='')}"

    def _until_it_ends(self, token: str | None, receive: Receive) -> Receive:
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

    async def _sign_in(self, scope: Scope, asked: _LoginRequest, receive: Receive, send: Send) -> None:
        following = self._leading_to(asked.query("next"))
        if scope["method"] in ("GET", "HEAD"):
            if self._sessions.name(asked.token) is not None:
                return await _redirect(send, following)
            return await _say(send, 200, _page(following, ""))
        if scope["method"] != "POST" or not asked.from_here:
            return await _say(send, 403, "Not from the page of this dashboard.", kind="text/plain")
        form = await _form(receive)
        name, guess = form.get("name", "").strip()[:200], form.get("password", "")
        following = self._leading_to(form.get("next", ""))
        device = known_devices.known(asked.cookie(known_devices.COOKIE), name, self._kept(name))
        problem = await self._why_not(name, guess, asked.address, device)
        if problem is not None:
            return await _say(
                send, 429 if problem.startswith("Too many") else 401, _page(following, problem, name)
            )
        secure = scope["scheme"] == "https" or asked.header("origin").startswith("https:")
        # Without a Path the browser takes the folder of the sign-in, also below a path that a proxy strips.
        where = f"; HttpOnly; SameSite=Lax{'; Secure' if secure else ''}"
        remembered = f"{known_devices.COOKIE}={known_devices.issue(name, self._kept(name) or '')}{where}; Max-Age={known_devices.SECONDS}"
        session = f"{COOKIE}={self._sessions.begin(name)}{where}; Max-Age={self._admission.session:.0f}"
        return await _redirect(send, following, cookies=(remembered, session))

    def _leading_to(self, page: str) -> str:
        """The page after the sign-in; the first one where `page` is not on this server."""
        inside = page.startswith("./") and page.isprintable()
        return page if inside else local(page, f"{self._base or '.'}/")

    def _kept(self, name: str) -> str | None:
        return self._admission.passwords.get(name) if self._admission.sees(name) else None

    async def _why_not(self, name: str, guess: str, address: str, device: str) -> str | None:
        """Return None when it is the name's password; one guess is checked at a time.

        The line has few places for an address, so that one that repeats its attempts leaves room for the others.
        """
        if wait := self._attempts.wait(name, address, device):
            return f"Too many attempts. Wait {wait + 0.5:.0f} s."
        place = device or network(address)
        full = not device and self._asking.total() >= _ASKING_AT_MOST
        if full or self._asking[place] >= _ASKING_FROM_ONE_PLACE:
            return "Too many people try to sign in. Wait a few seconds."
        self._asking[place] += 1
        try:
            async with self._one_at_a_time:
                return await self._checked(name, guess, address, device)
        finally:
            self._asking -= Counter([place])

    async def _checked(self, name: str, guess: str, address: str, device: str) -> str | None:
        if wait := self._attempts.wait(name, address, device):
            return f"Too many attempts. Wait {wait + 0.5:.0f} s."
        if await asyncio.to_thread(password.right, guess, self._kept(name)):
            self._attempts.succeeded(name, address, device)
            logger.info("signed in", extra={"user": name, "address": address})
            return None
        self._attempts.failed(name, address, device)
        logger.warning("sign-in refused", extra={"user": name, "address": address})
        return "The name or the password is wrong."


class _LoginRequest(NamedTuple):
    """What a request says of itself."""

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
    def from_here(self) -> bool:
        """A form of another site could otherwise sign somebody in under a stranger's name."""
        if site := self.header("sec-fetch-site"):
            return site == "same-origin"
        return bool(self.header("origin")) and urlsplit(self.header("origin")).netloc == self.header("host")


def _asked(scope: Scope) -> _LoginRequest:
    headers: dict[str, str] = {}
    for raw_name, raw in scope["headers"]:
        name = raw_name.decode("latin-1").lower()
        together = "; " if name == "cookie" else ", "
        headers[name] = (
            f"{headers[name]}{together}{raw.decode('latin-1')}" if name in headers else raw.decode("latin-1")
        )
    client = scope.get("client")
    return _LoginRequest(
        headers, parse_qs(scope["query_string"].decode("latin-1")), client[0] if client else ""
    )


def local(path: str, otherwise: str) -> str:
    """Where to go on: only on this server."""
    good = path.startswith("/") and not path.startswith(("//", "/\\")) and path.isprintable()
    return path if good else otherwise


async def _form(receive: Receive) -> dict[str, str]:
    body, more = b"", True
    while more and len(body) <= _LONGEST_FORM:
        message = await receive()
        body += message.get("body", b"")
        more = message.get("more_body", False)
    if len(body) > _LONGEST_FORM:
        return {}
    return {name: values[0] for name, values in parse_qs(body.decode("latin-1")).items()}


async def _redirect(send: Send, path: str, *, cookies: tuple[str, ...] = ()) -> None:
    headers = [(b"location", path.encode("latin-1", "replace")), (b"cache-control", b"no-store")]
    headers += [(b"set-cookie", cookie.encode("latin-1")) for cookie in cookies]
    await send({"type": "http.response.start", "status": 303, "headers": headers})
    await send({"type": "http.response.body", "body": b""})


_POLICY = "default-src 'none'; style-src 'unsafe-inline'; form-action 'self'; frame-ancestors 'none'; base-uri 'none'"


async def _say(send: Send, status: int, text: str, *, kind: str = "text/html") -> None:
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


_STYLE = """
:root { color-scheme: light dark; font: 16px/1.5 "Source Sans", system-ui, sans-serif; }
body { margin: 0; min-height: 100vh; display: grid; place-items: center; background: light-dark(#f8fafc, #0e1117);
  color: light-dark(#1f2937, #fafafa); }
main { width: min(21rem, calc(100vw - 2rem)); box-sizing: border-box; padding: 1.6rem; border-radius: 10px;
  background: light-dark(#fff, #171b24); border: 1px solid light-dark(#e2e8f0, #2b3140); }
h1 { font-size: 1.15rem; font-weight: 650; margin: 0 0 1rem; }
label { display: block; font-size: 0.9rem; margin: 0.8rem 0 0.2rem; }
input { width: 100%; box-sizing: border-box; font: inherit; padding: 0.45rem 0.6rem; border-radius: 6px;
  border: 1px solid light-dark(#94a3b8, #4b5563); background: light-dark(#fff, #0e1117); color: inherit; }
button { width: 100%; margin-top: 1.2rem; padding: 0.55rem; font: inherit; font-weight: 600; border: 0; border-radius: 6px;
  background: #1d4ed8; color: #fff; cursor: pointer; }
:focus-visible { outline: 3px solid light-dark(#93c5fd, #60a5fa); outline-offset: 1px; }
.problem { margin: 0 0 0.4rem; padding: 0.5rem 0.7rem; border-left: 4px solid #dc2626; background: rgba(220, 38, 38, 0.12);
  border-radius: 0 6px 6px 0; font-size: 0.9rem; }
"""


def _page(following: str, problem: str, name: str = "") -> str:
    said = f'<p class="problem" role="alert">{html.escape(problem)}</p>' if problem else ""
    first, second = ("", "autofocus") if name else ("autofocus", "")
    return f"""<!doctype html>
<html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width, initial-scale=1">
<title>Sign in · producer_core</title><style>{_STYLE}</style></head>
<body><main><h1>producer_core dashboard</h1>{said}
<form method="post">
<input type="hidden" name="next" value="{html.escape(following)}">
<label for="name">Name</label>
<input id="name" name="name" value="{html.escape(name)}" autocomplete="username" required {first}>
<label for="password">Password</label>
<input id="password" name="password" type="password" autocomplete="current-password" required {second}>
<button type="submit">Sign in</button>
</form></main></body></html>"""
