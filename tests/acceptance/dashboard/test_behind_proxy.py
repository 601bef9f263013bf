"""Test the dashboard behind nginx with TLS, configured as docs/how-to/behind-a-proxy.md describes: sign-in and attacks."""

from __future__ import annotations

import contextlib
import random
import re
import shlex
import time
import uuid
from urllib.parse import urlencode

import pytest

from producer_core.alerts import AlertLog, alert, follow
from producer_core.dashboard.auth.password import hashed
from producer_core.dashboard.server.command import free_port
from producer_core.store import Store
from tests.acceptance import browsing, reverse_proxy
from tests.acceptance.dashboard.test_sign_in import SECRET, command, keep
from tests.acceptance.dashboard.test_sign_in import sign_in as sign_in_by_password
from tests.acceptance.reverse_proxy import DOCUMENT, NAME, Client

pytestmark = pytest.mark.browser

ADA, EVIL, PATH = "ada@example.com", "evil.example", "/kafka"
GROUPS = [str(uuid.UUID(int=random.Random(number).getrandbits(128))) for number in range(25)]
AT_ROOT, BELOW = (
    shlex.split(line) for line in re.findall(r"^producer-core dashboard (.+)$", DOCUMENT, re.MULTILINE)
)
FORGED = {
    "x-forwarded-host": EVIL, "x-forwarded-prefix": f"//{EVIL}", "x-forwarded-proto": "http", "x-forwarded-for": "10.9.8.7",
    "forwarded": f"for=10.9.8.7;host={EVIL};proto=http",
}  # fmt: skip
"""Proxy headers that a client forges."""


class Deployment:
    """Hold a dashboard behind nginx, its store, and its public address."""

    def __init__(self, store, direct, proxied, path=""):
        self.store, self.direct, self.proxied = store, direct, proxied
        self.origin = f"https://{NAME}:{proxied}"
        self.address = f"{self.origin}{path}"

    def through(self, address):
        """Return a client that connects through nginx."""
        return Client(address, self.proxied)

    def bypassing(self, address):
        """Return a client that connects to the dashboard directly, with the proxy's host name."""
        return Client(address, self.direct, tls=False, host=f"{NAME}:{self.proxied}")

    def fire_alert(self, topic):
        item = alert("weak_replication", topic, time.time() - 60, text=f"{topic} has one copy")
        AlertLog(self.store).record(follow({}, [item], time.time()), told_by="p-1")


@contextlib.contextmanager
def deployed(folder, secrets, site, *, proxied, path=""):
    folder.mkdir()
    (folder / ".streamlit").mkdir()
    (folder / ".streamlit" / "secrets.toml").write_text(secrets)
    store = Store.open(folder / "store.duckdb")
    wanted = free_port(8990)
    with command(folder, "--port", str(wanted), *(BELOW if path else AT_ROOT)) as process:
        output = []
        while not (found := re.search(r"is at http://127\.0\.0\.1:(\d+)", " ".join(output))):
            line = process.stdout.readline()
            assert line, "".join(output)
            output.append(line)
        with reverse_proxy.nginx(folder / "nginx", site, port=proxied, dashboard=int(found[1])):
            deployment = Deployment(store, int(found[1]), proxied, path)
            deployment.fire_alert("orders")
            yield deployment
    store.close()


@pytest.fixture(scope="module")
def by_password(tmp_path_factory):
    secrets = f'[dashboard.passwords]\nada = "{hashed(SECRET)}"\nbob = "{hashed(SECRET)}"\n'
    site = reverse_proxy.beside_a_stripped_path(PATH)
    folder = tmp_path_factory.mktemp("proxy") / "password"
    with deployed(folder, secrets, site, proxied=free_port(9440)) as deployment:
        yield deployment


@pytest.fixture(scope="module", params=["", PATH], ids=["at the root", "below a path"])
def by_oidc(request, tmp_path_factory):
    pytest.importorskip("authlib")  # installed with httpx and joserfc by producer-core[oidc]
    from tests.acceptance.provider import CLIENT, Provider
    from tests.acceptance.provider import SECRET as SHARED

    path, port = request.param, free_port(9450)
    with Provider(
        (ADA,), f"https://{NAME}:{port}{path}/oauth2callback", groups=GROUPS, access=6000
    ) as provider:
        secrets = f"""
        [auth]
        redirect_uri = "{provider.redirect_uri}"
        cookie_secret = "{"k" * 32}"
        client_id = "{CLIENT}"
        client_secret = "{SHARED}"
        server_metadata_url = "{provider.issuer}/.well-known/openid-configuration"
        [dashboard]
        may_see = ["*@example.com"]
        """
        site = reverse_proxy.below(path) if path else reverse_proxy.SITE
        folder = tmp_path_factory.mktemp("proxy") / "oidc"
        with deployed(folder, secrets, site, proxied=port, path=path) as deployment:
            deployment.provider = provider
            yield deployment


