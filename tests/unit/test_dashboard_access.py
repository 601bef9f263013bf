"""Who may see the dashboard and who may act: passwords, sessions, attempts, the door, and what is refused."""

from __future__ import annotations

import asyncio
import tomllib
from pathlib import Path
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
from producer_core.dashboard.auth.login import COOKIE, LoginMiddleware
from producer_core.dashboard.auth.oidc_return import COOKIE as COOKIE_BACK
from producer_core.dashboard.auth.oidc_return import OidcReturn
from producer_core.dashboard.auth.sessions import LoginAttempts, LoginSessions
from producer_core.errors import ConfigError

ROOT = Path(__file__).parents[2]
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
def kept():
    """A hash as cheap as one may be."""
    patch = pytest.MonkeyPatch()
    patch.setattr(password, "_LOG_N", 14)
    patch.setattr(password, "_P", 1)
    yield password.hashed(SECRET)
    patch.undo()


@pytest.fixture(autouse=True)
def _nobody_stays_signed_in(monkeypatch):
    monkeypatch.setattr(access, "_guards", [access.AccessGuard()])


# passwords


def test_a_password_is_kept_as_a_salted_hash_and_found_right_again(kept):
    assert password.right(SECRET, kept)
    assert not password.right(SECRET + " ", kept)
    assert SECRET not in kept and kept.startswith("scrypt$")
    assert password.hashed(SECRET) != password.hashed(SECRET)


def test_nobody_has_a_password():
    assert not password.right(SECRET, None)
    assert not password.right("", None)


@pytest.mark.parametrize("short", ["", "eleven char", "x" * 2000])
def test_a_password_that_is_guessed_at_once_is_refused(short):
    with pytest.raises(ValueError, match="at least 12 characters"):
        password.hashed(short)


@pytest.mark.parametrize(
    "wrong",
    ["", "hunter2", "scrypt$2$8$1$YWJj$YWJj", "md5$15$8$3$YWJjZGVmZ2hpamtsbW5vcA==$YQ==", "scrypt$$$$$"],
)
def test_what_is_no_hash_is_found_when_the_settings_are_read(wrong, tmp_path):
    assert not password.readable(wrong)
    with pytest.raises(ConfigError, match="producer-core dashboard password ada"):
        settings(tmp_path, f'[dashboard.passwords]\nada = "{wrong}"')


# the settings


def settings(folder, text):
    path = folder / "secrets.toml"
    path.write_text(text)
    return access_rules.read([folder / "missing" / "secrets.toml", path])


def test_without_settings_nobody_signs_in_and_everybody_acts(tmp_path):
    found = access_rules.read([tmp_path / "secrets.toml"])

    assert not found.needs_sign_in
    assert found.sees("anybody") and found.acts("anybody")


def test_viewers_are_made_read_only_by_name_or_everybody_but_some(tmp_path):
    some = settings(tmp_path, '[dashboard]\nread_only = ["bob", "*@agency.example"]')
    others = settings(tmp_path, '[dashboard]\nmay_act = ["ada"]')
    all_ = settings(tmp_path, '[dashboard]\nread_only = ["*"]')

    assert [some.acts(name) for name in ("ada", "bob", "eve@Agency.example")] == [True, False, False]
    assert [others.acts(name) for name in ("Ada", "bob")] == [True, False]
    assert not all_.acts("ada")


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("[dashboard]\nread_onyl = ['bob']", "no key 'read_onyl'"),
        ("[dashboard]\nread_only = 'bob'", "must be a list of names"),
        ("[dashboard]\nsession_hours = 0", "number of hours"),
        ("[dashboard", "cannot be read"),
        ("dashboard = 1", "must be a table"),
        ("[auth]\nclient_id = 'x'", "must say who is let in"),
        ("[auth]\nclient_id = 'x'\n[dashboard]\nmay_see = ['*']", "no redirect_uri"),
        (OIDC.replace("client_secret", "client_secrte"), r"\[auth\] in secrets.toml has no client_secret"),
        (OIDC.replace('client_id = "c"', "[auth.okta]\nclient_id = 'c'\n[auth.entra]"), "has no client_id"),
        (OIDC.replace("/oauth2callback", ""), "must end in /oauth2callback"),
        (OIDC.replace("k" * 32, "hunter2"), "fewer than 32 characters"),
    ],
)
def test_a_mistake_in_the_settings_lets_nobody_in_and_says_why(tmp_path, text, said):
    with pytest.raises(ConfigError, match=said):
        settings(tmp_path, text)


