"""Test the replay worker: with a file of client settings the dashboard's server runs replays itself."""

from __future__ import annotations

import time

import pytest

from producer_core import replay
from producer_core.brokers import embedded
from producer_core.dashboard import actions
from producer_core.dashboard.server import process, replay_worker
from producer_core.dlq import DeadLetterFilter, DeadLetters
from producer_core.errors import ConfigError
from producer_core.store import Store
from tests.fixtures.replays import add_dead_letters, write_heartbeat
from tests.support import eventually

ALL = DeadLetterFilter()


@pytest.fixture
def named(tmp_path, monkeypatch):
    """Return a function that writes a settings file and sets the variable to its path."""

    def write(text):
        file = tmp_path / "client.properties"
        file.write_text(text)
        monkeypatch.setenv(replay_worker.VARIABLE, str(file))
        return file

    return write


def test_without_the_variable_no_worker_starts(tmp_path, monkeypatch):
    monkeypatch.delenv(replay_worker.VARIABLE, raising=False)

    replay_worker.start(tmp_path / "store.duckdb")

    assert replay_worker.worker_settings() is None
    assert replay_worker.worker_of(tmp_path / "store.duckdb") is None


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("acks=all", "names no brokers"),
        ("bootstrap.servers=b:9092\nlinger.mss=5", "linger.mss"),
        ("bootstrap.servers", "not name=value"),
        ('{"bootstrap.servers": ', "not JSON"),
    ],
)
def test_an_invalid_settings_file_stops_the_server_start(named, text, message):
    named(text)

    with pytest.raises(ConfigError, match=message) as caught:
        process.app_options("producer_core.dashboard.app")

    assert replay_worker.VARIABLE in str(caught.value)


def test_a_missing_settings_file_raises_a_config_error(named):
    named("bootstrap.servers=b:9092").unlink()

    with pytest.raises(ConfigError, match=replay_worker.VARIABLE):
        replay_worker.worker_settings()


def test_the_settings_may_be_properties_or_json(named):
    named("# ours\nbootstrap.servers=b1:9092,b2:9092\nlinger.ms=5\nclient.id=shop")
    found = replay_worker.worker_settings()
    assert (found.servers, found.settings) == (
        "b1:9092,b2:9092", {"linger.ms": "5", "client.id": replay_worker.CLIENT_ID},
    )  # fmt: skip

    named('{"bootstrap.servers": "b3:9092"}')
    assert replay_worker.worker_settings().servers == "b3:9092"


@pytest.mark.slow
def test_the_worker_runs_a_replay_without_a_live_producer(tmp_path, named):
    path = tmp_path / "store.duckdb"
    store = Store.open(path)
    with embedded.start(brokers=1, topics={"orders": 2}) as broker:
        add_dead_letters(store, 3, cluster_id="", accepted_at=time.time() - 60)
        named(f"bootstrap.servers={broker.bootstrap_servers}")
        assert not actions.start_replay(store, ALL).ok
        replay_worker.start(path)
        try:
            eventually(lambda: replay.runners(store, time.time()), timeout=30)
            done = actions.start_replay(store, ALL)
            assert done.ok, done.text
            eventually(lambda: replay.get(store, done.operation_id).ended, timeout=30)
        finally:
            replay_worker.stop_all()

    assert replay.get(store, done.operation_id).acknowledged == 3
    assert DeadLetters(store).count(ALL) == 0
    assert replay_worker.worker_of(path) is None
    assert replay.runners(store, time.time()) == [], "the worker unregisters when it stops"


def test_the_worker_is_not_listed_as_a_producer(tmp_path):
    store = Store.open(tmp_path / "store.duckdb")
    now = time.time()
    write_heartbeat(store, now)
    with store.borrow(write=True) as connection:
        connection.execute("UPDATE producers SET client_id = ?", [replay_worker.CLIENT_ID])

    assert store.rows("producers") == []
    assert replay.runners(store, now) == ["p-1"]