@pytest.fixture(scope="module")
def browser(chromium):
    """Return Chromium with the proxy's host name resolved to this machine."""
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        options = [*browsing.OPTIONS, f"--host-resolver-rules=MAP {NAME} 127.0.0.1"]
        started = playwright.chromium.launch(executable_path=chromium, args=options)
        yield started
        started.close()


@pytest.fixture
def page(browser):
    with browsing.window(browser, ignore_https_errors=True) as opened:
        opened.sockets = []
        opened.on("websocket", lambda socket: opened.sockets.append(socket.url))
        yield opened


def insecure_cookies(page):
    """Return the cookies that the browser also sends over plain http."""
    return [cookie["name"] for cookie in page.context.cookies() if not cookie["secure"]]


def post_password(client, origin, *, name="ada", secret="wrong horse battery", path="/sign-in", **headers):
    form = urlencode({"name": name, "password": secret, "next": "/alerts"})
    return client.request(path, method="POST", body=form, origin=origin, **headers)


def is_delayed(client, origin, **options):
    """Return whether attempts are delayed after the third failure, although each has another forged address."""
    statuses = [
        post_password(
            client, origin, name=f"name-{number}", x_forwarded_for=f"10.9.8.{number}, 127.0.0.1", **options
        )[0]
        for number in range(6)
    ]
    return statuses[:3] == [401, 401, 401] and 429 in statuses[3:]


def assert_live_updates(page, deployment, topic):
    """Fire an alert, and check that the open page shows it without a reload."""
    page.evaluate("window.notReloaded = true")
    deployment.fire_alert(topic)
    page.get_by_text(f"{topic} has one copy").first.wait_for()
    assert page.evaluate("window.notReloaded")
    assert page.sockets[-1] == f"wss{deployment.address.removeprefix('https')}/_stcore/stream"


def test_a_password_sign_in_over_https_opens_the_page_with_live_updates(page, by_password):
    page.goto(f"{by_password.address}/alerts?show=Rules")
    keep(page, "proxy-sign-in")
    sign_in_by_password(page)
    page.get_by_text("dead_letters_growing").first.wait_for()
    assert page.url == f"{by_password.address}/alerts?show=Rules"

    page.goto(f"{by_password.address}/alerts")
    page.get_by_text("orders has one copy").first.wait_for()
    assert_live_updates(page, by_password, "payments")
    keep(page, "proxy-signed-in")
    assert insecure_cookies(page) == []

    page.get_by_role("button", name="ada").click()
    page.get_by_role("button", name="Sign out").click()
    page.get_by_text("You are signed out").wait_for()
    page.get_by_role("link", name="Sign in again").click()
    page.get_by_label("Password").wait_for()
    assert page.url.startswith(f"{by_password.address}/sign-in?")
    assert page.errors == []


def test_the_sign_in_stays_below_a_path_that_the_proxy_strips(page, by_password):
    below = f"{by_password.address}{PATH}"
    page.goto(f"{below}/alerts?show=Rules")
    sign_in_by_password(page, "bob")

    page.get_by_text("dead_letters_growing").first.wait_for()
    assert page.url == f"{below}/alerts?show=Rules"
    paths = {cookie["path"] for cookie in page.context.cookies() if cookie["httpOnly"]}
    assert paths == {PATH}  # other applications under this name do not receive them

    page.goto(f"{by_password.address}/alerts")  # simulates a second dashboard at the root
    sign_in_by_password(page, "ada")
    page.get_by_role("button", name="ada").wait_for()
    page.goto(f"{below}/alerts")
    page.get_by_role("button", name="bob").click()
    page.get_by_role("button", name="Sign out").click()
    page.get_by_role("link", name="Sign in again").click()
    sign_in_by_password(page, "bob")
    page.get_by_role("button", name="bob").wait_for()
    assert page.url == f"{below}/alerts"


