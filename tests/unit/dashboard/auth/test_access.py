"""Test the access control of the dashboard: passwords, sessions, attempts, the sign-in middleware and actions."""

from __future__ import annotations

import asyncio
import hmac
import tomllib
from http.cookies import SimpleCookie
from types import SimpleNamespace
from urllib.parse import parse_qs, urlencode, urljoin, urlsplit

import pytest
from click.testing import CliRunner

from producer_core.alerts import AlertLog, alert, follow
from producer_core.cli import main
from producer_core.dashboard import actions
from producer_core.dashboard.auth import access, access_rules, known_devices, password
from producer_core.dashboard.auth.access_rules import AccessRules
from producer_core.dashboard.auth.known_devices import COOKIE as COOKIE_DEVICE
from producer_core.dashboard.auth.login import LoginMiddleware
from producer_core.dashboard.auth.oidc_return import COOKIE as COOKIE_BACK
from producer_core.dashboard.auth.oidc_return import OidcReturn
from producer_core.dashboard.auth.sessions import COOKIE, LoginAttempts, LoginSessions
from producer_core.errors import ConfigError
from tests.support import ROOT

SECRET = "correct horse battery"
OIDC = f"""
[dashboard]
may_see = ["*@example.com"]
[auth]
redirect_uri = "https://dash.example/oauth2callback"
cookie_secret = "{"k" * 32}"
client_id = "c"
client_secret = "s"
server_metadata_url = "https://login.example.com/.well-known/openid-configuration"
"""


class Clock:
    def __init__(self, now):
        self.now = now

    def __call__(self):
        return self.now


@pytest.fixture(scope="module")
def stored():
    """Return the hash of SECRET with the lowest accepted cost."""
    patch = pytest.MonkeyPatch()
    patch.setattr(password, "_LOG_N", 14)
    patch.setattr(password, "_P", 1)
    yield password.hashed(SECRET)
    patch.undo()


@pytest.fixture(autouse=True)
def _no_sign_in_survives(monkeypatch):
    monkeypatch.setattr(access, "_guards", [access.AccessGuard()])


# passwords


def test_a_password_hash_is_salted_and_verifies_its_password(stored):
    assert password.verify(SECRET, stored)
    assert not password.verify(SECRET + " ", stored)
    assert SECRET not in stored and stored.startswith("scrypt$")
    assert password.hashed(SECRET) != password.hashed(SECRET)


def test_no_password_verifies_against_a_missing_hash():
    assert not password.verify(SECRET, None)
    assert not password.verify("", None)


@pytest.mark.parametrize("known", [True, False])
def test_a_check_hashes_once_and_compares_in_constant_time_whether_or_not_the_name_exists(
    stored, monkeypatch, known
):
    derived, compared = [], []
    derive, compare = password._ScryptHash.derive, hmac.compare_digest
    monkeypatch.setattr(
        password._ScryptHash, "derive", lambda self, text: derived.append(text) or derive(self, text)
    )
    monkeypatch.setattr(
        password.hmac, "compare_digest", lambda *both: compared.append(both) or compare(*both)
    )

    assert not password.verify("wrong horse battery", stored if known else None)
    assert len(derived) == len(compared) == 1


@pytest.mark.parametrize("short", ["", "eleven char", "x" * 2000])
def test_a_password_outside_the_length_limits_is_rejected(short):
    with pytest.raises(ValueError, match="at least 12 characters"):
        password.hashed(short)


@pytest.mark.parametrize(
    "wrong",
    ["", "hunter2", "scrypt$2$8$1$YWJj$YWJj", "md5$15$8$3$YWJjZGVmZ2hpamtsbW5vcA==$YQ==", "scrypt$$$$$"],
)
def test_an_invalid_hash_in_the_settings_raises_a_config_error(wrong, tmp_path):
    assert not password.is_hash(wrong)
    with pytest.raises(ConfigError, match="producer-core dashboard password ada"):
        settings(tmp_path, f'[dashboard.passwords]\nada = "{wrong}"')


# the settings


def settings(folder, text):
    path = folder / "secrets.toml"
    path.write_text(text)
    return access_rules.read([folder / "missing" / "secrets.toml", path])


