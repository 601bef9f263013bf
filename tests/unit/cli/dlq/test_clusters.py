"""The `dlq clusters` commands, and how lists tell apart the dead letters of a cluster that no longer exists."""

from __future__ import annotations

import pytest

from producer_core.dlq import DeadLetters
from producer_core.store import Store
from tests.unit.cli.dlq.test_dlq_group import as_json, dead_letter, run


@pytest.fixture
def path(tmp_path):
    store = Store.open(tmp_path / "store.duckdb")
    DeadLetters(store).add([dead_letter(1), dead_letter(2, cluster_id="embedded-1"), dead_letter(3)])
    return store.path


def listed(path):
    return {
        one["cluster_id"]: one["removed"] for one in as_json(path, "dlq", "clusters", "list")[0]["clusters"]
    }


def test_a_cluster_is_marked_as_removed_and_unmarked(path):
    assert listed(path) == {"c1": "", "embedded-1": "its embedded broker has ended"}

    marked = run(path, "dlq", "clusters", "mark-removed", "c1")
    assert marked.output == "Marked the cluster c1 as removed. No alert counts its dead letters.\n"
    assert listed(path)["c1"] == "marked as removed"
    assert "no longer exists: marked as removed" in run(path, "dlq", "clusters", "list").output

    assert run(path, "dlq", "clusters", "unmark", "c1").exit_code == 0
    assert listed(path)["c1"] == ""


def test_an_unknown_cluster_is_refused(path):
    refused = run(path, "dlq", "clusters", "mark-removed", "c2")

    assert refused.exit_code != 0 and "no producer and no dead letter of the cluster 'c2'" in refused.stderr


def test_a_list_tells_the_dead_letters_of_a_removed_cluster_apart(path):
    output = " ".join(run(path, "dlq", "list").output.split())
    assert "1 dead letter is of a cluster that no longer exists, and no alert counts it." in output
    found, _ = as_json(path, "dlq", "list")
    assert {one["cluster_id"]: one["cluster_removed"] for one in found["records"]} == {
        "c1": False,
        "embedded-1": True,
    }

    run(path, "dlq", "archive", "--cluster", "embedded-1", "--yes")
    output = run(path, "dlq", "list").output
    assert "no longer exists" not in output and "cluster" not in output.splitlines()[0]


def test_one_dead_letter_shows_that_its_cluster_no_longer_exists(path):
    of_removed, _ = as_json(path, "dlq", "list", "--cluster", "embedded-1")
    (record,) = of_removed["records"]

    assert "embedded-1, which no longer exists" in run(path, "dlq", "show", record["message_id"]).output
    assert as_json(path, "dlq", "show", record["message_id"])[0]["cluster_removed"] is True
