"""The records that a replay sends and leaves out, counted in the store."""

from __future__ import annotations

import pytest

from producer_core.dlq import DeadLetters
from producer_core.events import SAFE_VERDICTS
from producer_core.replay import selection_counts
from tests.fixtures.replays import ALL, CLUSTER, add_dead_letters, dead_letter, message_id, planned


@pytest.fixture
def mixed(store):
    """Four dead letters to send, and one of each kind that is left out."""
    DeadLetters(store).add([
        dead_letter(0), dead_letter(1), dead_letter(2, partition=3), dead_letter(3, cluster_id=""),
        dead_letter(4, replayable=False), dead_letter(5, quarantined=True), dead_letter(6, cluster_id="elsewhere"),
    ])  # fmt: skip
    return store


def sent(counted):
    return {(row.topic, row.partition): row.records for row in counted[0]}


def test_sendable_records_are_counted_by_partition_and_skipped_ones_by_reason(mixed):
    found = selection_counts.count_selection(mixed, ALL, None, False, CLUSTER)

    assert sent(found) == {("orders", None): 3, ("orders", 3): 1}
    assert found[1] == {"not_replayable": 1, "quarantined": 1, "other_cluster": 1}


def test_the_byte_count_covers_keys_and_values(mixed):
    rows, _ = selection_counts.count_selection(mixed, ALL, None, False, CLUSTER)

    assert sum(row.bytes for row in rows) == 4 * len(b"k" + b"v0")


def test_without_a_given_cluster_the_most_frequent_one_is_used(mixed):
    assert selection_counts.main_cluster(mixed, ALL) == CLUSTER
    assert selection_counts.count_selection(mixed, ALL, None, False, None)[1]["other_cluster"] == 1


def test_quarantined_records_and_those_of_other_clusters_are_sent_on_request(mixed):
    found = selection_counts.count_selection(mixed, ALL, None, True, None, anywhere=True)

    assert (sum(sent(found).values()), found[1]) == (6, {"not_replayable": 1})


def test_a_limit_counts_the_oldest(mixed):
    found = selection_counts.count_selection(mixed, ALL, 3, False, CLUSTER)

    assert sent(found) == {("orders", None): 2, ("orders", 3): 1}


@pytest.mark.parametrize("limit", [3, 50])
def test_a_small_limit_lists_the_oldest(mixed, limit):
    assert [
        one.message_id for one in selection_counts.iter_selection(mixed, ALL, cluster=CLUSTER, limit=limit)
    ] == [message_id(number) for number in range(min(limit, 4))]


def test_a_limit_lists_the_oldest(store):
    add_dead_letters(store, 60)

    listed = [
        one.message_id for one in selection_counts.iter_selection(store, ALL, cluster=CLUSTER, limit=51)
    ]

    assert listed == [message_id(number) for number in range(51)]


def test_all_records_are_listed_in_slices(mixed, monkeypatch):
    monkeypatch.setattr(selection_counts, "_PAGE_SIZE", 2)

    listed = [one.message_id for one in selection_counts.iter_selection(mixed, ALL, cluster=CLUSTER)]

    assert sorted(listed) == sorted(message_id(number) for number in range(4))


def test_an_operation_counts_its_own_records(mixed, clock):
    operation = planned(mixed, clock)
    DeadLetters(mixed).add([dead_letter(7)])

    found = selection_counts.count_operation(mixed, operation)

    assert sent(found) == {("orders", None): 3, ("orders", 3): 1}
    assert found[1] == {"not_replayable": 1, "quarantined": 1, "other_cluster": 1}


def test_an_empty_selection_counts_nothing(store):
    assert selection_counts.count_selection(store, ALL, None, False, None) == ([], {})
    assert selection_counts.main_cluster(store, ALL) == ""
    assert list(selection_counts.iter_selection(store, ALL)) == []


UNSAFE_VERDICTS = ("possibly_persisted", "inconclusive")


@pytest.fixture
def all_clusters(store):
    """Dead letters of an unknown, of this and of another cluster, each with every verdict; most are of this cluster."""
    verdicts = (*SAFE_VERDICTS, *UNSAFE_VERDICTS)
    kinds = [(cluster, verdict) for cluster in ("", CLUSTER, "elsewhere", CLUSTER) for verdict in verdicts]
    DeadLetters(store).add(
        dead_letter(number, cluster_id=cluster, verdict=verdict)
        for number, (cluster, verdict) in enumerate(kinds)
    )
    return store


@pytest.mark.parametrize("limit", [None, 7])
@pytest.mark.parametrize("to", [None, CLUSTER])
def test_the_dry_run_counts_the_records_that_the_plan_freezes(all_clusters, clock, to, limit):
    cluster = None if to else CLUSTER
    expected = selection_counts.count_selection(all_clusters, ALL, limit, False, CLUSTER, anywhere=bool(to))
    listed = [
        one.message_id
        for one in selection_counts.iter_selection(all_clusters, ALL, cluster=cluster, limit=limit)
    ]

    operation = planned(all_clusters, clock, to_cluster=to, limit=limit)

    with all_clusters.borrow() as connection:
        frozen = connection.execute(
            "SELECT message_id, dead.verdict FROM operation_records AS records JOIN dead_letters AS dead USING (message_id) "
            "WHERE records.operation_id = ? AND records.state = 'pending'",
            [operation.operation_id],
        ).fetchall()
    assert sorted(listed) == sorted(row[0] for row in frozen)
    verdicts = [row.verdict for row in expected[0] for _ in range(row.records)]
    assert sorted(verdicts) == sorted(row[1] for row in frozen)
    if limit is None:
        assert selection_counts.count_operation(all_clusters, operation)[1] == expected[1]
        assert expected[1]["unknown_cluster"] == (0 if to else len(UNSAFE_VERDICTS))
