"""Test in Chromium that a dashboard with client settings runs replays without a live producer."""

from __future__ import annotations

import time

import pytest

from producer_core import replay as replays
from producer_core.brokers import embedded
from producer_core.dlq import DeadLetterFilter, DeadLetters
from producer_core.store import Store
from tests.acceptance.browsing import button, go, listed, message, replay, served, window
from tests.fixtures.replays import dead_letter
from tests.support import eventually

pytestmark = pytest.mark.browser


@pytest.fixture
def broker():
    with embedded.start(brokers=1, topics={"orders": 1, "thousand": 1}) as running:
        yield running


@pytest.fixture
def store(tmp_path):
    return Store.open(tmp_path / "store.duckdb")


def add_dead_letters(store, topic, count, *, ago):
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


def test_the_server_runs_replays_and_the_settings_page_shows_that(browser, store, tmp_path, broker):
    add_dead_letters(store, "orders", 3, ago=600)
    add_dead_letters(store, "thousand", 1_001, ago=600)
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
        message(page, "Replayed 3 of 3")

        go(page, f"{server.url}dead-letters?topic=thousand")
        button(page, "Replay 1,001 …").click()
        button(page, "Replay 1,001 now").wait_for()
        assert DeadLetters(store).count(DeadLetterFilter(topic="thousand")) == 1_001
        button(page, "Replay 1,001 now").click()
        message(page, "Replayed 1,001 of 1,001")

        go(page, f"{server.url}settings")
        page.get_by_text("Run by this server with").first.wait_for()


def test_without_a_runner_replay_is_disabled_and_explains_the_options(browser, store, tmp_path):
    add_dead_letters(store, "orders", 2, ago=20)
    with served(store.path, tmp_path) as server, window(browser) as page:
        go(page, f"{server.url}dead-letters?topic=orders")
        listed(page, 2)
        assert button(page, "Replay 2").is_disabled()
        message(page, "These dead letters cannot be replayed now.")
        page.get_by_text("set to a client configuration file").first.wait_for()
        message(page, "The cause may still be active: 2 new dead letters within 2 min")
