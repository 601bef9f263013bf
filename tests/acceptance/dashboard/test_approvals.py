"""Test the approval of a replay by two signed-in people, with the real command, the real server and Chromium."""

from __future__ import annotations

import contextlib
import threading
import time

import pytest

from producer_core import replay
from producer_core.dashboard.auth.password import hashed
from producer_core.dlq import DeadLetterFilter
from producer_core.dlq.approvals import requests
from producer_core.store import Store
from tests.acceptance.dashboard.test_sign_in import SECRET, command, keep, listening, sign_in
from tests.fixtures.approvals import adopt_policy
from tests.fixtures.replays import CLUSTER, add_dead_letters, preflight_done, write_heartbeat
from tests.support import eventually

pytestmark = pytest.mark.browser


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("approvals")


@pytest.fixture(scope="module")
def store(folder):
    opened = Store.open(folder / "store.duckdb")
    adopt_policy(opened.path, folder)
    stop = threading.Event()

    def beat():
        while not stop.wait(2):
            write_heartbeat(opened, time.time())

    write_heartbeat(opened, time.time())
    beating = threading.Thread(target=beat)
    beating.start()
    yield opened
    stop.set()
    beating.join()
    opened.close()


@pytest.fixture(scope="module")
def address(folder, store):
    secrets = folder / ".streamlit" / "secrets.toml"
    secrets.parent.mkdir()
    lines = (f'{name} = "{hashed(SECRET)}"' for name in ("ada", "grace", "ben"))
    secrets.write_text("[dashboard.passwords]\n" + "\n".join(lines) + "\n")
    with command(folder, "--port", "8974") as process:
        yield listening(process)[0]


@contextlib.contextmanager
def person(browser, address, name, path):
    """Open a page in a browser of its own, signed in."""
    with contextlib.closing(browser.new_context(viewport={"width": 1280, "height": 1000})) as context:
        page = context.new_page()
        page.set_default_timeout(120_000)
        page.goto(f"{address}/{path}")
        sign_in(page, name)
        yield page


def test_one_person_asks_another_approves_and_the_first_starts(browser, address, store):
    add_dead_letters(store, 3)
    planned = replay.plan(
        store, DeadLetterFilter(), who="ada", origin="dashboard", can_run=CLUSTER, check_first=True
    )
    preflight_done(store, planned.operation_id)
    at = f"replays?operation={planned.operation_id}"
    with person(browser, address, "ada", at) as page:
        page.get_by_role("button", name="Ask to replay 3").click()
        page.get_by_text("Waiting for approval by a second person").wait_for()
        keep(page, "approval-asked")
        page.reload()
        page.get_by_text("Another person decides it").wait_for()
        assert page.get_by_role("button", name="Approve").count() == 0
    (request,) = requests.list_requests(store)

    with person(browser, address, "ben", "replays") as page:
        page.get_by_text("An approver decides it").wait_for()
        assert page.get_by_role("button", name="Approve").count() == 0

    with person(browser, address, "grace", f"replays?request={request.request_id}") as page:
        page.get_by_role("button", name="Approve").wait_for()
        keep(page, "approval-decide")
        page.get_by_role("textbox", name="Reason").fill("checked with the shop")
        page.get_by_role("button", name="Approve").click()
        page.get_by_text("Approved by grace").wait_for()
        page.goto(f"{address}/replays")
        page.get_by_text("checked with the shop").first.wait_for()
        keep(page, "approval-list")

    with person(browser, address, "ada", at) as page:
        page.get_by_text("Approved by grace").wait_for()
        keep(page, "approval-granted")
        page.get_by_role("button", name="Replay 3 now").click()
        eventually(lambda: replay.get(store, planned.operation_id).state == "planned")
    used = requests.get_request(store, request.request_id)
    assert (used.state, used.who, used.decided_by, used.decision) == (
        "used",
        "ada",
        "grace",
        "checked with the shop",
    )