def test_without_settings_no_sign_in_is_required_and_every_user_can_act(tmp_path):
    found = access_rules.read([tmp_path / "secrets.toml"])

    assert not found.needs_sign_in
    assert found.can_view("anybody") and found.can_act("anybody")


def test_read_only_users_are_configured_by_name_or_by_a_list_of_actors(tmp_path):
    some = settings(tmp_path, '[dashboard]\nread_only = ["bob", "*@agency.example"]')
    others = settings(tmp_path, '[dashboard]\nmay_act = ["ada"]')
    all_ = settings(tmp_path, '[dashboard]\nread_only = ["*"]')

    assert [some.can_act(name) for name in ("ada", "bob", "eve@Agency.example")] == [True, False, False]
    assert [others.can_act(name) for name in ("Ada", "bob")] == [True, False]
    assert not all_.can_act("ada")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[dashboard]\nread_onyl = ['bob']", "unknown key: 'read_onyl'"),
        ("[dashboard]\nread_only = 'bob'", "must be a list of names"),
        ("[dashboard]\nsession_hours = 0", "number of hours"),
        ("[dashboard", "cannot be read"),
        ("dashboard = 1", "must be a table"),
        ("[auth]\nclient_id = 'x'", "must contain may_see"),
        ("[auth]\nclient_id = 'x'\n[dashboard]\nmay_see = ['*']", "no redirect_uri"),
        (OIDC.replace("client_secret", "client_secrte"), r"\[auth\] in secrets.toml has no client_secret"),
        (OIDC.replace('client_id = "c"', "[auth.okta]\nclient_id = 'c'\n[auth.entra]"), "has no client_id"),
        (OIDC.replace("/oauth2callback", ""), "must end in /oauth2callback"),
        (OIDC.replace("k" * 32, "hunter2"), "fewer than 32 characters"),
    ],
)
def test_a_mistake_in_the_settings_raises_a_config_error_that_names_it(tmp_path, text, message):
    with pytest.raises(ConfigError, match=message):
        settings(tmp_path, text)


def test_passwords_and_oidc_cannot_be_combined(tmp_path, stored):
    with pytest.raises(ConfigError, match="Keep one"):
        settings(
            tmp_path,
            f'[auth]\nx = "y"\n[dashboard]\nmay_see = ["*"]\n[dashboard.passwords]\nada = "{stored}"',
        )


def test_a_provider_may_have_a_name(tmp_path):
    named = OIDC.replace('client_id = "c"', '[auth.okta]\nclient_id = "c"')

    assert settings(tmp_path, OIDC).provider is None
    found = settings(tmp_path, named)
    assert (found.oidc, found.provider) == (True, "okta")
    assert found.redirect_uri == "https://dash.example/oauth2callback"


@pytest.mark.parametrize("place", ["127.0.0.1", "localhost", "::1", "127.1.2.3"])
def test_a_loopback_address_needs_no_sign_in(place):
    assert access_rules.refusal(place, ("localhost",), AccessRules()) is None


@pytest.mark.parametrize(
    ("address", "hosts"), [("0.0.0.0", ()), ("::", ()), ("192.168.1.5", ()), ("127.0.0.1", ("dash.example",)), ("127.0.0.1", ("*",))]
)  # fmt: skip
def test_other_addresses_are_refused_until_a_sign_in_is_configured(address, hosts, stored):
    assert "does not listen" in access_rules.refusal(address, hosts, AccessRules())
    assert access_rules.refusal(address, hosts, AccessRules(passwords={"ada": stored})) is None
    assert access_rules.refusal(address, hosts, AccessRules(oidc=True)) is None


def test_the_rules_never_print_password_hashes(stored):
    assert stored not in repr(AccessRules(passwords={"ada": stored}))


# the command


def test_the_password_command_prints_a_valid_settings_line(tmp_path):
    result = CliRunner().invoke(main, ["dashboard", "password", "ada@x", "--stdin"], input=f"{SECRET}\n")

    assert result.exit_code == 0
    assert SECRET not in result.output
    found = settings(tmp_path, result.stdout)
    assert password.verify(SECRET, found.passwords["ada@x"])


def test_the_password_command_rejects_a_short_password():
    result = CliRunner().invoke(main, ["dashboard", "password", "ada", "--stdin"], input="short\n")

    assert result.exit_code == 2 and "at least 12 characters" in result.stderr


