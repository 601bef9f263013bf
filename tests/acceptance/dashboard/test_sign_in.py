"""Test the password sign-in with the real command, the real server and Chromium."""

from __future__ import annotations

import contextlib
import itertools
import os
import re
import signal
import subprocess
import sys
import time
import urllib.error
import urllib.parse
import urllib.request

import pytest

from producer_core.alerts import AlertLog, alert, follow
from producer_core.dashboard.auth.password import hashed
from producer_core.store import Store
from tests.support import eventually

pytestmark = pytest.mark.browser

SECRET = "correct horse battery"
LONG_NAME = "augusta-ada-of-lovelace"


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("signing-in")


@pytest.fixture(scope="module")
def store(folder):
    opened = Store.open(folder / "store.duckdb")
    item = alert("weak_replication", "orders", time.time() - 60, text="orders has one copy")
    AlertLog(opened).record(follow({}, [item], time.time()), told_by="p-1")
    yield opened
    opened.close()


@contextlib.contextmanager
def command(folder, *options):
    """Run the command in a folder with its own .streamlit/secrets.toml."""
    process = subprocess.Popen(
        [sys.executable, "-m", "producer_core.cli", "dashboard", "--store", str(folder / "store.duckdb"), *options],
        cwd=folder, env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path)), "HOME": str(folder)},
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
    )  # fmt: skip
    try:
        yield process
    finally:
        process.send_signal(signal.SIGINT)
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(20)
        process.kill()
        process.wait()
        process.stdout.close()


def listening(process):
    """Return the address that the command prints once its server listens, and its output until then."""
    output = []
    while not (found := re.search(r"http://127\.0\.0\.1:\d+", " ".join(output))):
        line = process.stdout.readline()
        assert line, "".join(output)
        output.append(line)
    return found[0], "".join(output)


@pytest.fixture(scope="module")
def address(folder, store):
    secrets = folder / ".streamlit" / "secrets.toml"
    secrets.parent.mkdir()
    secrets.write_text(
        f'[dashboard]\nread_only = ["bob"]\n[dashboard.passwords]\nada = "{hashed(SECRET)}"\nbob = "{hashed(SECRET)}"\n'
        f'{LONG_NAME} = "{hashed(SECRET)}"\n'
    )
    with command(folder, "--port", "8970", "--address", "0.0.0.0") as process:
        found, output = listening(process)
        assert "plain HTTP" in output
        yield found


@pytest.fixture
def page(browser):
    context = browser.new_context(viewport={"width": 1280, "height": 1000})
    opened = context.new_page()
    opened.set_default_timeout(120_000)
    yield opened
    context.close()


def keep(page, name):
    """Save a screenshot if $PRODUCER_CORE_PICTURES names a folder."""
    if folder := os.environ.get("PRODUCER_CORE_PICTURES"):
        page.screenshot(path=f"{folder}/{name}.png")


def sign_in(page, name="ada", secret=SECRET):
    page.get_by_label("Name").fill(name)
    page.get_by_label("Password").fill(secret)
    page.get_by_role("button", name="Sign in").click()


def test_without_a_session_no_file_is_served(address):
    for path in ("/static/index.html", "/app/static/plotly.min.js", "/_stcore/host-config"):
        with pytest.raises(urllib.error.HTTPError) as refused:
            urllib.request.urlopen(address + path, timeout=10)
        assert refused.value.code == 401
        refused.value.close()


def test_a_deep_link_survives_the_sign_in_and_a_reload(page, address):
    page.goto(f"{address}/alerts?show=Rules")
    keep(page, "sign-in")
    sign_in(page, secret="wrong horse battery")
    page.get_by_text("Incorrect name or password.").wait_for()
    sign_in(page)

    page.get_by_text("dead_letters_growing").first.wait_for()
    assert page.url.startswith(f"{address}/alerts?") and "show=Rules" in page.url
    page.reload()
    page.get_by_text("dead_letters_growing").first.wait_for()


