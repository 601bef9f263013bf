"""Test in Chromium that the dashboard updates itself while a producer writes to the store."""

from __future__ import annotations

import re
import signal
import subprocess
import sys

import pytest

from producer_core.store import Store
from tests.acceptance.browsing import external_requests, go, is_healthy, message, rows, served, window
from tests.support import eventually

pytestmark = pytest.mark.browser


def started(store, *options):
    return subprocess.Popen(
        [sys.executable, "-m", "producer_core.cli", "dashboard", "--store", str(store), *options],
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
    )  # fmt: skip


def tile(page, label):
    return page.locator(f'.pc-tile[data-key="{label}"] .pc-value')


def test_the_command_uses_the_next_free_port_and_stops_on_interrupt(address, load):
    taken = re.search(r":(\d+)/", address)[1]
    process = started(load.store, "--port", taken)
    try:
        assert process.stdout.readline().startswith(f"Port {taken} is in use; using ")
        url = re.search(r"http://127\.0\.0\.1:(\d+)", process.stdout.readline())
        assert is_healthy(url[1])
        process.send_signal(signal.SIGINT)
        assert process.wait(60) == 0
        assert not is_healthy(url[1])
    finally:
        process.kill()
        process.wait()
        process.stdout.close()


def test_the_command_refuses_a_public_address(state_folder):
    process = started(state_folder / "none.duckdb", "--address", "0.0.0.0")
    output, _ = process.communicate(timeout=60)
    assert process.returncode == 2
    assert "No sign-in is configured, so the dashboard cannot be served on 0.0.0.0" in output


def test_the_page_updates_itself_without_external_requests(page, address):
    go(page, address)
    message(page, "Delivering|Failing now")  # failures of earlier tests may still be in the range
    first = tile(page, "Throughput").inner_text()
    eventually(lambda: tile(page, "Throughput").inner_text() != first)
    assert tile(page, "Connection").inner_text() == "connected"
    assert external_requests(page) == []


def test_a_failing_topic_appears_in_the_headline_and_links_to_its_dead_letters(load, page, address):
    go(page, address)
    load.fail("orders", 5)
    load.broker.accept("orders")
    message(page, r"failed in the last 15 min.* on orders: a broker policy forbids the request|orders")
    page.locator(".pc-topics tr", has_text="orders").get_by_role(
        "link", name=re.compile("policy", re.I)
    ).click()
    page.wait_for_url(re.compile("dead-letters.*topic=orders"))
    eventually(lambda: rows(page).count() >= 5)


def test_the_page_opens_once_a_missing_store_exists(browser, tmp_path):
    store = tmp_path / "later" / "store.duckdb"
    with served(store, tmp_path) as server, window(browser) as waiting:
        waiting.goto(server.url)
        waiting.get_by_text("This page opens as soon as the store exists").wait_for()
        assert not store.exists()
        Store.open(store)
        waiting.get_by_text("No producer has written to this store yet").first.wait_for()