def test_an_oidc_sign_in_over_https_opens_the_page_with_live_updates(page, by_oidc):
    page.set_extra_http_headers(FORGED)
    page.goto(f"{by_oidc.address}/alerts?show=Rules")
    page.get_by_role("button", name="Sign in").click()
    page.get_by_role("link", name=ADA).click()
    page.get_by_text("dead_letters_growing").first.wait_for()
    assert page.url.startswith(f"{by_oidc.address}/alerts?") and "show=Rules" in page.url

    page.goto(f"{by_oidc.address}/alerts")
    page.get_by_text("orders has one copy").first.wait_for()
    assert_live_updates(page, by_oidc, "payments")
    assert insecure_cookies(page) == []

    page.get_by_role("button", name=re.compile("^(person )?ada@")).click()
    page.get_by_role("button", name="Sign out").click()
    page.get_by_role("button", name="Sign in").wait_for()
    assert page.url.startswith(by_oidc.address)
    assert len(by_oidc.provider.ended) == 1


@pytest.mark.parametrize(
    ("address", "path"),
    [
        pytest.param("127.0.0.66", "/sign-in", id="nginx replaces the header"),
        pytest.param("127.0.0.67", f"{PATH}/sign-in", id="nginx appends to the header"),
    ],
)
def test_failed_attempts_delay_only_their_client_despite_forged_addresses(by_password, address, path):
    assert is_delayed(by_password.through(address), by_password.origin, path=path)

    other = by_password.through("127.0.0.68")
    status, headers, _ = post_password(other, by_password.origin, secret=SECRET, path=path)
    assert status == 303
    cookies = [value for name, value in headers if name == "set-cookie"]
    assert len(cookies) == 2 and all("Secure" in cookie for cookie in cookies)


def test_forwarded_headers_are_ignored_from_clients_that_bypass_the_proxy(by_password):
    origin, forged = f"http://{NAME}:{by_password.proxied}", {"x_forwarded_proto": "https"}
    assert is_delayed(by_password.bypassing("127.0.0.69"), origin, **forged)

    _, headers, _ = post_password(by_password.bypassing("127.0.0.70"), origin, secret=SECRET, **forged)
    assert "Secure" not in str([value for name, value in headers if name == "set-cookie"])


@pytest.mark.parametrize("reached", ["through", "bypassing"])
def test_a_forged_host_name_is_never_used(by_password, reached):
    client = getattr(by_password, reached)("127.0.0.71")
    for path in ("/", "/alerts?show=Rules", "/sign-in", "/auth/login", "/auth/logout", "/oauth2callback"):
        status, headers, body = client.request(path, accept="text/html", **FORGED)
        assert status in (200, 303)
        assert EVIL not in f"{headers} {body}"

    client._host = EVIL
    assert client.request("/sign-in", accept="text/html")[0] == 421
    assert client.connect() in (403, 421)


def test_a_page_of_another_origin_cannot_use_the_session_of_a_user(by_password):
    client = by_password.through("127.0.0.72")
    _, headers, _ = post_password(client, by_password.origin, secret=SECRET)
    session = [value.partition(";")[0] for name, value in headers if name == "set-cookie"][-1]

    assert client.connect(origin=by_password.origin, cookie=session) == 101
    assert client.connect(origin=by_password.origin) == 403
    plain = by_password.origin.replace("https", "http")
    for origin in (f"https://{EVIL}", "null", "http://localhost:3000", plain, f"https://{NAME}:1"):
        assert client.connect(origin=origin, cookie=session) == 403


def test_a_foreign_origin_without_a_session_is_rejected(by_oidc):
    client = by_oidc.through("127.0.0.73")
    path = f"{by_oidc.address.removeprefix(by_oidc.origin)}/_stcore/stream"

    assert client.connect(path, origin=by_oidc.origin) == 101
    for origin in (f"https://{EVIL}", "http://localhost:3000", "http://127.0.0.1:1"):
        assert client.connect(path, origin=origin) == 403


def test_the_proxy_passes_the_frame_headers(by_password):
    client = by_password.through("127.0.0.74")
    for path, ancestors in (("/sign-in", "'none'"), ("/_stcore/health", "'self'")):
        _, headers, _ = client.request(path)
        assert f"frame-ancestors {ancestors}" in dict(headers)["content-security-policy"]
        assert dict(headers)["x-frame-options"] in ("DENY", "SAMEORIGIN")
