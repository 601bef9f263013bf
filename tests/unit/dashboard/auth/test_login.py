"""Test the sign-in middleware with a browser that keeps cookies."""

from __future__ import annotations

import asyncio
from urllib.parse import parse_qs, urlencode, urljoin, urlsplit

import pytest

from producer_core.dashboard.auth import password
from producer_core.dashboard.auth.access_rules import AccessRules
from producer_core.dashboard.auth.known_devices import COOKIE as COOKIE_DEVICE
from producer_core.dashboard.auth.login import LoginMiddleware
from producer_core.dashboard.auth.sessions import COOKIE, LoginAttempts, LoginSessions
from tests.fixtures import sign_in as sign_in_fixtures
from tests.fixtures.sign_in import SECRET, Clock, Response

stored = sign_in_fixtures.stored


async def application(scope, receive, send):
    """Serve pages that contain their path, and a WebSocket that echoes."""
    if scope["type"] == "http":
        await send({"type": "http.response.start", "status": 200, "headers": []})
        return await send({"type": "http.response.body", "body": b"secret " + scope["path"].encode()})
    await send({"type": "websocket.accept"})
    while (message := await receive())["type"] != "websocket.disconnect":
        await send({"type": "websocket.send", "text": message.get("text", "")})
    return None


class Browser:
    """Send requests to the application behind the middleware, and keep the cookies of its responses."""

    def __init__(self, stored, *, length=3600.0, base="", **changes):
        self.clock = Clock(0.0)
        self.sessions = LoginSessions(length, clock=self.clock)
        rules = AccessRules(passwords={"ada": stored, "bob": stored}, session=length, **changes)
        self.middleware = LoginMiddleware(
            application,
            rules=rules,
            sessions=self.sessions,
            attempts=LoginAttempts(clock=self.clock),
            base=base,
        )
        self.cookie = ""

    def scope(self, kind, path, headers, **more):
        path, _, query = path.partition("?")
        headers = {"host": "dash.example", **({"cookie": self.cookie} if self.cookie else {}), **headers}
        return {
            "type": kind, "path": path, "query_string": query.encode(), "client": ("10.0.0.9", 4711), "scheme": "http",
            "headers": [
                (name.encode(), one.encode())
                for name, value in headers.items()
                for one in ([value] if isinstance(value, str) else value)
            ], **more,
        }  # fmt: skip

    def request(
        self,
        path,
        *,
        method="GET",
        body=b"",
        client=("10.0.0.9", 4711),
        scheme="http",
        receive=None,
        **headers,
    ):
        """Send a request. A tuple as the value of a header sends the header once for each item."""
        messages = []

        async def receive_body():
            return {"type": "http.request", "body": body, "more_body": False}

        async def send(message):
            messages.append(message)

        headers = {name.replace("_", "-"): value for name, value in headers.items()}
        asyncio.run(
            self.middleware(
                self.scope("http", path, headers, method=method, scheme=scheme, client=client),
                receive or receive_body,
                send,
            )
        )
        if not messages:
            return None
        response = Response(messages)
        if cookie := response.headers.get("set-cookie"):
            self.cookie = cookie.partition(";")[0]
            self.device = response.device.partition(";")[0]
        return response

    def page(self, path="/alerts"):
        return self.request(path, accept="text/html,*/*")

    def sign_in(
        self,
        name="ada",
        secret=SECRET,
        *,
        destination="/alerts",
        scheme="http",
        client=("10.0.0.9", 4711),
        **headers,
    ):
        body = urlencode({"name": name, "password": secret, "next": destination}).encode()
        headers = headers or {"origin": "http://dash.example"}
        return self.request("/sign-in", method="POST", body=body, scheme=scheme, client=client, **headers)

    def connection(self, *steps):
        """Send each text over a WebSocket and return the responses; a number advances the clock by that many seconds."""
        remaining, received = list(steps), []

        async def receive():
            while remaining:
                step = remaining.pop(0)
                if isinstance(step, str):
                    return {"type": "websocket.receive", "text": step}
                self.clock.now += step
            return {"type": "websocket.disconnect", "code": 1000}

        async def send(message):
            received.append(message.get("text") or message["type"])

        asyncio.run(self.middleware(self.scope("websocket", "/_stcore/stream", {}), receive, send))
        return received


