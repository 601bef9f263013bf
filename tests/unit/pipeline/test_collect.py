"""A collector continues after errors, restarts and a replaced store, and counts each batch once."""

from __future__ import annotations

import errno
import shutil
import threading
import time

import duckdb
import pytest
from confluent_kafka import Producer

from producer_core.brokers import embedded
from producer_core.errors import (
    BrokerError,
    ConfigError,
    StoreCorrupt,
    StoreError,
    StoreFull,
    StoreLocked,
    StoreTooNew,
)
from producer_core.pipeline import collect as module
from producer_core.pipeline import collected_offsets, preflight
from producer_core.pipeline.collect import collect
from producer_core.pipeline.preflight import MissingPermission
from producer_core.store import Store
from tests.scenarios.pipelines.fleet import Fleet, difference, found, found_in_history, publish

TOPIC = "telemetry"

pytestmark = [pytest.mark.slow, pytest.mark.timeout(60)]  # a collector that does not end


@pytest.fixture
def broker():
    with embedded.start(topics={TOPIC: 2}) as running:
        yield running


@pytest.fixture
def store(tmp_path):
    opened = Store.open(tmp_path / "fleet.duckdb")
    yield opened
    opened.close()


@pytest.fixture
def run(broker, store):
    """Collect the current records."""

    def collected(**choices):
        given = {
            "servers": broker.bootstrap_servers,
            "topics": [TOPIC],
            "once": True,
            "every": 0.1,
            **choices,
        }
        return collect(store, **given)

    return collected


@pytest.fixture
def follow(run, monkeypatch):
    """Run a collector in this thread until it has this number of batches, and nothing more to do; return its states."""
    monkeypatch.setattr(module, "_RETRY", (0.1, 0.1))
    monkeypatch.setattr(module, "_CHECK_S", 0.1)

    def collected(batches=0, *, on_progress=lambda state: None, ended=None, **choices):
        done, states = threading.Event(), []

        def progress(state):
            states.append(state)
            on_progress(state)
            if ended() if ended else state.done.batches >= batches and states[-2:] == [state] * 2:
                done.set()

        run(once=False, stopped=done.is_set, on_progress=progress, **choices)
        return states

    return collected


def fleet(seed=1, **choices):
    return Fleet(
        **{"producers": 3, "seconds": 10, "now": time.time(), "seed": seed, "unreadable": 0, **choices}
    )


def send(broker, *values, topic=TOPIC):
    client = Producer({"bootstrap.servers": broker.bootstrap_servers})
    for value in values:
        client.produce(topic, value, partition=0)
    assert client.flush(20) == 0


def difference_to(store, truth):
    with store.borrow() as connection:
        return difference(found(connection), truth)


def failing(error, times=1, at="in the transaction"):
    """Return a `reached` that raises `error` at the first visits of a step."""
    left = iter(range(times))

    def reached(point):
        if point == at and next(left, None) is not None:
            raise error

    return reached


def lines(caplog, text):
    return [entry for entry in caplog.records if entry.getMessage().startswith(text)]


@pytest.mark.parametrize("point", ["drafted", "in the transaction", "merged"])
def test_a_history_has_each_row_once_when_a_piece_is_merged_again(broker, store, follow, tmp_path, point):
    sent = fleet()
    publish(broker.bootstrap_servers, TOPIC, sent.records)

    follow(
        len(sent.records), history=tmp_path / "history", reached=failing(StoreLocked("in use"), 2, at=point)
    )

    assert difference_to(store, sent.truth) == ""
    with store.borrow() as connection:
        assert difference(found_in_history(connection, tmp_path / "history"), sent.truth) == ""


@pytest.mark.parametrize(
    "error", [StoreFull(), StoreLocked("in use"), OSError(errno.ENOSPC, "No space left on device")], ids=repr
)
def test_a_running_collector_waits_for_a_full_disk_and_a_store_in_use(broker, store, follow, caplog, error):
    """The error is logged when it begins and when it ends; each state reports it."""
    sent = fleet()
    publish(broker.bootstrap_servers, TOPIC, sent.records)

    states = follow(len(sent.records), reached=failing(error, times=4))

    assert difference_to(store, sent.truth) == ""
    assert [str(error) in state.trouble for state in states if state.trouble] == [True] * 4
    assert (
        len(lines(caplog, "telemetry not collected")) == len(lines(caplog, "telemetry collected again")) == 1
    )


@pytest.mark.parametrize(
    "error", [StoreCorrupt(), StoreTooNew(), StoreError("a failed query"), ConfigError("")], ids=repr
)
def test_a_collector_ends_at_an_error_that_does_not_pass(broker, follow, error):
    publish(broker.bootstrap_servers, TOPIC, fleet().records)
    with pytest.raises(type(error)):
        follow(1, reached=failing(error))


class Reach:
    """Checks the topics, or fails: the embedded broker has no partition without leader and no permissions."""

    def __init__(self, monkeypatch):
        self.errors = iter(())
        monkeypatch.setattr(collected_offsets, "reach", self)

    def __call__(self, config, topics, **options):
        if error := next(self.errors, None):
            raise error
        return preflight.reach(config, topics, **options)