@pytest.mark.parametrize("options", [["--address", "0.0.0.0"], ["--host", "dash.example"]])
def test_the_command_refuses_a_public_address_without_a_sign_in(options, tmp_path, monkeypatch):
    monkeypatch.setattr(access_rules, "secrets_files", lambda: ())

    result = CliRunner().invoke(main, ["dashboard", "--store", str(tmp_path / "s.duckdb"), *options])

    assert result.exit_code == 2
    assert f"does not listen for {options[1]}" in result.stderr
    assert "producer-core dashboard password NAME" in result.stderr and "ssh -L" in result.stderr


def test_the_command_rejects_a_redirect_uri_with_an_unknown_host_name(tmp_path, monkeypatch):
    (tmp_path / "secrets.toml").write_text(OIDC)
    monkeypatch.setattr(access_rules, "secrets_files", lambda: (tmp_path / "secrets.toml",))
    monkeypatch.setattr("producer_core.cli.dashboard.find_spec", lambda _: True)

    result = CliRunner().invoke(main, ["dashboard", "--store", str(tmp_path / "s.duckdb")])

    assert result.exit_code == 2
    assert (
        "redirect_uri in secrets.toml has the host dash.example" in result.stderr
        and "--host dash.example" in result.stderr
    )


def test_the_settings_in_the_documentation_are_valid(tmp_path):
    page = (ROOT / "docs" / "how-to" / "sign-in.md").read_text()
    blocks = [part.split("```")[0] for part in page.split("```toml\n")[1:]]

    by_password, by_oidc = (tomllib.loads(block) for block in blocks)
    assert password.is_hash(by_password["dashboard"]["passwords"]["ada"])
    assert settings(tmp_path, blocks[0]).needs_sign_in
    # the placeholder in the documentation is not accepted
    with pytest.raises(ConfigError, match="openssl rand -hex 32"):
        settings(tmp_path, blocks[1])
    valid = blocks[1].replace(by_oidc["auth"]["cookie_secret"], "k" * 64)
    assert not settings(tmp_path, valid).can_view("stranger@elsewhere.example")


# sessions and attempts


def test_a_session_ends_after_its_length_and_on_sign_out():
    clock = Clock(0.0)
    sessions = LoginSessions(3600, clock=clock)
    ada, bob = sessions.begin("ada"), sessions.begin("bob")

    assert (sessions.name(ada), sessions.name(bob), sessions.name("guessed"), sessions.name(None)) == (
        "ada", "bob", None, None,
    )  # fmt: skip
    sessions.end(bob)
    assert sessions.name(bob) is None
    clock.now = 3599.0
    assert sessions.name(ada) == "ada"
    clock.now = 3600.0
    assert sessions.name(ada) is None


def test_the_delay_of_an_address_doubles_with_each_failed_attempt():
    clock = Clock(0.0)
    attempts = LoginAttempts(clock=clock)
    waits = []
    for number in range(12):
        clock.now += attempts.wait(f"name-{number}", "10.0.0.9")
        attempts.failed(f"name-{number}", "10.0.0.9")
        waits.append(attempts.wait("another", "10.0.0.9"))

    assert waits == [0, 0, 1, 2, 4, 8, 16, 32, 60, 60, 60, 60]
    assert attempts.wait("another", "10.0.0.8") == 0


def test_failed_attempts_of_other_addresses_do_not_delay_the_user():
    clock = Clock(0.0)
    attempts = LoginAttempts(clock=clock)
    for number in range(1000):
        attempts.failed("ada", f"10.0.{number % 200}.1")

    assert attempts.wait("ada", "10.0.7.1") == LoginAttempts.MAX_DELAY
    assert attempts.wait("ada", "192.168.1.7") == 0
    attempts.failed("ada", "192.168.1.7")
    assert attempts.wait("ada", "192.168.1.7") == 0
    for _ in range(2):
        attempts.failed("ada", "192.168.1.7")
    assert attempts.wait("ada", "192.168.1.7") == LoginAttempts.MAX_DELAY