def test_people_sign_in_one_way(tmp_path, kept):
    with pytest.raises(ConfigError, match="Keep one"):
        settings(
            tmp_path, f'[auth]\nx = "y"\n[dashboard]\nmay_see = ["*"]\n[dashboard.passwords]\nada = "{kept}"'
        )


def test_a_provider_may_have_a_name(tmp_path):
    named = OIDC.replace('client_id = "c"', '[auth.okta]\nclient_id = "c"')

    assert settings(tmp_path, OIDC).provider is None
    found = settings(tmp_path, named)
    assert (found.oidc, found.provider) == (True, "okta")
    assert found.comes_back_to == "https://dash.example/oauth2callback"


@pytest.mark.parametrize("place", ["127.0.0.1", "localhost", "::1", "127.1.2.3"])
def test_this_machine_is_served_without_a_password(place):
    assert access_rules.refusal(place, ("localhost",), AccessRules()) is None


@pytest.mark.parametrize(
    ("address", "hosts"), [("0.0.0.0", ()), ("::", ()), ("192.168.1.5", ()), ("127.0.0.1", ("dash.example",)), ("127.0.0.1", ("*",))]
)  # fmt: skip
def test_another_machine_is_refused_until_people_sign_in(address, hosts, kept):
    assert "does not listen" in access_rules.refusal(address, hosts, AccessRules())
    assert access_rules.refusal(address, hosts, AccessRules(passwords={"ada": kept})) is None
    assert access_rules.refusal(address, hosts, AccessRules(oidc=True)) is None


def test_the_hashes_are_in_no_text(kept):
    assert kept not in repr(AccessRules(passwords={"ada": kept}))


# the command


def test_the_command_makes_the_line_that_lets_a_person_in(tmp_path):
    made = CliRunner().invoke(main, ["dashboard", "password", "ada@x", "--stdin"], input=f"{SECRET}\n")

    assert made.exit_code == 0
    assert SECRET not in made.output
    found = settings(tmp_path, made.stdout)
    assert password.right(SECRET, found.passwords["ada@x"])


def test_the_command_refuses_a_short_password():
    made = CliRunner().invoke(main, ["dashboard", "password", "ada", "--stdin"], input="short\n")

    assert made.exit_code == 2 and "at least 12 characters" in made.stderr


@pytest.mark.parametrize("options", [["--address", "0.0.0.0"], ["--host", "dash.example"]])
def test_the_command_does_not_listen_for_strangers(options, tmp_path, monkeypatch):
    monkeypatch.setattr(access_rules, "files", lambda: ())

    ended = CliRunner().invoke(main, ["dashboard", "--store", str(tmp_path / "s.duckdb"), *options])

    assert ended.exit_code == 2
    assert f"does not listen for {options[1]}" in ended.stderr
    assert "producer-core dashboard password NAME" in ended.stderr and "ssh -L" in ended.stderr


def test_the_command_says_when_a_provider_would_lead_people_astray(tmp_path, monkeypatch):
    (tmp_path / "secrets.toml").write_text(OIDC)
    monkeypatch.setattr(access_rules, "files", lambda: (tmp_path / "secrets.toml",))
    monkeypatch.setattr("producer_core.cli.dashboard.find_spec", lambda _: True)

    ended = CliRunner().invoke(main, ["dashboard", "--store", str(tmp_path / "s.duckdb")])

    assert ended.exit_code == 2
    assert (
        "redirect_uri in secrets.toml has the host dash.example" in ended.stderr
        and "--host dash.example" in ended.stderr
    )


def test_the_settings_in_the_readme_are_right(tmp_path):
    section = (ROOT / "README.md").read_text().split("\n## Access\n")[1].split("\n## ")[0]
    blocks = [part.split("```")[0] for part in section.split("```toml\n")[1:]]

    by_password, by_oidc = (tomllib.loads(block) for block in blocks)
    assert password.readable(by_password["dashboard"]["passwords"]["ada"])
    assert settings(tmp_path, blocks[0]).needs_sign_in
    with pytest.raises(ConfigError, match="openssl rand -hex 32"):  # who copies it is not let through
        settings(tmp_path, blocks[1])
    mended = blocks[1].replace(by_oidc["auth"]["cookie_secret"], "k" * 64)
    assert not settings(tmp_path, mended).sees("stranger@elsewhere.example")


