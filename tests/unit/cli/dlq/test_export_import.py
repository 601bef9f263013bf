"""`dlq export` and `dlq import`."""

from __future__ import annotations

import json

from click.testing import CliRunner

from producer_core.cli import main
from producer_core.dlq import DeadLetters
from tests.fixtures.replays import buried, dead_letter
from tests.fixtures.transfers import spoiled


def run(*arguments):
    return CliRunner().invoke(main, [*map(str, arguments)])


def test_the_command_exports_the_selection_and_imports_it(store, tmp_path):
    buried(store, 3)
    DeadLetters(store).add([dead_letter(9, topic="payments")])
    target, there = tmp_path / "a.parquet", tmp_path / "there.duckdb"

    said = run("dlq", "export", target, "--topic", "orders", "--store", store.path)
    asked = run("dlq", "import", target, "--store", there)
    done = run("dlq", "import", target, "--store", there, "--yes", "--json")

    assert said.exit_code == 0
    assert "Exported 3 dead letters" in said.output
    assert "Raw: " in said.output
    assert asked.exit_code == 2
    assert "Import 3 dead letters" in asked.output
    assert done.exit_code == 0
    assert json.loads(done.stdout)["new"] == 3


def test_the_command_says_why_a_masked_file_is_not_imported(store, tmp_path):
    buried(store, 1)
    run("dlq", "export", tmp_path / "a.jsonl", "--masked", "--store", store.path)

    said = run("dlq", "import", tmp_path / "a.jsonl", "--yes", "--store", store.path)

    assert said.exit_code == 2
    assert "never imported" in said.output


def test_the_command_names_refused_rows_and_exits_with_1(store, tmp_path):
    buried(store, 3)
    target = tmp_path / "a.jsonl"
    run("dlq", "export", target, "--store", store.path)
    spoiled(target, lambda lines: [lines[0], b"{}\n", lines[2]])

    said = run("dlq", "import", target, "--no-manifest", "--yes", "--store", tmp_path / "there.duckdb")

    assert said.exit_code == 1
    assert "line 2: it has no field" in said.output