def test_a_running_collector_waits_while_its_topic_cannot_be_described(broker, store, follow, monkeypatch):
    before, after, reach = fleet(1), fleet(2), Reach(monkeypatch)
    publish(broker.bootstrap_servers, TOPIC, before.records)

    def progress(state):
        if state.done.batches == len(before.records) and not state.trouble and state.behind == 0:
            reach.errors = iter([BrokerError("no leader")] * 3)
            publish(broker.bootstrap_servers, TOPIC, after.records)

    states = follow(len(before.records) + len(after.records), on_progress=progress)

    assert [state.trouble for state in states if state.trouble][:3] == ["no leader"] * 3
    for name in ("counters", "buckets", "errors"):
        getattr(after.truth, name).update(getattr(before.truth, name))
    assert difference_to(store, after.truth) == ""


def test_a_check_that_fails_is_repeated_before_more_is_read(broker, follow, monkeypatch):
    """The errors of the consumer cause the first check; they are gone when it is repeated."""
    monkeypatch.setattr(module, "_CHECK_S", 3600.0)
    reach, troubles = Reach(monkeypatch), []

    def progress(state):
        if not troubles:
            reach.errors = iter([BrokerError("no leader")] * 12)
            broker.down()
            broker.up()
        troubles.append(bool(state.trouble))

    follow(on_progress=progress, ended=lambda: True in troubles and not troubles[-1])

    assert troubles[troubles.index(True) :] == [True] * 12 + [False]


def test_the_loss_of_the_permission_to_read_ends_a_running_collector(follow, monkeypatch):
    reach = Reach(monkeypatch)

    def revoke(state):
        reach.errors = iter([MissingPermission("READ was revoked")])

    with pytest.raises(MissingPermission, match="READ was revoked"):
        follow(1, on_progress=revoke)


def test_a_topic_that_cannot_be_read_at_the_start_ends_the_collector(follow, monkeypatch):
    Reach(monkeypatch).errors = iter([BrokerError("no leader")])
    with pytest.raises(BrokerError, match="no leader"):
        follow(1)


def test_only_a_store_without_offsets_refuses_a_piece_without_telemetry(broker, store, run):
    foreign = [b"order %d" % number for number in range(150)]
    sent = fleet()
    publish(broker.bootstrap_servers, TOPIC, sent.records)
    run()
    send(broker, *foreign)

    restarted = run()

    assert (restarted.merged, restarted.set_aside) == (0, 150)
    assert difference_to(store, sent.truth) == ""


def test_a_new_store_refuses_a_topic_without_telemetry_at_every_start(broker, store, run):
    send(broker, *(b"order %d" % number for number in range(150)))
    for _ in range(2):
        with pytest.raises(ConfigError, match="is telemetry"):
            run()


def test_a_store_that_is_replaced_by_a_copy_gets_the_batches_that_it_lacks(
    broker, store, run, tmp_path, caplog
):
    sent = fleet()
    publish(broker.bootstrap_servers, TOPIC, sent.records[:8])
    run()
    replace = replaced_once(store, store.snapshot(tmp_path / "copy.duckdb"))
    publish(broker.bootstrap_servers, TOPIC, sent.records[8:20])
    run()
    publish(broker.bootstrap_servers, TOPIC, sent.records[20:])

    run(reached=replace)

    assert difference_to(store, sent.truth) == ""
    assert len(lines(caplog, "telemetry is read again from the store's offsets")) == 1


def test_a_history_is_not_continued_by_a_copy_that_replaces_its_store(broker, store, run, tmp_path):
    sent, history = fleet(), tmp_path / "history"
    publish(broker.bootstrap_servers, TOPIC, sent.records[:8])
    run(history=history)
    replace = replaced_once(store, store.snapshot(tmp_path / "copy.duckdb"))
    publish(broker.bootstrap_servers, TOPIC, sent.records[8:20])
    run(history=history)
    publish(broker.bootstrap_servers, TOPIC, sent.records[20:])

    with pytest.raises(ConfigError, match="never merged"):
        run(history=history, reached=replace)


def replaced_once(store, copy):
    """Return a `reached` that replaces the store's file by a copy when the first piece is read."""
    left = iter([True])

    def reached(point):
        if point == "drafted" and next(left, None):
            shutil.copy(copy, store.path)

    return reached


def test_records_that_are_set_aside_have_files_of_their_own_for_each_cluster(broker, store, run):
    send(broker, b"first cluster")
    run()
    with embedded.start(topics={TOPIC: 2}) as other:
        send(other, b"other cluster")
        run(servers=other.bootstrap_servers)
        run(servers=other.bootstrap_servers)

    assert set_aside(store) == [b"first cluster", b"other cluster"]


def test_a_topic_with_the_longest_name_can_be_collected(broker, store, run):
    name = "t" * 249
    broker.create_topic(name, 1)
    send(broker, b"no telemetry", topic=name)
    run(topics=[name])

    assert set_aside(store) == [b"no telemetry"]


def set_aside(store):
    found = duckdb.sql(
        f"SELECT value FROM read_parquet('{store.path}.collect-set-aside/*.parquet') ORDER BY 1"
    )
    return [value for (value,) in found.fetchall()]


def test_the_end_of_a_run_publishes_its_history_without_the_thread_of_the_maintenance(broker, run, tmp_path):
    """Both would write the same files."""
    seen = []

    def reached(point):
        if point == "published":
            seen.append([thread.name for thread in threading.enumerate()])

    publish(broker.bootstrap_servers, TOPIC, fleet().records)
    run(history=tmp_path / "history", reached=reached)

    assert len(seen) == 1 and "pipeline-maintenance" not in seen[0]
