"""`dlq edit`, `dlq revisions` and `dlq undo` on a store."""

from __future__ import annotations

import json

import pytest
from click.testing import CliRunner

from producer_core.cli import main
from producer_core.dlq import DeadLetters
from producer_core.dlq.revisions.editor import Editor
from producer_core.store import Store
from tests.fixtures.edits import json_dead_letter, malformed
from tests.fixtures.replays import message_id

ONE, TWO, LINE = message_id(1), message_id(2), message_id(3)
BECAUSE = ("--reason", "wrong unit")


@pytest.fixture
def path(tmp_path):
    store = Store.open(tmp_path / "store.duckdb")
    values = {"amount": 12.5, "password": "hunter2", "items": [{"price": 1}]}
    DeadLetters(store).add(
        [json_dead_letter(1, values), json_dead_letter(2, {"amount": 3}, topic="payments"), malformed(3)]
    )
    return store.path


def run(path, *arguments, **options):
    return CliRunner().invoke(main, ["dlq", *map(str, arguments), "--store", str(path)], **options)


def value_now(path, message_id):
    return Editor(Store.open(path)).decoded(message_id).now.view


def test_an_edit_prints_its_preview_and_asks(path):
    asked = run(path, "edit", "--message-id", ONE, "--set", "amount=7", "--unset", "items[0].price", *BECAUSE)

    assert asked.exit_code == 2 and "use --yes" in asked.output
    assert "1 of 1 dead letter would change." in asked.output
    assert "amount: 12.5 → 7" in asked.output and "items[0].price: 1 → (none)" in asked.output
    assert "hunter2" not in asked.output
    assert value_now(path, ONE)["amount"] == 12.5

    kept = run(path, "edit", "--message-id", ONE, "--set", "amount=7", *BECAUSE, "--yes")

    assert kept.exit_code == 0 and "Edited 1 dead letter." in kept.output
    assert value_now(path, ONE)["amount"] == 7


def test_a_dry_run_and_an_edit_without_a_reason_change_nothing(path):
    dry = run(path, "edit", "--message-id", ONE, "--set", "amount=7", "--dry-run", "--yes", *BECAUSE)
    without = run(path, "edit", "--message-id", ONE, "--set", "amount=7", "--yes")

    assert dry.exit_code == 0 and "Dry run: nothing was changed." in dry.output
    assert without.exit_code == 2 and "needs a reason" in without.output
    assert value_now(path, ONE)["amount"] == 12.5


def test_many_records_are_edited_by_sql(path):
    result = run(
        path, "edit", "--sql", 'json_merge_patch(value, \'{"currency": "EUR"}\')', *BECAUSE, "--yes", "--json"
    )
    found = json.loads(result.stdout)

    assert (found["matched"], found["changed"], found["edited"], found["refused"]) == (
        3,
        2,
        2,
        {"unreadable": 1},
    )
    assert found["samples"][0]["differences"] == [{"path": "currency", "before": None, "after": "EUR"}]
    assert value_now(path, TWO) == {"amount": 3, "currency": "EUR"}


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        ((), "does not say what to change"),
        (("--set", "amount"), "Write it as NAME=VALUE"),
        (("--set", "a..b=1"), "is not a path"),
        (("--value", "{"), "--value is not JSON"),
        (("--value", "@missing.json"), "cannot be read"),
        (("--sql", "value", "--set", "a=1"), "cannot be combined"),
        (("--sql", "nonsense("), "is not valid"),
        (("--set", "password=x", "--message-id", ONE), "is masked and cannot be edited"),
        (("--set", "note=***", "--message-id", ONE), "would contain the mask"),
        (("--set-key", "k2", "--message-id", ONE), "The key is locked"),
        (("--set-header", "pc-revision=9", "--message-id", ONE), "is locked"),
        (("--set", "amount=1", "--message-id", LINE), "has no fields that can be edited"),
    ],
)
def test_an_edit_that_cannot_be_made_names_the_reason(path, arguments, says):
    result = run(path, "edit", *arguments, *BECAUSE, "--yes")

    assert result.exit_code == 2 and says in result.output
    assert not Editor(Store.open(path)).lineage(ONE).revisions


def test_malformed_input_becomes_sendable(path, tmp_path):
    corrected = tmp_path / "corrected.json"
    corrected.write_text('{"order": 1}')

    result = run(
        path, "edit", "--message-id", LINE, "--value", f"@{corrected}", "--set-key", "k1", *BECAUSE, "--yes"
    )

    assert result.exit_code == 0
    assert DeadLetters(Store.open(path)).get(LINE).replayable
    assert "cannot be replayed" not in run(path, "show", LINE).output


def test_revisions_are_shown_and_undone(path):
    run(
        path, "edit", "--message-id", ONE, "--set", "amount=7", "--set-header", "fixed=yes", *BECAUSE, "--yes"
    )
    shown, run_show = run(path, "revisions", ONE), run(path, "show", ONE).output
    undone = run(path, "undo", "--yes")
    found = json.loads(run(path, "revisions", ONE, "--json").stdout)

    assert "revision 1" in shown.output and "wrong unit" in shown.output
    assert "A replay sends revision 1" in run_show
    assert "amount → 7" in shown.output and 'header fixed → "yes"' in shown.output
    assert undone.exit_code == 0 and undone.output.strip() == "Undid 1 edit."
    assert found["revisions"][0]["undone_by"] and found["revisions"][0]["changes"]
    assert value_now(path, ONE)["amount"] == 12.5
    assert "has no edits" in run(path, "revisions", TWO).output
    assert run(path, "revisions", "unknown").exit_code == 2


def test_undo_without_an_edit_says_so(path):
    assert "1 has no edit." in run(path, "undo", "--ids", ONE, "--yes").output
