"""The dashboard behind a real nginx that terminates TLS, as docs/behind-a-proxy.md sets it up: signing in, and attacks."""

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
from tests.services import browsing, reverse_proxy
from tests.services.reverse_proxy import DOCUMENT, NAME, Client
from tests.services.test_dashboard_signing_in import SECRET, command, keep
from tests.services.test_dashboard_signing_in import sign_in as sign_in_by_password

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
"""Headers that a proxy may set, from a client."""


class Place:
    """A dashboard behind nginx, its store, and the address at which browsers reach it."""

    def __init__(self, store, direct, proxied, path=""):
        self.store, self.direct, self.proxied = store, direct, proxied
        self.origin = f"https://{NAME}:{proxied}"
        self.address = f"{self.origin}{path}"

    def through(self, address):
        """A client that comes through nginx."""
        return Client(address, self.proxied)

    def past(self, address):
        """A client that connects to the dashboard itself, under the name that the proxy has."""
        return Client(address, self.direct, tls=False, host=f"{NAME}:{self.proxied}")

    def fires(self, topic):
        item = alert("weak_replication", topic, time.time() - 60, text=f"{topic} has one copy")
        AlertLog(self.store).record(follow({}, [item], time.time()), told_by="p-1")


@contextlib.contextmanager
def placed(folder, secrets, site, *, proxied, path=""):
    folder.mkdir()
    (folder / ".streamlit").mkdir()
    (folder / ".streamlit" / "secrets.toml").write_text(secrets)
    store = Store.open(folder / "store.duckdb")
    wanted = free_port(8990)
    with command(folder, "--port", str(wanted), *(BELOW if path else AT_ROOT)) as process:
        said = []
        while not (found := re.search(r"is at http://127\.0\.0\.1:(\d+)", " ".join(said))):
            line = process.stdout.readline()
            assert line, "".join(said)
            said.append(line)
        with reverse_proxy.nginx(folder / "nginx", site, port=proxied, dashboard=int(found[1])):
            place = Place(store, int(found[1]), proxied, path)
            place.fires("orders")
            yield place
    store.close()


@pytest.fixture(scope="module")
def by_password(tmp_path_factory):
    secrets = f'[dashboard.passwords]\nada = "{hashed(SECRET)}"\nbob = "{hashed(SECRET)}"\n'
    site = reverse_proxy.beside_a_stripped_path(PATH)
    folder = tmp_path_factory.mktemp("proxy") / "password"
    with placed(folder, secrets, site, proxied=free_port(9440)) as place:
        yield place


@pytest.fixture(scope="module", params=["", PATH], ids=["at a name of its own", "below a path"])
def by_oidc(request, tmp_path_factory):
    pytest.importorskip("authlib")  # and httpx and joserfc with it: producer-core[oidc]
    from tests.services.provider import CLIENT, Provider
    from tests.services.provider import SECRET as SHARED

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
        with placed(folder, secrets, site, proxied=port, path=path) as place:
            place.provider = provider
            yield place


@pytest.fixture(scope="module")
def browser(chromium):
    """Chromium that resolves the name of the proxy to this machine."""
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


def insecure(page):
    """The cookies that the browser would send over plain http as well."""
    return [cookie["name"] for cookie in page.context.cookies() if not cookie["secure"]]


def guess(client, origin, *, name="ada", word="wrong horse battery", path="/sign-in", **headers):
    form = urlencode({"name": name, "password": word, "next": "/alerts"})
    return client.ask(path, method="POST", body=form, origin=origin, **headers)


def is_slowed_down(client, origin, **more):
    """Whether wrong passwords have to wait after the third, although each comes with another forged address."""
    said = [
        guess(client, origin, name=f"name-{number}", x_forwarded_for=f"10.9.8.{number}, 127.0.0.1", **more)[0]
        for number in range(6)
    ]
    return said[:3] == [401, 401, 401] and 429 in said[3:]


def updates_itself(page, place, topic):
    """The open page shows an alert that fires now, without being loaded again."""
    page.evaluate("window.notLoadedAgain = true")
    place.fires(topic)
    page.get_by_text(f"{topic} has one copy").first.wait_for()
    assert page.evaluate("window.notLoadedAgain")
    assert page.sockets[-1] == f"wss{place.address.removeprefix('https')}/_stcore/stream"


def test_a_password_opens_the_page_asked_for_over_https_and_its_updates_come_through(page, by_password):
    page.goto(f"{by_password.address}/alerts?show=Rules")
    keep(page, "proxy-sign-in")
    sign_in_by_password(page)
    page.get_by_text("dead_letters_growing").first.wait_for()
    assert page.url == f"{by_password.address}/alerts?show=Rules"

    page.goto(f"{by_password.address}/alerts")
    page.get_by_text("orders has one copy").first.wait_for()
    updates_itself(page, by_password, "payments")
    keep(page, "proxy-signed-in")
    assert insecure(page) == []

    page.get_by_role("button", name="ada").click()
    page.get_by_role("button", name="Sign out").click()
    page.get_by_text("You are signed out").wait_for()
    page.get_by_role("link", name="Sign in again").click()
    page.get_by_label("Password").wait_for()
    assert page.url.startswith(f"{by_password.address}/sign-in?")
    assert page.wrong == []


