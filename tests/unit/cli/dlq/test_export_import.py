"""`dlq export` and `dlq import`."""

from __future__ import annotations

import json

import pytest
from click.testing import CliRunner

from producer_core.cli import main
from producer_core.dlq import DeadLetters
from tests.fixtures.replays import add_dead_letters, dead_letter
from tests.fixtures.transfers import rewrite


def run(*arguments):
    return CliRunner().invoke(main, [*map(str, arguments)])


@pytest.mark.slow
def test_the_commands_export_and_import_a_selection(store, tmp_path):
    add_dead_letters(store, 3)
    DeadLetters(store).add([dead_letter(9, topic="payments")])
    target, other = tmp_path / "a.parquet", tmp_path / "other.duckdb"

    exported = run("dlq", "export", target, "--topic", "orders", "--store", store.path)
    unconfirmed = run("dlq", "import", target, "--store", other)
    done = run("dlq", "import", target, "--store", other, "--yes", "--json")

    assert exported.exit_code == 0
    assert "Exported 3 dead letters" in exported.output
    assert "Raw: " in exported.output
    assert unconfirmed.exit_code == 2
    assert "Import 3 dead letters" in unconfirmed.output
    assert done.exit_code == 0
    assert json.loads(done.stdout)["new"] == 3


@pytest.mark.parametrize("name", ["a.jsonl", "a.parquet"])
@pytest.mark.parametrize("option", ["--yes", "--no-manifest"])
def test_the_import_command_rejects_a_masked_file_before_it_creates_a_store(store, tmp_path, name, option):
    add_dead_letters(store, 1)
    run("dlq", "export", tmp_path / name, "--masked", "--store", store.path)

    result = run("dlq", "import", tmp_path / name, "--yes", option, "--store", tmp_path / "new.duckdb")

    assert result.exit_code == 2
    assert "cannot be imported" in result.output
    assert not (tmp_path / "new.duckdb").exists()


@pytest.mark.slow
def test_the_import_command_reports_rejected_rows_with_exit_code_1(store, tmp_path):
    add_dead_letters(store, 3)
    target = tmp_path / "a.jsonl"
    run("dlq", "export", target, "--store", store.path)
    rewrite(target, lambda lines: [lines[0], b"{}\n", lines[2]])

    result = run("dlq", "import", target, "--no-manifest", "--yes", "--store", tmp_path / "other.duckdb")

    assert result.exit_code == 1
    assert "line 2: field " in result.output
