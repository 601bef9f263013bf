"""The commands `dlq resolve` and `dlq reopen`, and a resolved cause that is back in `dlq groups`."""

from __future__ import annotations

import time

import pytest

from producer_core.dlq import DeadLetters
from producer_core.store import Store
from tests.unit.cli.dlq.test_dlq_group import as_json, dead_letter, run

GROUP = "aaaabbbbcccc"


@pytest.fixture
def path(tmp_path):
    store = Store.open(tmp_path / "store.duckdb")
    DeadLetters(store).add([dead_letter(1, application_version="4.2.0")])
    return store.path


def resolution(path):
    (group,) = as_json(path, "dlq", "groups")[0]["groups"]
    return group["resolution"]


def test_a_resolved_cause_that_returns_shows_its_version_and_its_history(path):
    assert resolution(path) is None
    done = run(path, "dlq", "resolve", GROUP, "--in", "4.2.1", "--note", "Schema fixed.")
    assert done.output == "Marked the cause of 1 dead letter as resolved. They stay as they are.\n"
    assert resolution(path)["state"] == "resolved"

    DeadLetters(Store.open(path)).add(
        [dead_letter(2, application_version="4.2.1", failed_at=time.time() + 1)]
    )

    output = run(path, "dlq", "groups").output
    assert "back since 4.2.1, " in output and "1 failure, 1 pending" in output
    assert " in 4.2.1: Schema fixed." in output
    found = resolution(path)
    assert (found["state"], found["back_in"], len(found["history"])) == ("back", "4.2.1", 1)


def test_a_reopened_cause_keeps_its_history(path):
    run(path, "dlq", "resolve", GROUP)
    assert run(path, "dlq", "reopen", GROUP).output == "The cause is open again.\n"

    assert resolution(path)["state"] == "reopened"
    assert " reopened it" in run(path, "dlq", "groups").output


def test_an_unknown_group_is_refused(path):
    refused = run(path, "dlq", "resolve", "fffffffff")

    assert refused.exit_code != 0 and "No dead letter has the cause 'fffffffff'" in refused.stderr


def test_show_has_the_version_of_the_application(path):
    (record,) = as_json(path, "dlq", "list")[0]["records"]

    assert record["application_version"] == "4.2.0"
    assert "version 4.2.0" in run(path, "dlq", "show", record["message_id"]).output