def test_below_a_path_that_the_proxy_strips_the_sign_in_stays_in_it(page, by_password):
    below = f"{by_password.address}{PATH}"
    page.goto(f"{below}/alerts?show=Rules")
    sign_in_by_password(page, "bob")

    page.get_by_text("dead_letters_growing").first.wait_for()
    assert page.url == f"{below}/alerts?show=Rules"
    paths = {cookie["path"] for cookie in page.context.cookies() if cookie["httpOnly"]}
    assert paths == {PATH}  # other applications under this name do not get them

    page.goto(f"{by_password.address}/alerts")  # as if another dashboard were there
    sign_in_by_password(page, "ada")
    page.get_by_role("button", name="ada").wait_for()
    page.goto(f"{below}/alerts")
    page.get_by_role("button", name="bob").click()
    page.get_by_role("button", name="Sign out").click()
    page.get_by_role("link", name="Sign in again").click()
    sign_in_by_password(page, "bob")
    page.get_by_role("button", name="bob").wait_for()
    assert page.url == f"{below}/alerts"


def test_oidc_opens_the_page_asked_for_over_https_and_its_updates_come_through(page, by_oidc):
    page.set_extra_http_headers(FORGED)
    page.goto(f"{by_oidc.address}/alerts?show=Rules")
    page.get_by_role("button", name="Sign in").click()
    page.get_by_role("link", name=ADA).click()
    page.get_by_text("dead_letters_growing").first.wait_for()
    assert page.url.startswith(f"{by_oidc.address}/alerts?") and "show=Rules" in page.url

    page.goto(f"{by_oidc.address}/alerts")
    page.get_by_text("orders has one copy").first.wait_for()
    updates_itself(page, by_oidc, "payments")
    assert insecure(page) == []

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
def test_wrong_passwords_of_one_client_delay_no_other_and_forged_addresses_change_nothing(
    by_password, address, path
):
    assert is_slowed_down(by_password.through(address), by_password.origin, path=path)

    other = by_password.through("127.0.0.68")
    status, headers, _ = guess(other, by_password.origin, word=SECRET, path=path)
    assert status == 303
    cookies = [value for name, value in headers if name == "set-cookie"]
    assert len(cookies) == 2 and all("Secure" in cookie for cookie in cookies)


def test_forwarded_headers_of_a_client_that_bypasses_the_proxy_count_for_nothing(by_password):
    origin, forged = f"http://{NAME}:{by_password.proxied}", {"x_forwarded_proto": "https"}
    assert is_slowed_down(by_password.past("127.0.0.69"), origin, **forged)

    _, headers, _ = guess(by_password.past("127.0.0.70"), origin, word=SECRET, **forged)
    assert "Secure" not in str([value for name, value in headers if name == "set-cookie"])


@pytest.mark.parametrize("reached", ["through", "past"])
def test_a_forged_host_name_leads_nowhere(by_password, reached):
    client = getattr(by_password, reached)("127.0.0.71")
    for path in ("/", "/alerts?show=Rules", "/sign-in", "/auth/login", "/auth/logout", "/oauth2callback"):
        status, headers, body = client.ask(path, accept="text/html", **FORGED)
        assert status in (200, 303)
        assert EVIL not in f"{headers} {body}"

    client._host = EVIL
    assert client.ask("/sign-in", accept="text/html")[0] == 421
    assert client.connect() in (403, 421)


def test_a_page_of_another_origin_cannot_open_the_connection_of_a_signed_in_user(by_password):
    client = by_password.through("127.0.0.72")
    _, headers, _ = guess(client, by_password.origin, word=SECRET)
    session = [value.partition(";")[0] for name, value in headers if name == "set-cookie"][-1]

    assert client.connect(origin=by_password.origin, cookie=session) == 101
    assert client.connect(origin=by_password.origin) == 403
    plain = by_password.origin.replace("https", "http")
    for origin in (f"https://{EVIL}", "null", "http://localhost:3000", plain, f"https://{NAME}:1"):
        assert client.connect(origin=origin, cookie=session) == 403


def test_a_foreign_origin_of_a_stranger_is_refused_at_once(by_oidc):
    client = by_oidc.through("127.0.0.73")
    path = f"{by_oidc.address.removeprefix(by_oidc.origin)}/_stcore/stream"

    assert client.connect(path, origin=by_oidc.origin) == 101
    for origin in (f"https://{EVIL}", "http://localhost:3000", "http://127.0.0.1:1"):
        assert client.connect(path, origin=origin) == 403


def test_the_headers_that_forbid_foreign_frames_pass_the_proxy(by_password):
    client = by_password.through("127.0.0.74")
    for path, ancestors in (("/sign-in", "'none'"), ("/_stcore/health", "'self'")):
        _, headers, _ = client.ask(path)
        assert f"frame-ancestors {ancestors}" in dict(headers)["content-security-policy"]
        assert dict(headers)["x-frame-options"] in ("DENY", "SAMEORIGIN")