# sessions and attempts


def test_a_session_ends_by_itself_and_by_signing_out():
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


def test_guessing_gets_slower_and_slower_by_address():
    clock = Clock(0.0)
    attempts = LoginAttempts(clock=clock)
    waits = []
    for number in range(12):
        clock.now += attempts.wait(f"name-{number}", "10.0.0.9")
        attempts.failed(f"name-{number}", "10.0.0.9")
        waits.append(attempts.wait("another", "10.0.0.9"))

    assert waits == [0, 0, 1, 2, 4, 8, 16, 32, 60, 60, 60, 60]
    assert attempts.wait("another", "10.0.0.8") == 0


def test_strangers_slow_a_name_down_for_themselves_and_cannot_lock_its_owner_out():
    clock = Clock(0.0)
    attempts = LoginAttempts(clock=clock)
    for number in range(1000):
        attempts.failed("ada", f"10.0.{number % 200}.1")

    assert attempts.wait("ada", "10.0.7.1") == LoginAttempts.LONGEST
    assert attempts.wait("ada", "192.168.1.7") == 0
    attempts.failed("ada", "192.168.1.7")
    assert attempts.wait("ada", "192.168.1.7") == 0
    for _ in range(2):
        attempts.failed("ada", "192.168.1.7")
    assert attempts.wait("ada", "192.168.1.7") == LoginAttempts.LONGEST


def test_who_signs_in_under_his_own_name_gets_no_more_guesses_at_another():
    attempts = LoginAttempts(clock=Clock(0.0))
    for _ in range(3):
        attempts.failed("ada", "10.0.0.9")
        attempts.succeeded("bob", "10.0.0.9")

    assert attempts.wait("ada", "10.0.0.9") > 0


def test_all_addresses_of_one_ipv6_network_count_together():
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


# the door


class Answer:
    def __init__(self, messages):
        start = messages[0]
        self.status = start["status"]
        self.headers = {name.decode(): value.decode() for name, value in start["headers"]}
        cookies = [value.decode() for name, value in start["headers"] if name == b"set-cookie"]
        self.remembered = cookies[0] if cookies else ""
        self.text = b"".join(message.get("body", b"") for message in messages[1:]).decode()


async def inside(scope, receive, send):
    """What stands behind the door: pages that say where they are, and a connection that echoes."""
    if scope["type"] == "http":
        await send({"type": "http.response.start", "status": 200, "headers": []})
        return await send({"type": "http.response.body", "body": b"secret " + scope["path"].encode()})
    await send({"type": "websocket.accept"})
    while (message := await receive())["type"] != "websocket.disconnect":
        await send({"type": "websocket.send", "text": message.get("text", "")})
    return None


class Behind:
    """The dashboard behind a door, as a browser meets it: it keeps the cookie that it was given."""

    def __init__(self, kept, *, length=3600.0, base="", **changes):
        self.clock = Clock(0.0)
        self.sessions = LoginSessions(length, clock=self.clock)
        admitted = AccessRules(passwords={"ada": kept, "bob": kept}, session=length, **changes)
        self.door = LoginMiddleware(
            inside,
            admission=admitted,
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
            "headers": [(name.encode(), value.encode()) for name, value in headers.items()], **more,
        }  # fmt: skip

    def ask(self, path, *, method="GET", body=b"", client=("10.0.0.9", 4711), scheme="http", **headers):
        said = []

        async def receive():
            return {"type": "http.request", "body": body, "more_body": False}

        async def send(message):
            said.append(message)

        headers = {name.replace("_", "-"): value for name, value in headers.items()}
        asyncio.run(
            self.door(
                self.scope("http", path, headers, method=method, scheme=scheme, client=client), receive, send
            )
        )
        answer = Answer(said)
        if cookie := answer.headers.get("set-cookie"):
            self.cookie = cookie.partition(";")[0]
            self.remembered = answer.remembered.partition(";")[0]
        return answer

    def page(self, path="/alerts"):
        return self.ask(path, accept="text/html,*/*")

    def sign_in(
        self,
        name="ada",
        word=SECRET,
        *,
        following="/alerts",
        scheme="http",
        client=("10.0.0.9", 4711),
        **headers,
    ):
        body = urlencode({"name": name, "password": word, "next": following}).encode()
        headers = headers or {"origin": "http://dash.example"}
        return self.ask("/sign-in", method="POST", body=body, scheme=scheme, client=client, **headers)

    def connection(self, *steps):
        """What came back for each text that was sent; a step that is a number lets so many seconds pass."""
        waiting, said = list(steps), []

        async def receive():
            while waiting:
                step = waiting.pop(0)
                if isinstance(step, str):
                    return {"type": "websocket.receive", "text": step}
                self.clock.now += step
            return {"type": "websocket.disconnect", "code": 1000}

        async def send(message):
            said.append(message.get("text") or message["type"])

        asyncio.run(self.door(self.scope("websocket", "/_stcore/stream", {}), receive, send))
        return said


