"""A dashboard that was given client settings, in a real Chromium: it carries out what is clicked with no producer alive."""

from __future__ import annotations

import time

import pytest

from producer_core import replay as replays
from producer_core.brokers import embedded
from producer_core.dlq import DeadLetterFilter, DeadLetters
from producer_core.store import Store
from tests.services.browsing import button, go, listed, replay, says, served, window
from tests.support import eventually
from tests.unit.replaying import dead_letter

pytestmark = pytest.mark.browser


@pytest.fixture
def broker():
    with embedded.start(brokers=1, topics={"orders": 1, "thousand": 1}) as running:
        yield running


@pytest.fixture
def store(tmp_path):
    return Store.open(tmp_path / "store.duckdb")


def bury(store, topic, count, *, ago):
    now = time.time()
    DeadLetters(store).add(
        [
            dead_letter(
                len(topic) * 100 + n, topic=topic, cluster_id="", key=f"{topic}-{n}".encode(),
                accepted_at=now - ago - 10 + n / 1000, failed_at=now - ago + n / 1000,
            )
            for n in range(count)
        ]
    )  # fmt: skip


def test_it_carries_out_a_click_asks_where_it_must_and_says_so_in_the_settings(
    browser, store, tmp_path, broker
):
    bury(store, "orders", 3, ago=600)
    bury(store, "thousand", 1_001, ago=600)
    file = tmp_path / "client.properties"
    file.write_text(f"bootstrap.servers={broker.bootstrap_servers}\n")
    with (
        served(store.path, tmp_path, env={"PRODUCER_CORE_CONFIG": str(file)}) as server,
        window(browser) as page,
    ):
        eventually(lambda: replays.runners(store, time.time()), timeout=60)
        go(page, f"{server.url}dead-letters?topic=orders")
        listed(page, 3)
        replay(page, 3)
        says(page, "Replayed 3 of 3")

        go(page, f"{server.url}dead-letters?topic=thousand")
        button(page, "Replay 1,001 …").click()
        button(page, "Replay 1,001 now").wait_for()
        assert DeadLetters(store).count(DeadLetterFilter(topic="thousand")) == 1_001
        button(page, "Replay 1,001 now").click()
        says(page, "Replayed 1,001 of 1,001")

        go(page, f"{server.url}settings")
        page.get_by_text("Run by this server with").first.wait_for()


def test_without_settings_and_without_a_producer_the_button_says_what_would_help(browser, store, tmp_path):
    bury(store, "orders", 2, ago=20)
    with served(store.path, tmp_path) as server, window(browser) as page:
        go(page, f"{server.url}dead-letters?topic=orders")
        listed(page, 2)
        assert button(page, "Replay 2").is_disabled()
        says(page, "Nobody can replay these now.")
        page.get_by_text("set to a client configuration file").first.wait_for()
        says(page, "Their cause may still be there: 2 dead letters died of it within 2 min")
