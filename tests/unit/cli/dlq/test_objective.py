"""The `dlq objective` commands."""

from __future__ import annotations

import time

import pytest

from producer_core.dlq import DeadLetters
from producer_core.store import Store
from tests.unit.cli.dlq.test_dlq_group import as_json, dead_letter, run

HOUR = 3600.0


@pytest.fixture
def path(tmp_path):
    store, now = Store.open(tmp_path / "store.duckdb"), time.time()
    DeadLetters(store).add(
        [
            dead_letter(1, failed_at=now - 5 * HOUR),
            dead_letter(2, failed_at=now - 3.5 * HOUR),
            dead_letter(3, failed_at=now - HOUR, topic="payments", verdict="possibly_persisted"),
        ]
    )
    return store.path


def row_of(result, topic):
    return next(line for line in result.output.splitlines() if line.startswith(topic)).split()


def test_an_objective_is_set_listed_and_removed(path):
    assert (
        run(path, "dlq", "objective", "set", "orders", "95%", "4h").output
        == "Objective of orders: 95% within 4 h.\n"
    )
    assert run(path, "dlq", "objective", "set", "*", "99.9", "1d").exit_code == 0

    listed = run(path, "dlq", "objective", "list")
    assert listed.output.startswith("All topics without an objective of their own: 99.9% within 1 d.\n")
    assert row_of(listed, "orders")[1:8] == ["95%", "within", "4", "h", "0.00%", "!", "2"]
    assert "(1 late)" in listed.output and "(1 within 1 h)" in listed.output

    assert run(path, "dlq", "objective", "unset", "orders").output == "Removed the objective of orders.\n"
    found, _ = as_json(path, "dlq", "objective", "list")
    assert found["objectives"] == {"*": {"percent": 99.9, "within": 86400.0}}


def test_the_record_of_a_topic_whose_cluster_was_not_asked_is_unknown(path):
    found, _ = as_json(path, "dlq", "objective", "list")

    records = {one["topic"]: one["record"] for one in found["topics"]}
    assert records == {"orders": "not needed", "payments": "unknown: the cluster was not asked"}


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("set", "orders", "100%", "4h"), "not a percentage between 0 and 100"),
        (("set", "orders", "many", "4h"), "is not a percentage; write, for example, 95%"),
        (("set", "orders", "95%", "0s"), "must be above 0"),
        (("set", "or ders", "95%", "4h"), "is not a topic name"),
        (("unset", "orders"), "has no objective of its own"),
    ],
)
def test_an_invalid_objective_is_refused(path, arguments, message):
    result = run(path, "dlq", "objective", *arguments)

    assert result.exit_code != 0 and message in " ".join(result.output.split())
    assert Store.open(path).settings() == {}
