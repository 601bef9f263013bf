"""Test the OIDC sign-in with the real command, a strict provider and Chromium."""

from __future__ import annotations

import re
import time

import pytest

from producer_core.alerts import AlertLog, alert, follow
from producer_core.store import Store
from tests.acceptance import browsing
from tests.acceptance.dashboard.test_sign_in import command, keep

pytest.importorskip("authlib")  # installed with httpx and joserfc by producer-core[oidc]

from tests.acceptance.provider import CLIENT, SECRET, Provider

pytestmark = pytest.mark.browser

PORT = 8985
HOME = f"http://127.0.0.1:{PORT}"
ADA, BOB, EVE = "ada@example.com", "bob@example.com", "eve@elsewhere.org"


@pytest.fixture(scope="module")
def provider():
    with Provider((ADA, BOB, EVE), f"{HOME}/oauth2callback") as running:
        yield running


@pytest.fixture(scope="module")
def store(tmp_path_factory, provider):
    """Serve a dashboard with OIDC, and return its store."""
    folder = tmp_path_factory.mktemp("oidc")
    store = Store.open(folder / "store.duckdb")
    item = alert("weak_replication", "orders", time.time() - 60, text="orders has one copy")
    AlertLog(store).record(follow({}, [item], time.time()), told_by="p-1")
    (folder / ".streamlit").mkdir()
    (folder / ".streamlit" / "secrets.toml").write_text(
        f"""
        [auth]
        redirect_uri = "{provider.redirect_uri}"
        cookie_secret = "{"k" * 32}"
        client_id = "{CLIENT}"
        client_secret = "{SECRET}"
        server_metadata_url = "{provider.issuer}/.well-known/openid-configuration"
        [dashboard]
        may_see = ["*@example.com"]
        read_only = ["bob@*"]
        """
    )
    with command(folder, "--port", str(PORT)) as process:
        output = []
        while HOME not in " ".join(output):
            line = process.stdout.readline()
            assert line, "".join(output)
            output.append(line)
        yield store
    store.close()


@pytest.fixture
def page(browser, store):
    with browsing.window(browser) as opened:
        yield opened


def sign_in(page, user):
    page.get_by_role("button", name="Sign in").click()
    page.get_by_role("link", name=user).click()


def test_an_oidc_user_reaches_the_page_acts_by_name_and_signs_out_in_every_tab(page, provider, store):
    page.goto(f"{HOME}/alerts?show=Rules")
    page.get_by_role("button", name="Sign in").wait_for()
    keep(page, "oidc-sign-in")
    assert page.get_by_text("orders has one copy").count() == 0
    sign_in(page, ADA)

    page.get_by_text("dead_letters_growing").first.wait_for()
    assert page.url.startswith(f"{HOME}/alerts?") and "show=Rules" in page.url
    page.goto(f"{HOME}/alerts")
    page.get_by_role("button", name="Acknowledge").click()
    page.get_by_text(f"Acknowledged by {ADA}").wait_for()
    keep(page, "oidc-acted")
    assert [(row["who"], row["action"]) for row in store.rows("audit_latest")] == [(ADA, "acknowledge")]

    other = page.context.new_page()
    other.goto(f"{HOME}/alerts")
    other.get_by_text(f"Acknowledged by {ADA}").wait_for()
    page.get_by_role("button", name=re.compile("^(person )?ada@")).click()
    page.get_by_role("button", name="Sign out").click()
    for tab in (page, other):  # the other tab checks its session every ten seconds
        tab.get_by_role("button", name="Sign in").wait_for()
    assert provider.ended == [CLIENT]
    assert other.get_by_text("Acknowledged by").count() == 0


def test_read_only_and_unknown_oidc_users_are_restricted(page, provider, store):
    page.goto(f"{HOME}/alerts")
    sign_in(page, BOB)
    button = page.get_by_role("button", name="Silence …").first
    button.wait_for()
    assert button.is_disabled()
    page.get_by_role("button", name=re.compile("^(person )?bob@")).click()
    page.get_by_text(f"{BOB} has read-only access").wait_for()
    page.get_by_role("button", name="Sign out").click()

    page.get_by_role("button", name="Sign in").wait_for()
    sign_in(page, EVE)
    page.get_by_text(f"{EVE} has no access").wait_for()
    page.get_by_role("button", name="Sign out").wait_for()
    keep(page, "oidc-access-denied")
    assert page.get_by_text("orders has one copy").count() == 0
    assert provider.tokens[-2:] == [BOB, EVE]