@pytest.fixture
def browser(stored):
    return Browser(stored)


def test_a_page_redirects_to_the_sign_in_which_returns_to_the_page(browser):
    redirect = browser.page("/alerts?alert=abc&range=1+hour")
    assert redirect.status == 303
    form = browser.request(urljoin("/alerts", redirect.headers["location"]))
    assert 'value="./alerts?alert=abc&amp;range=1+hour"' in form.text
    assert "frame-ancestors 'none'" in form.headers["content-security-policy"]

    response = browser.sign_in(destination="./alerts?alert=abc&range=1+hour")
    assert (response.status, response.headers["location"]) == (303, "./alerts?alert=abc&range=1+hour")
    assert browser.page().text == "secret /alerts"
    assert browser.request("/sign-in").status == 303


def test_only_the_health_check_works_without_a_session(browser):
    assert browser.request("/_stcore/health").status == 200
    for path in ("/app/static/plotly.min.js", "/_stcore/host-config", "/media/x.csv", "/static/index.js"):
        assert browser.request(path).status == 401
    assert browser.request("/_stcore/upload_file/1/2", method="PUT").status == 401
    assert browser.request("/", method="POST", accept="text/html").status == 401
    assert browser.connection("hello") == ["websocket.close"]


def test_an_invalid_session_cookie_grants_no_access(browser):
    for cookie in (f"{COOKIE}=guessed", f"{COOKIE}=", "a=b; =;;", f"{COOKIE}=x; {COOKIE}=y", "\xff"):
        browser.cookie = cookie
        assert browser.page().status == 303


def test_both_cookies_of_a_sign_in_have_restrictive_attributes(browser):
    common = {"httponly": "true", "samesite": "lax"}  # without Path and Domain
    device = {"name": COOKIE_DEVICE, "max-age": str(180 * 86400), **common}
    session = {"name": COOKIE, "max-age": "3600", **common}

    assert browser.sign_in().cookies == [device, session]
    secure = {"secure": "true"}
    assert browser.sign_in(scheme="https").cookies == [device | secure, session | secure]


@pytest.mark.slow
@pytest.mark.parametrize(("name", "secret"), [("ada", "wrong horse battery"), ("eve", SECRET), ("", "")])
def test_an_unknown_name_and_a_wrong_password_get_the_same_response(browser, name, secret):
    refused = browser.sign_in(name, secret)

    assert refused.status == 401
    assert "Incorrect name or password." in refused.text
    assert "set-cookie" not in refused.headers
    assert browser.page().status == 303


@pytest.mark.slow
def test_the_sign_in_form_escapes_the_entered_values(browser):
    refused = browser.sign_in('"><script>alert(1)</script>', "x", destination='/"><script>alert(2)</script>')

    assert "<script>" not in refused.text


def test_a_cross_site_form_is_rejected(browser):
    assert browser.sign_in(origin="https://evil.example").status == 403
    assert browser.sign_in(origin="http://dash.example", sec_fetch_site="cross-site").status == 403
    assert browser.sign_in(referer="http://dash.example/").status == 403
    assert browser.sign_in(sec_fetch_site="same-origin").status == 303


@pytest.mark.parametrize(
    "headers",
    [
        {"origin": ("http://dash.example", "https://evil.example")},
        {"origin": "http://dash.example", "host": ("dash.example", "evil.example")},
        {"sec_fetch_site": ("same-origin", "cross-site")},
        {"origin": "null"},
        {"origin": "http://["},
        {"origin": "http://dash.example", "sec_fetch_site": "same-site"},
    ],
)
def test_a_form_with_contradictory_headers_is_rejected(browser, headers):
    assert browser.sign_in(**headers).status == 403


@pytest.mark.parametrize("method", ["PUT", "DELETE", "OPTIONS"])
def test_the_sign_in_accepts_forms_by_post_only(browser, method):
    body = urlencode({"name": "ada", "password": SECRET}).encode()

    assert browser.request("/sign-in", method=method, body=body, origin="http://dash.example").status == 403


@pytest.mark.parametrize(
    "destination",
    [
        "https://evil.example/",
        "//evil.example",
        "/\\evil.example",
        "",
        "javascript:alert(1)",
        "/a\r\nset-cookie: x=y",
        "./a\r\nset-cookie: x=y",
    ],
)
def test_the_sign_in_never_redirects_to_another_server(browser, destination):
    assert browser.sign_in(destination=destination).headers["location"] == "./"