@pytest.mark.parametrize("name", ["ada", LONG_NAME])
def test_on_a_phone_the_user_menu_covers_neither_the_age_of_the_data_nor_the_menu_button(
    browser, address, name
):
    with contextlib.closing(
        browser.new_context(viewport={"width": 390, "height": 844}, color_scheme="dark")
    ) as context:
        phone = context.new_page()
        phone.set_default_timeout(120_000)
        phone.goto(f"{address}/errors")
        sign_in(phone, name)
        menu = phone.locator(".st-key-pc-user button")
        pill = phone.locator(".pc-data-age")
        pill.wait_for()
        menu.wait_for()
        keep(phone, f"phone-{name}")
        sidebar = phone.get_by_test_id("stExpandSidebarButton").first
        boxes = sorted((one.bounding_box() for one in (sidebar, pill, menu)), key=lambda box: box["x"])

        for left, right in itertools.pairwise(boxes):
            assert left["x"] + left["width"] <= right["x"]
        assert boxes[-1]["x"] + boxes[-1]["width"] <= 390
        phone.get_by_role("button", name=name[:12]).click()  # the menu keeps its name
        phone.get_by_text(f"Signed in as {name}.").wait_for()


def test_an_action_is_audited_by_name_and_sign_out_ends_every_tab(page, address, store):
    page.goto(f"{address}/alerts")
    sign_in(page)
    page.get_by_role("button", name="Acknowledge").click()
    page.get_by_text("Acknowledged by ada").wait_for()
    assert [(row["who"], row["action"]) for row in store.rows("audit_latest")] == [("ada", "acknowledge")]

    other = page.context.new_page()
    other.goto(f"{address}/alerts")
    other.get_by_text("Acknowledged by ada").wait_for()
    page.get_by_role("button", name="ada").click()
    keep(page, "signed-in")
    page.get_by_role("button", name="Sign out").click()

    page.get_by_text("You are signed out").wait_for()
    keep(page, "signed-out")
    other.get_by_text("You are signed out").wait_for()  # the tab checks its session every ten seconds
    page.get_by_role("link", name="Sign in again").click()
    sign_in(page)
    page.get_by_text("Acknowledged by ada").wait_for()
    assert page.url.startswith(f"{address}/alerts")


def test_read_only_users_see_disabled_buttons(page, address):
    page.goto(f"{address}/alerts")
    sign_in(page, "bob")

    button = page.get_by_role("button", name="Silence …").first
    button.wait_for()
    assert button.is_disabled()
    page.get_by_role("button", name="bob").click()
    page.get_by_text("bob has read-only access").wait_for()


def test_the_server_evaluates_alerts_without_a_browser_and_releases_its_lease(folder, tmp_path):
    path = tmp_path / "store.duckdb"
    Store.open(path).close()
    store = Store.open(path)
    with command(tmp_path, "--port", "8980") as process:
        eventually(lambda: store.rows("lease_holder", name="alerts"), timeout=60)
        process.send_signal(signal.SIGINT)
        assert process.wait(60) == 0
    assert store.rows("lease_holder", name="alerts") == []
    store.close()


def test_forged_client_addresses_do_not_allow_more_attempts(address):
    """X-Forwarded-For counts only from proxies named with --proxy. The test runs last, because it delays its address."""
    statuses = []
    for number in range(6):
        headers = {"origin": address, "x-forwarded-for": f"10.9.8.{number}"}
        form = urllib.parse.urlencode(
            {"name": f"unknown-{number}", "password": "wrong horse battery"}
        ).encode()
        with pytest.raises(urllib.error.HTTPError) as refused:
            urllib.request.urlopen(urllib.request.Request(f"{address}/sign-in", form, headers), timeout=30)
        statuses.append(refused.value.code)
        refused.value.close()

    assert statuses[:3] == [401, 401, 401] and 429 in statuses[3:]
