"""Clusters that no longer exist: ended embedded brokers, and those that an operator marked."""

from __future__ import annotations

import pytest

from producer_core.dlq import DeadLetterFilter, DeadLetters
from producer_core.dlq.limits import measure
from producer_core.errors import ConfigError
from producer_core.store.removed_clusters import cluster_states, mark_removed, removed_clusters
from tests.fixtures.dead_letters import NOW, dead_letter
from tests.fixtures.store_batches import heartbeat

OLD, NEW = "embedded-1", "embedded-2"


def running(store, cluster_id, seen_at=NOW, **fields):
    store.append(heartbeat(f"producer-{cluster_id}", 1, cluster_id=cluster_id, seen_at=seen_at, **fields))


def mark(store, cluster_id, removed=True):
    mark_removed(store, cluster_id, removed, who="ada", origin="cli", now=NOW)


def test_an_embedded_broker_without_a_running_producer_no_longer_exists(store):
    DeadLetters(store).add([dead_letter(1, cluster_id=OLD), dead_letter(2, cluster_id=NEW), dead_letter(3)])
    running(store, OLD, closed_at=NOW)
    running(store, NEW)

    assert removed_clusters(store, NOW) == (OLD,)
    assert removed_clusters(store, NOW + 39) == (OLD,)
    assert removed_clusters(store, NOW + 41) == (OLD, NEW)


def test_a_killed_producer_counts_as_running_until_its_heartbeat_is_old(store):
    DeadLetters(store).add([dead_letter(1, cluster_id=OLD)])
    running(store, OLD, seen_at=NOW - 39)

    assert removed_clusters(store, NOW) == ()
    assert removed_clusters(store, NOW + 2) == (OLD,)


def test_a_marked_cluster_no_longer_exists_until_it_is_unmarked(store):
    DeadLetters(store).add([dead_letter(1), dead_letter(2, cluster_id="d")])
    mark(store, "c")

    assert removed_clusters(store, NOW) == ("c",)
    assert [(one.cluster_id, one.pending, one.removed) for one in cluster_states(store, NOW)] == [
        ("c", 1, "marked as removed"),
        ("d", 1, ""),
    ]
    mark(store, "c", removed=False)
    assert removed_clusters(store, NOW) == ()
    assert [row["who"] for row in store.rows("audit_latest")] == ["ada", "ada"]


def test_a_marked_cluster_exists_again_once_one_of_its_producers_is_seen(store):
    DeadLetters(store).add([dead_letter(1)])
    running(store, "c", seen_at=NOW - 60)
    mark(store, "c")
    assert removed_clusters(store, NOW) == ("c",)

    store.append(heartbeat("another", 1, cluster_id="c", seen_at=NOW + 10, closed_at=NOW + 11))

    assert removed_clusters(store, NOW + 100) == ()
    mark_removed(store, "c", True, who="ada", origin="cli", now=NOW + 100)
    assert removed_clusters(store, NOW + 100) == ("c",)


@pytest.mark.parametrize("value", [["c"], {"c": "x"}, {"": 1.0}, {"c": True}])
def test_a_setting_of_another_form_is_refused(store, value):
    with pytest.raises(ConfigError):
        store.change_settings({"removed_clusters": value}, who="ada", origin="cli")


@pytest.mark.parametrize(
    ("cluster_id", "removed", "message"),
    [
        ("unknown", True, "no producer and no dead letter"),
        ("live", True, "is running"),
        ("c", False, "not marked"),
    ],
)
def test_a_wrong_mark_is_refused(store, cluster_id, removed, message):
    DeadLetters(store).add([dead_letter(1)])
    running(store, "live")

    with pytest.raises(ConfigError, match=message):
        mark(store, cluster_id, removed)
    assert store.settings() == {}


def test_the_limits_count_only_the_bytes_of_a_removed_cluster(store):
    DeadLetters(store).add([dead_letter(1, cluster_id=OLD), dead_letter(2)])

    load = measure(store, NOW)

    assert (load.dead_letters, load.removed, load.oldest) == (1, 1, NOW + 2)
    assert load.bytes == 2 * len(dead_letter(1).value)


def test_dead_letters_of_a_removed_cluster_stay_in_the_store(store):
    DeadLetters(store).add([dead_letter(1)])
    mark(store, "c")

    assert DeadLetters(store).count(DeadLetterFilter()) == 1