def test_a_successful_sign_in_does_not_reset_the_delay_of_another_name():
    attempts = LoginAttempts(clock=Clock(0.0))
    for _ in range(3):
        attempts.failed("ada", "10.0.0.9")
        attempts.succeeded("bob", "10.0.0.9")

    assert attempts.wait("ada", "10.0.0.9") > 0


def test_all_addresses_of_an_ipv6_network_share_one_delay():
    attempts = LoginAttempts(clock=Clock(0.0))
    for number in range(3):
        attempts.failed(f"name-{number}", f"2001:db8::{number:x}")
    for number in range(3):
        attempts.failed(f"name-{number}", f"::ffff:10.0.0.{number}")

    assert attempts.wait("ada", "2001:db8::ffff") > 0
    assert attempts.wait("ada", "2001:db8:0:1::1") == 0 == attempts.wait("ada", "10.0.0.1")


def test_failures_are_forgotten_after_an_hour():
    clock = Clock(0.0)
    attempts = LoginAttempts(clock=clock)
    for _ in range(9):
        attempts.failed("ada", "a")
    clock.now = 4000.0
    attempts.failed("ada", "a")

    assert attempts.wait("ada", "a") == 0


# the sign-in middleware


def attributes(cookie):
    """Return the name and the attributes of a cookie, in lower case, because browsers ignore their case and order."""
    ((name, found),) = SimpleCookie(cookie).items()
    present = {key: str(value).lower() for key, value in found.items() if value}
    return {"name": name, **present}


class Response:
    def __init__(self, messages):
        start = messages[0]
        self.status = start["status"]
        self.headers = {name.decode(): value.decode() for name, value in start["headers"]}
        cookies = [value.decode() for name, value in start["headers"] if name == b"set-cookie"]
        self.device = cookies[0] if cookies else ""
        self.cookies = [attributes(cookie) for cookie in cookies]
        self.text = b"".join(message.get("body", b"") for message in messages[1:]).decode()


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


@pytest.mark.parametrize(("name", "secret"), [("ada", "wrong horse battery"), ("eve", SECRET), ("", "")])
def test_an_unknown_name_and_a_wrong_password_get_the_same_response(browser, name, secret):
    refused = browser.sign_in(name, secret)

    assert refused.status == 401
    assert "The name or the password is wrong." in refused.text
    assert "set-cookie" not in refused.headers
    assert browser.page().status == 303


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


def test_after_three_failures_even_the_correct_password_waits(browser):
    for _ in range(3):
        assert browser.sign_in(secret="wrong horse battery").status == 401

    assert browser.sign_in().status == 429
    assert "Wait" in browser.sign_in().text
    browser.clock.now += 1.0
    assert browser.sign_in().status == 303


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


def test_a_new_password_invalidates_the_devices_of_its_name():
    value = known_devices.issue("ada", "scrypt$old")

    assert known_devices.known(value, "ada", "scrypt$old")
    assert not known_devices.known(value, "ada", "scrypt$new")
    assert not known_devices.known(value, "bob", "scrypt$old")
    assert not known_devices.known(value, "ada", None)


def test_the_signature_of_a_device_is_compared_in_constant_time(monkeypatch):
    compared, compare = [], hmac.compare_digest
    monkeypatch.setattr(
        known_devices.hmac, "compare_digest", lambda *both: compared.append(both) or compare(*both)
    )

    assert known_devices.known("number.forged", "ada", "scrypt$old") == ""
    assert len(compared) == 1


def test_cookies_are_secure_behind_a_proxy_that_terminates_https(browser):
    response = browser.sign_in(origin="https://dash.example")

    assert "Secure" in response.headers["set-cookie"] and "Secure" in response.device


def test_an_oversized_form_is_rejected(browser):
    assert browser.sign_in(secret="x" * 100_000).status == 401


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


# the return after an OIDC sign-in


def returned(path, location="/", **headers):
    """Return the response headers of Streamlit's redirect after the middleware has changed it."""
    messages = []

    async def streamlit(scope, receive, send):
        await send(
            {"type": "http.response.start", "status": 302, "headers": [(b"location", location.encode())]}
        )
        await send({"type": "http.response.body", "body": b""})

    async def send(message):
        messages.append(message)

    given = [(name.encode(), value.encode()) for name, value in {"host": "dash.example", **headers}.items()]
    scope = {"type": "http", "path": path, "scheme": "https", "headers": given}
    asyncio.run(OidcReturn(streamlit, base="/proxy")(scope, None, send))
    return Response(messages).headers