@pytest.fixture
def behind(kept):
    return Behind(kept)


def test_a_page_leads_to_the_sign_in_and_back_again(behind):
    asked = behind.page("/alerts?alert=abc&range=1+hour")
    assert asked.status == 303
    form = behind.ask(urljoin("/alerts", asked.headers["location"]))
    assert 'value="./alerts?alert=abc&amp;range=1+hour"' in form.text
    assert "frame-ancestors 'none'" in form.headers["content-security-policy"]

    entered = behind.sign_in(following="./alerts?alert=abc&range=1+hour")
    assert (entered.status, entered.headers["location"]) == (303, "./alerts?alert=abc&range=1+hour")
    assert behind.page().text == "secret /alerts"
    assert behind.ask("/sign-in").status == 303


def test_only_the_health_can_be_asked_without_a_session(behind):
    assert behind.ask("/_stcore/health").status == 200
    for path in ("/app/static/plotly.min.js", "/_stcore/host-config", "/media/x.csv", "/static/index.js"):
        assert behind.ask(path).status == 401
    assert behind.ask("/_stcore/upload_file/1/2", method="PUT").status == 401
    assert behind.ask("/", method="POST", accept="text/html").status == 401
    assert behind.connection("hello") == ["websocket.close"]


def test_a_cookie_that_was_guessed_opens_nothing(behind):
    for cookie in (f"{COOKIE}=guessed", f"{COOKIE}=", "a=b; =;;", f"{COOKIE}=x; {COOKIE}=y", "\xff"):
        behind.cookie = cookie
        assert behind.page().status == 303


def test_the_cookie_is_for_this_server_alone(behind):
    cookie = behind.sign_in().headers["set-cookie"]

    assert cookie.startswith(f"{COOKIE}=")
    assert "HttpOnly" in cookie and "SameSite=Lax" in cookie and "Max-Age=3600" in cookie
    assert "Secure" not in cookie
    assert "Secure" in behind.sign_in(scheme="https").headers["set-cookie"]


@pytest.mark.parametrize(("name", "word"), [("ada", "wrong horse battery"), ("eve", SECRET), ("", "")])
def test_a_wrong_name_and_a_wrong_password_are_told_alike(behind, name, word):
    refused = behind.sign_in(name, word)

    assert refused.status == 401
    assert "The name or the password is wrong." in refused.text
    assert "set-cookie" not in refused.headers
    assert behind.page().status == 303


def test_what_a_person_typed_is_text_on_the_page(behind):
    refused = behind.sign_in('"><script>alert(1)</script>', "x", following='/"><script>alert(2)</script>')

    assert "<script>" not in refused.text


def test_a_form_of_another_site_signs_nobody_in(behind):
    assert behind.sign_in(origin="https://evil.example").status == 403
    assert behind.sign_in(origin="http://dash.example", sec_fetch_site="cross-site").status == 403
    assert behind.sign_in(referer="http://dash.example/").status == 403
    assert behind.sign_in(sec_fetch_site="same-origin").status == 303


@pytest.mark.parametrize(
    "away",
    [
        "https://evil.example/",
        "//evil.example",
        "/\\evil.example",
        "",
        "javascript:alert(1)",
        "/a\r\nset-cookie: x=y",
    ],
)
def test_after_the_sign_in_one_stays_on_this_server(behind, away):
    assert behind.sign_in(following=away).headers["location"] == "./"


@pytest.mark.parametrize(
    "inside", [".//evil.example", "./\\evil.example", "./https://evil.example", "./../../x"]
)
def test_a_relative_page_after_the_sign_in_is_on_this_server(behind, inside):
    to = behind.sign_in(following=inside).headers["location"].replace("\\", "/")  # as browsers read it

    assert urljoin("https://dash.example/sign-in", to).startswith("https://dash.example/")