@pytest.mark.parametrize(
    "relative", [".//evil.example", "./\\evil.example", "./https://evil.example", "./../../x"]
)
def test_a_relative_destination_resolves_to_this_server(browser, relative):
    to = browser.sign_in(destination=relative).headers["location"].replace("\\", "/")  # as browsers parse it

    assert urljoin("https://dash.example/sign-in", to).startswith("https://dash.example/")


@pytest.mark.slow
def test_after_three_failures_even_the_correct_password_waits(browser):
    for _ in range(3):
        assert browser.sign_in(secret="wrong horse battery").status == 401

    assert browser.sign_in().status == 429
    assert "Wait" in browser.sign_in().text
    browser.clock.now += 1.0
    assert browser.sign_in().status == 303


@pytest.mark.slow
def test_a_client_cannot_choose_its_address_by_a_header(browser):
    """Only the server knows the trusted proxies; the middleware takes the address that the server passes on."""
    forged = {"origin": "http://dash.example"}
    for number in range(3):
        browser.sign_in(f"unknown-{number}", "x", x_forwarded_for=f"10.0.1.{number}", **forged)

    assert (
        browser.sign_in("unknown", "x", x_forwarded_for="10.0.1.9", forwarded="for=10.0.1.9", **forged).status
        == 429
    )
    assert browser.sign_in("unknown", "x", client=("10.0.0.8", 4711)).status == 401


@pytest.mark.slow
def test_repeated_attempts_do_not_lock_out_another_address_or_a_known_device(browser):
    browser.sign_in()
    device, browser.cookie = browser.device, ""
    for _ in range(30):
        browser.sign_in(secret="wrong horse battery")
    assert browser.sign_in().status == 429

    assert browser.sign_in(client=("10.0.0.8", 4711)).status == 303  # from another address
    browser.cookie = device
    assert browser.sign_in().status == 303  # from the same address, in a browser that signed in before


def test_concurrent_attempts_of_one_address_leave_room_for_others(browser, monkeypatch):
    """Ten connections fill the queue of their address, and another address is still served."""
    from producer_core.dashboard.auth import login

    monkeypatch.setattr(login.password, "verify", lambda entered, stored: entered == SECRET)

    async def all_at_once():
        attempts = [browser.middleware._problem("ada", "wrong", "10.0.0.9", "") for _ in range(10)]
        return await asyncio.gather(*attempts, browser.middleware._problem("ada", SECRET, "10.0.0.8", ""))

    *rejected, other = asyncio.run(all_at_once())
    assert other is None
    assert sum("Too many users" in one for one in rejected) == 8


@pytest.mark.slow
def test_a_known_device_is_delayed_as_well_and_counts_for_its_own_name_only(browser):
    browser.sign_in("bob")
    browser.cookie = browser.device
    for _ in range(3):
        assert browser.sign_in("ada", secret="wrong horse battery").status == 401
    assert browser.sign_in("ada").status == 429

    for _ in range(3):
        assert browser.sign_in("bob", secret="wrong horse battery").status == 401
    assert browser.sign_in("bob").status == 429


@pytest.mark.parametrize("forged", ["", "x", "x.y", ".", "é.é"])
def test_a_forged_device_cookie_has_no_effect(browser, forged):
    browser.cookie = f"{COOKIE_DEVICE}={forged}"
    for _ in range(3):
        browser.sign_in(secret="wrong horse battery")

    assert browser.sign_in().status == 429


def test_cookies_are_secure_behind_a_proxy_that_terminates_https(browser):
    response = browser.sign_in(origin="https://dash.example")

    assert "Secure" in response.headers["set-cookie"] and "Secure" in response.device


@pytest.mark.slow
def test_an_oversized_form_is_rejected(browser):
    assert browser.sign_in(secret="x" * 100_000).status == 401


@pytest.mark.slow
def test_an_endless_form_is_read_up_to_its_limit_only(browser):
    received = []

    async def receive():
        received.append(1000)
        assert len(received) < 100, "the form is read without a limit"
        return {"type": "http.request", "body": b"x" * 1000, "more_body": True}

    refused = browser.request("/sign-in", method="POST", receive=receive, origin="http://dash.example")
    assert refused.status == 401
    assert sum(received) <= 5000