def test_an_oidc_sign_in_returns_to_the_requested_page():
    login = returned(
        "/proxy/auth/login", "https://login.example", referer="https://dash.example/proxy/alerts?alert=a%20b"
    )
    assert login["location"] == "https://login.example"
    cookie = login["set-cookie"]
    common = {"name": COOKIE_BACK, "path": "/proxy", "httponly": "true", "samesite": "lax"}
    assert attributes(cookie) == {**common, "max-age": "600", "secure": "true"}

    callback = returned("/proxy/oauth2callback", cookie=cookie.partition(";")[0])
    assert callback["location"] == "/proxy/alerts?alert=a%20b"
    deleted = attributes(callback["set-cookie"])
    assert {**common, "max-age": "0"}.items() <= deleted.items() and f"{COOKIE_BACK}=" in callback[
        "set-cookie"
    ]
    assert returned("/proxy/oauth2callback") == {"location": "/"}
    assert returned("/proxy/alerts", cookie=cookie.partition(";")[0]) == {"location": "/"}


@pytest.mark.parametrize(
    "referer",
    [
        "https://evil.example/alerts",
        "https://dash.example//evil.example",
        "https://dash.example/" + "x" * 2000,
        "nonsense",
        "https://dash.example/é",
    ],
)
def test_only_pages_of_this_server_are_remembered_for_the_return(referer):
    assert "set-cookie" not in returned("/proxy/auth/login", referer=referer)


@pytest.mark.parametrize(
    "forged", ["https%3A%2F%2Fevil.example", "%2F%2Fevil.example", "%2Fa%0D%0Aset-cookie%3A x", ""]
)
def test_a_forged_return_cookie_is_ignored(forged):
    assert returned("/proxy/oauth2callback", cookie=f"{COOKIE_BACK}={forged}")["location"] == "/"


# actions


def fire(store):
    item = alert("connection_lost", "p-1", 1000.0, reason="refused")
    AlertLog(store).record(follow({}, [item], 1000.0))
    return item.alert_id


def signed_in(monkeypatch, name, **changes):
    rules = AccessRules(passwords={"ada": "", "bob": ""}, **changes)
    guard = access.AccessGuard(rules, LoginSessions(rules.session), started=True)
    token = guard.sessions.begin(name)
    access.set_guard(guard)
    monkeypatch.setattr(access, "_token", lambda: token)
    return guard, token


def audited(store):
    return [(row["who"], row["action"], row["outcome"]) for row in store.rows("audit_latest")]


def test_an_action_is_audited_with_the_signed_in_name(store, monkeypatch):
    signed_in(monkeypatch, "ada")

    assert actions.user() == "ada" and actions.may_act() == (True, "")
    assert actions.acknowledge(store, fire(store)).ok
    assert audited(store) == [("ada", "acknowledge", "acknowledged")]


def test_an_action_of_a_read_only_user_is_refused_and_audited(store, monkeypatch):
    signed_in(monkeypatch, "bob", read_only=("bob",))
    alert_id = fire(store)

    allowed, reason = actions.may_act()
    assert not allowed and reason.startswith("bob has read-only access")
    assert not actions.acknowledge(store, alert_id).ok
    assert AlertLog(store).list(state="firing")[0].acknowledged_by is None
    ((who, action, outcome),) = audited(store)
    assert (who, action) == ("bob", "acknowledge") and outcome.startswith("Refused: bob has read-only access")


def test_a_forged_click_of_a_read_only_user_changes_nothing_and_is_audited(store, monkeypatch):
    signed_in(monkeypatch, "bob", read_only=("bob",))
    monkeypatch.setattr("sys.argv", ["page.py", str(store.path)])
    alert_id = fire(store)
    page = run(one_button)

    page.button(key="ack-1")._value = True  # a disabled button never sends it
    page.run()
    page.run()

    assert AlertLog(store).list(state="firing")[0].alert_id == alert_id
    ((who, action, outcome),) = audited(store)
    assert (who, action) == ("bob", "ack") and outcome.startswith("Refused: bob has read-only access")
    page.button(key="ack-1")._value = True
    page.run()
    assert len(audited(store)) == 2