def test_too_many_wrong_passwords_have_to_wait_even_for_the_right_one(behind):
    for _ in range(3):
        assert behind.sign_in(word="wrong horse battery").status == 401

    assert behind.sign_in().status == 429
    assert "Wait" in behind.sign_in().text
    behind.clock.now += 1.0
    assert behind.sign_in().status == 303


def test_ten_connections_that_guess_in_a_loop_do_not_keep_the_owner_out(behind):
    behind.sign_in()
    browser, behind.cookie = behind.remembered, ""
    for _ in range(30):
        behind.sign_in(word="wrong horse battery")
    assert behind.sign_in().status == 429

    assert behind.sign_in(client=("10.0.0.8", 4711)).status == 303  # from elsewhere
    behind.cookie = browser
    assert behind.sign_in().status == 303  # from the same address, in a browser that signed in before


def test_guesses_that_are_looked_at_leave_room_for_the_owner(behind, monkeypatch):
    """Ten connections hold the places that one address has, and others still get theirs."""
    from producer_core.dashboard.auth import login

    asked = []

    def slow(guess, kept):
        asked.append(guess)
        return guess == SECRET

    monkeypatch.setattr(login.password, "right", slow)

    async def all_at_once():
        guesses = [behind.door._why_not("ada", "wrong", "10.0.0.9", "") for _ in range(10)]
        return await asyncio.gather(*guesses, behind.door._why_not("ada", SECRET, "10.0.0.8", ""))

    *refused, owner = asyncio.run(all_at_once())
    assert owner is None
    assert sum("Too many people" in one for one in refused) == 8


def test_a_known_device_guesses_no_faster_and_only_for_its_own_name(behind):
    behind.sign_in("bob")
    behind.cookie = behind.remembered
    for _ in range(3):
        assert behind.sign_in("ada", word="wrong horse battery").status == 401
    assert behind.sign_in("ada").status == 429

    for _ in range(3):
        assert behind.sign_in("bob", word="wrong horse battery").status == 401
    assert behind.sign_in("bob").status == 429


@pytest.mark.parametrize("forged", ["", "x", "x.y", ".", "é.é"])
def test_a_device_that_was_made_up_is_a_stranger(behind, forged):
    behind.cookie = f"{COOKIE_DEVICE}={forged}"
    for _ in range(3):
        behind.sign_in(word="wrong horse battery")

    assert behind.sign_in().status == 429


def test_a_new_password_ends_the_devices_of_its_name():
    value = known_devices.issue("ada", "scrypt$old")

    assert known_devices.known(value, "ada", "scrypt$old")
    assert not known_devices.known(value, "ada", "scrypt$new")
    assert not known_devices.known(value, "bob", "scrypt$old")
    assert not known_devices.known(value, "ada", None)


def test_behind_https_of_a_proxy_the_cookies_are_for_https(behind):
    entered = behind.sign_in(origin="https://dash.example")

    assert "Secure" in entered.headers["set-cookie"] and "Secure" in entered.remembered


def test_a_form_too_long_to_be_one_is_not_read(behind):
    assert behind.sign_in(word="x" * 100_000).status == 401


def test_a_page_that_stays_open_is_cut_off_after_its_session(behind, monkeypatch):
    monkeypatch.setattr("producer_core.dashboard.auth.login.time.monotonic", behind.clock)
    behind.sign_in()

    said = behind.connection("live", 3600.0, "may still say that it is over", 31.0, "more?", "and more?")

    assert said == ["websocket.accept", "live", "may still say that it is over"]


def test_who_is_not_to_see_it_is_not_let_in_with_a_password_either(kept):
    assert Behind(kept, may_see=("bob",)).sign_in("ada").status == 401


def test_behind_a_path_the_door_stays_in_it(kept):
    behind = Behind(kept, base="/proxy/8501/")

    asked = behind.page("/proxy/8501/alerts")
    assert asked.headers["location"] == "/proxy/8501/sign-in?next=%2Fproxy%2F8501%2Falerts"
    assert behind.ask("/proxy/8501/sign-in").status == 200


