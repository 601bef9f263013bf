"""The dashboard in a real Chromium, over a store that a real producer writes at the same time: that it is live."""

from __future__ import annotations

import re
import signal
import subprocess
import sys

import pytest

from producer_core.store import Store
from tests.services.browsing import answers, go, outside, rows, says, served, window
from tests.support import eventually

pytestmark = pytest.mark.browser


def started(store, *options):
    return subprocess.Popen(
        [sys.executable, "-m", "producer_core.cli", "dashboard", "--store", str(store), *options],
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
    )  # fmt: skip


def tile(page, label):
    return page.locator(f'.pc-tile[data-key="{label}"] .pc-value')


def test_the_command_takes_the_next_port_says_so_and_ends_at_once(address, load):
    taken = re.search(r":(\d+)/", address)[1]
    process = started(load.store, "--port", taken)
    try:
        assert process.stdout.readline().startswith(f"Port {taken} is taken; using ")
        url = re.search(r"http://127\.0\.0\.1:(\d+)", process.stdout.readline())
        assert answers(url[1])
        process.send_signal(signal.SIGINT)
        assert process.wait(60) == 0
        assert not answers(url[1])
    finally:
        process.kill()
        process.wait()
        process.stdout.close()


def test_the_command_does_not_listen_for_other_machines(state_folder):
    process = started(state_folder / "none.duckdb", "--address", "0.0.0.0")
    said, _ = process.communicate(timeout=60)
    assert process.returncode == 2
    assert "Nobody would have to sign in, so the dashboard does not listen for 0.0.0.0" in said


def test_numbers_move_by_themselves_and_nothing_is_asked_of_the_outside(page, address):
    go(page, address)
    says(page, "Delivering|Failing now")  # what tests before this one broke need not be over
    first = tile(page, "Throughput").inner_text()
    eventually(lambda: tile(page, "Throughput").inner_text() != first)
    assert tile(page, "Connection").inner_text() == "connected"
    assert outside(page) == []


def test_a_failing_topic_is_in_the_sentence_at_once_and_its_letters_are_one_click_away(load, page, address):
    go(page, address)
    load.fail("orders", 5)
    load.broker.accept("orders")
    says(page, r"failed in the last 15 min.* on orders: a broker policy forbids the request|orders")
    page.locator(".pc-topics tr", has_text="orders").get_by_role(
        "link", name=re.compile("policy", re.I)
    ).click()
    page.wait_for_url(re.compile("dead-letters.*topic=orders"))
    eventually(lambda: rows(page).count() >= 5)


def test_a_missing_store_is_waited_for_and_the_page_opens_by_itself(browser, tmp_path):
    store = tmp_path / "later" / "store.duckdb"
    with served(store, tmp_path) as server, window(browser) as waiting:
        waiting.goto(server.url)
        waiting.get_by_text("This page waits for it").wait_for()
        assert not store.exists()
        Store.open(store)
        waiting.get_by_text("No producer has written to this store yet").first.wait_for()