def one_button():
    import streamlit as st

    from producer_core.dashboard import actions

    for number in (1, 2):
        allowed, _ = actions.may_act()
        st.button("Acknowledge", key=f"ack-{number}", disabled=not allowed)


def test_actions_fail_after_the_session_has_ended(store, monkeypatch):
    guard, token = signed_in(monkeypatch, "ada")
    alert_id = fire(store)
    guard.sessions.end(token)

    assert actions.may_act() == (False, "Your session has ended. Sign in again.")
    assert not actions.acknowledge(store, alert_id).ok


def test_sign_out_ends_the_session_in_every_tab(monkeypatch):
    guard, token = signed_in(monkeypatch, "ada")

    access.sign_out()

    assert guard.sessions.name(token) is None and access.user() == ""


def oidc(monkeypatch, **claims):
    monkeypatch.setattr(access, "_claims", lambda: {"is_logged_in": True, "iat": 1000.0, **claims})
    monkeypatch.setattr(access.time, "time", lambda: 1000.0 + 3600)
    access.set_guard(access.AccessGuard(AccessRules(oidc=True, may_see=("*@example.com",)), started=True))


def test_with_oidc_the_email_address_is_the_user_name(monkeypatch):
    oidc(monkeypatch, email="ada@example.com", sub="7")

    assert access.user() == "ada@example.com" and access.access_denied() is None


@pytest.mark.parametrize(
    "claims", [{"email": "eve@elsewhere.org"}, {"email": "ada@example.com", "email_verified": False, "sub": "7"}, {"sub": "7"}]
)  # fmt: skip
def test_with_oidc_only_users_in_may_see_get_access(monkeypatch, claims):
    oidc(monkeypatch, **claims)

    assert access.user() == "" and "has no access" in access.access_denied()


def test_with_oidc_an_old_session_at_the_provider_is_accepted(monkeypatch):
    oidc(monkeypatch, email="ada@example.com", auth_time=1000.0 - 5 * 86400)

    assert access.user() == "ada@example.com"


def test_with_oidc_sign_out_invalidates_copies_of_the_cookie(monkeypatch):
    oidc(monkeypatch, email="ada@example.com", sub="7", nonce="a")
    monkeypatch.setattr(access, "_streamlit", lambda: SimpleNamespace(logout=lambda: None))

    access.sign_out()

    assert access.user() == "" and access.access_denied() is None
    monkeypatch.setattr(
        access,
        "_claims",
        lambda: {"is_logged_in": True, "iat": 1000.0, "email": "ada@example.com", "sub": "7", "nonce": "b"},
    )
    assert access.user() == "ada@example.com"


@pytest.mark.parametrize("when", [{"iat": 1000.0 - 13 * 3600}, {"iat": None}])
def test_with_oidc_a_session_expires(monkeypatch, when):
    oidc(monkeypatch, email="ada@example.com", **when)

    assert access.user() == ""


# the sign-in on a page


def page_behind_sign_in():
    import streamlit as st

    from producer_core.dashboard.views import sign_in

    if sign_in.show():
        st.text("the page")


def run(function):
    from streamlit.testing.v1 import AppTest

    return AppTest.from_function(function, default_timeout=30).run()


def texts(app):
    return " ".join(item.proto.body for item in app.get("html")) + " ".join(item.value for item in app.text)


def test_without_a_sign_in_the_page_is_drawn_at_once():
    assert "the page" in texts(run(page_behind_sign_in))


def test_the_page_shows_the_signed_in_user_and_signs_out_on_click(monkeypatch):
    signed_in(monkeypatch, "ada")
    app = run(page_behind_sign_in)
    assert "the page" in texts(app) and "Signed in as ada." in texts(app)

    app.button(key="sign_out").click().run()

    assert "the page" not in texts(app) and "sign-in?next=" in texts(app)


def test_a_server_without_the_sign_in_middleware_refuses_the_page(monkeypatch, stored):
    monkeypatch.setattr(access_rules, "read", lambda: AccessRules(passwords={"ada": stored}))

    assert "the page" not in texts(run(page_behind_sign_in))