@pytest.mark.parametrize("page", ["/", "/alerts", "/alerts?show=Rules", "/alerts/", "/a/b"])
def test_below_a_path_that_a_proxy_strips_the_sign_in_and_its_page_stay_in_it(behind, page):
    seen = f"https://dash.example/kafka{page}"

    asked = urljoin(seen, behind.page(page).headers["location"])
    assert asked.startswith("https://dash.example/kafka/sign-in?next=")
    entered = behind.sign_in(following=parse_qs(urlsplit(asked).query)["next"][0])
    assert urljoin(asked, entered.headers["location"]) == seen
    assert "Path=" not in entered.headers["set-cookie"] + entered.remembered  # the browser takes /kafka


# the way back


def passes(path, location="/", **headers):
    """What a browser is answered, with Streamlit's redirect behind the way back."""
    said = []

    async def streamlit(scope, receive, send):
        await send(
            {"type": "http.response.start", "status": 302, "headers": [(b"location", location.encode())]}
        )
        await send({"type": "http.response.body", "body": b""})

    async def send(message):
        said.append(message)

    given = [(name.encode(), value.encode()) for name, value in {"host": "dash.example", **headers}.items()]
    scope = {"type": "http", "path": path, "scheme": "https", "headers": given}
    asyncio.run(OidcReturn(streamlit, base="/proxy")(scope, None, send))
    return Answer(said).headers


def test_who_signs_in_by_oidc_comes_out_on_the_page_that_was_asked_for():
    leaves = passes(
        "/proxy/auth/login", "https://login.example", referer="https://dash.example/proxy/alerts?alert=a%20b"
    )
    assert leaves["location"] == "https://login.example"
    cookie = leaves["set-cookie"]
    assert "Path=/proxy; HttpOnly; SameSite=Lax; Max-Age=600; Secure" in cookie

    returns = passes("/proxy/oauth2callback", cookie=cookie.partition(";")[0])
    assert returns["location"] == "/proxy/alerts?alert=a%20b" and "Max-Age=0" in returns["set-cookie"]
    assert passes("/proxy/oauth2callback") == {"location": "/"}
    assert passes("/proxy/alerts", cookie=cookie.partition(";")[0]) == {"location": "/"}


@pytest.mark.parametrize(
    "away",
    [
        "https://evil.example/alerts",
        "https://dash.example//evil.example",
        "nonsense",
        "https://dash.example/é",
    ],
)
def test_the_way_back_stays_on_this_server(away):
    assert "set-cookie" not in passes("/proxy/auth/login", referer=away)


@pytest.mark.parametrize(
    "kept", ["https%3A%2F%2Fevil.example", "%2F%2Fevil.example", "%2Fa%0D%0Aset-cookie%3A x", ""]
)
def test_a_way_back_that_was_made_up_leads_nowhere(kept):
    assert passes("/proxy/oauth2callback", cookie=f"{COOKIE_BACK}={kept}")["location"] == "/"


# acting


def fire(store):
    item = alert("connection_lost", "p-1", 1000.0, reason="refused")
    AlertLog(store).record(follow({}, [item], 1000.0))
    return item.alert_id


def signed_in(monkeypatch, name, **changes):
    admitted = AccessRules(passwords={"ada": "", "bob": ""}, **changes)
    guard = access.AccessGuard(admitted, LoginSessions(admitted.session), started=True)
    token = guard.sessions.begin(name)
    access.keep(guard)
    monkeypatch.setattr(access, "_token", lambda: token)
    return guard, token


def audited(store):
    return [(row["who"], row["action"], row["outcome"]) for row in store.rows("audit_latest")]


def test_an_act_carries_the_name_of_who_is_signed_in(store, monkeypatch):
    signed_in(monkeypatch, "ada")

    assert actions.user() == "ada" and actions.may_act() == (True, "")
    assert actions.acknowledge(store, fire(store)).ok
    assert audited(store) == [("ada", "acknowledge", "acknowledged")]


def test_who_may_only_look_is_refused_and_that_is_in_the_audit(store, monkeypatch):
    signed_in(monkeypatch, "bob", read_only=("bob",))
    alert_id = fire(store)

    allowed, reason = actions.may_act()
    assert not allowed and reason.startswith("bob may look, not act")
    assert not actions.acknowledge(store, alert_id).ok
    assert AlertLog(store).list(state="firing")[0].acknowledged_by is None
    ((who, action, outcome),) = audited(store)
    assert (who, action) == ("bob", "acknowledge") and outcome.startswith("Refused: bob may look")