def test_a_form_that_the_browser_did_not_finish_is_not_checked(browser, monkeypatch):
    body = urlencode({"name": "ada", "password": SECRET}).encode()
    messages = [{"type": "http.disconnect"}, {"type": "http.request", "body": body, "more_body": True}]
    monkeypatch.setattr(password, "verify", lambda *_: pytest.fail("checked"))

    async def receive():
        return messages.pop()

    refused = browser.request("/sign-in", method="POST", receive=receive, origin="http://dash.example")
    assert refused.status == 400 and refused.cookies == []


@pytest.mark.parametrize("other", ['theme={"dark":1}', "a=b c", "é=1", 'quoted="x', "a=b=c", "flag"])
def test_a_malformed_cookie_of_another_application_does_not_hide_the_session(browser, other):
    browser.sign_in()
    browser.cookie = f"{other}; {browser.cookie}"

    assert browser.page().status == 200


def test_a_form_of_another_site_is_rejected_before_it_is_read(browser):
    async def receive():
        raise AssertionError("read")

    assert (
        browser.request("/sign-in", method="POST", receive=receive, origin="http://evil.example").status
        == 403
    )


def test_the_sign_in_page_is_not_framed_cached_or_sniffed(browser):
    for response in (browser.request("/sign-in"), browser.sign_in(secret="x"), browser.request("/x")):
        headers = response.headers
        policy = headers["content-security-policy"].split("; ")
        assert {
            "default-src 'none'",
            "form-action 'self'",
            "frame-ancestors 'none'",
            "base-uri 'none'",
        } < set(policy)
        assert headers["x-frame-options"] == "DENY" and headers["cache-control"] == "no-store"
        assert headers["x-content-type-options"] == "nosniff" and headers["referrer-policy"] == "no-referrer"
        assert headers["content-type"].endswith("; charset=utf-8")


def test_no_redirect_is_cached(browser):
    for response in (browser.page(), browser.sign_in(), browser.request("/sign-in")):
        assert (response.status, response.headers["cache-control"]) == (303, "no-store")


def test_an_open_connection_closes_after_the_session_ends(browser, monkeypatch):
    monkeypatch.setattr("producer_core.dashboard.auth.login.time.monotonic", browser.clock)
    browser.sign_in()

    received = browser.connection("live", 3600.0, "within the grace period", 31.0, "too late", "too late")

    assert received == ["websocket.accept", "live", "within the grace period"]


@pytest.mark.slow
def test_a_user_outside_may_see_cannot_sign_in_by_password(stored):
    assert Browser(stored, may_see=("bob",)).sign_in("ada").status == 401


def test_the_sign_in_stays_below_the_base_path(stored):
    browser = Browser(stored, base="/proxy/8501/")

    redirect = browser.page("/proxy/8501/alerts")
    assert redirect.headers["location"] == "/proxy/8501/sign-in?next=%2Fproxy%2F8501%2Falerts"
    assert browser.request("/proxy/8501/sign-in").status == 200


@pytest.mark.parametrize("page", ["/", "/alerts", "/alerts?show=Rules", "/alerts/", "/a/b"])
def test_the_sign_in_and_its_destination_stay_below_a_path_that_a_proxy_strips(browser, page):
    seen = f"https://dash.example/kafka{page}"

    form = urljoin(seen, browser.page(page).headers["location"])
    assert form.startswith("https://dash.example/kafka/sign-in?next=")
    response = browser.sign_in(destination=parse_qs(urlsplit(form).query)["next"][0])
    assert urljoin(form, response.headers["location"]) == seen
    assert "Path=" not in response.headers["set-cookie"] + response.device  # so the browser uses /kafka


def test_sign_ins_are_logged_with_the_address_and_a_printable_name(browser, caplog):
    caplog.set_level("INFO")
    browser.sign_in()
    browser.sign_in(name="eve\x1b[2J, address=1.2.3.4")

    assert caplog.messages[-2] == "signed in: address=10.0.0.9, user=ada"
    assert caplog.messages[-1].startswith("sign-in refused: address=10.0.0.9, user='eve\\x1b[2J")