def test_a_click_that_a_read_only_user_forged_changes_nothing_and_is_in_the_audit(store, monkeypatch):
    signed_in(monkeypatch, "bob", read_only=("bob",))
    monkeypatch.setattr("sys.argv", ["page.py", str(store.path)])
    alert_id = fire(store)
    page = run(one_button)

    page.button(key="ack-1")._value = True  # what a disabled button never sends
    page.run()
    page.run()

    assert AlertLog(store).list(state="firing")[0].alert_id == alert_id
    ((who, action, outcome),) = audited(store)
    assert (who, action) == ("bob", "ack") and outcome.startswith("Refused: bob may look")
    page.button(key="ack-1")._value = True
    page.run()
    assert len(audited(store)) == 2


def one_button():
    import streamlit as st

    from producer_core.dashboard import actions

    for number in (1, 2):
        allowed, _ = actions.may_act()
        st.button("Acknowledge", key=f"ack-{number}", disabled=not allowed)


def test_who_was_signed_out_meanwhile_does_nothing_more(store, monkeypatch):
    guard, token = signed_in(monkeypatch, "ada")
    alert_id = fire(store)
    guard.sessions.end(token)

    assert actions.may_act() == (False, "Your session has ended. Sign in again.")
    assert not actions.acknowledge(store, alert_id).ok


def test_signing_out_ends_the_session_for_every_tab(monkeypatch):
    guard, token = signed_in(monkeypatch, "ada")

    access.sign_out()

    assert guard.sessions.name(token) is None and access.user() == ""


def oidc(monkeypatch, **claims):
    monkeypatch.setattr(access, "_claims", lambda: {"is_logged_in": True, "iat": 1000.0, **claims})
    monkeypatch.setattr(access.time, "time", lambda: 1000.0 + 3600)
    access.keep(access.AccessGuard(AccessRules(oidc=True, may_see=("*@example.com",)), started=True))


def test_with_oidc_the_address_is_the_name(monkeypatch):
    oidc(monkeypatch, email="ada@example.com", sub="7")

    assert access.user() == "ada@example.com" and access.turned_away() is None


@pytest.mark.parametrize(
    "claims", [{"email": "eve@elsewhere.org"}, {"email": "ada@example.com", "email_verified": False, "sub": "7"}, {"sub": "7"}]
)  # fmt: skip
def test_with_oidc_only_those_who_may_see_it_are_let_in(monkeypatch, claims):
    oidc(monkeypatch, **claims)

    assert access.user() == "" and "is not let in" in access.turned_away()


def test_with_oidc_a_provider_may_have_known_a_person_for_days(monkeypatch):
    oidc(monkeypatch, email="ada@example.com", auth_time=1000.0 - 5 * 86400)

    assert access.user() == "ada@example.com"


def test_with_oidc_signing_out_ends_every_tab_and_a_copied_cookie_opens_nothing(monkeypatch):
    oidc(monkeypatch, email="ada@example.com", sub="7", nonce="a")
    monkeypatch.setattr(access, "_streamlit", lambda: SimpleNamespace(logout=lambda: None))

    access.sign_out()

    assert access.user() == "" and access.turned_away() is None
    monkeypatch.setattr(
        access,
        "_claims",
        lambda: {"is_logged_in": True, "iat": 1000.0, "email": "ada@example.com", "sub": "7", "nonce": "b"},
    )
    assert access.user() == "ada@example.com"


@pytest.mark.parametrize("when", [{"iat": 1000.0 - 13 * 3600}, {"iat": None}])
def test_with_oidc_a_session_ends_too(monkeypatch, when):
    oidc(monkeypatch, email="ada@example.com", **when)

    assert access.user() == ""


# the sign-in of a page


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


def test_on_this_machine_the_page_is_there_at_once():
    assert "the page" in texts(run(page_behind_sign_in))


def test_who_is_signed_in_sees_the_page_and_the_own_name_and_goes_by_a_click(monkeypatch):
    signed_in(monkeypatch, "ada")
    app = run(page_behind_sign_in)
    assert "the page" in texts(app) and "Signed in as ada." in texts(app)

    app.button(key="sign_out").click().run()

    assert "the page" not in texts(app) and "sign-in?next=" in texts(app)


def test_a_server_without_the_door_serves_nobody_that_has_to_sign_in(monkeypatch, kept):
    monkeypatch.setattr(access_rules, "read", lambda: AccessRules(passwords={"ada": kept}))

    assert "the page" not in texts(run(page_behind_sign_in))
