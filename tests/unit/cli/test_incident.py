"""The `incident` commands, from an export to the import of a raw bundle."""

from __future__ import annotations

import json
import time
import zipfile

import pytest
from click.testing import CliRunner

from producer_core._internal.work_folder import PREFIX
from producer_core.cli import main
from producer_core.dlq import DeadLetterFilter, DeadLetters
from producer_core.store import Store
from tests.fixtures import incidents

ANY = DeadLetterFilter(state=None)


def run(*arguments):
    return CliRunner().invoke(main, ["incident", *map(str, arguments)])


@pytest.fixture
def since():
    return float(int(time.time()) - 7200)


@pytest.fixture
def store(tmp_path, since):
    opened = Store.open(tmp_path / "store.duckdb")
    incidents.fill(opened, since)
    return opened


def export(store, since, target, *more):
    until = since + incidents.LENGTH
    return run(
        "export", "--since", f"@{since}", "--until", f"@{until}", "-o", target, "--store", store.path, *more
    )


def test_an_incident_is_exported_and_shown(store, since, tmp_path):
    target = tmp_path / "INC-42.zip"
    exported = export(store, since, target)
    assert exported.exit_code == 0, exported.output
    assert "22 dead letters, 2 alerts, 0 replays. Masked" in exported.output
    assert "Masked by built-in rules." in exported.output
    assert f"producer-core dashboard --bundle {target}" in exported.output

    shown = run("show", target)
    assert shown.exit_code == 0 and "22 dead letters" in shown.output and "statistics" in shown.output
    as_json = json.loads(run("show", target, "--json").output)
    assert as_json["masked"] is True and as_json["since"] == since
    assert as_json["counts"]["dead_letters"] == 22

    again = export(store, since, target)
    assert again.exit_code == 2 and "already exists" in again.output
    assert export(store, since, target, "--overwrite", "--json").exit_code == 0


def test_a_raw_export_needs_a_confirmation_and_can_be_imported(store, since, tmp_path):
    target, other = tmp_path / "raw.zip", tmp_path / "other.duckdb"
    unconfirmed = export(store, since, target, "--raw")
    assert unconfirmed.exit_code == 2 and not target.exists()
    assert f"Export 20 dead letters with unmasked keys, values and headers to {target}?" in unconfirmed.output
    assert export(store, since, target, "--raw", "--yes").exit_code == 0

    unconfirmed = run("import", target, "--store", other)
    assert unconfirmed.exit_code == 2 and not other.exists()
    assert f"Import 20 dead letters of payments from {target}, exported by " in unconfirmed.output
    assert run("import", target, "--store", other, "--dry-run").exit_code == 2  # there is no store yet
    assert not other.exists()
    done = run("import", target, "--store", other, "--yes", "--json")
    assert done.exit_code == 0, done.output
    assert json.loads(done.stdout)["new"] == 20
    assert DeadLetters(Store.open(other)).count(ANY) == 20
    assert not leftovers(tmp_path)


def leftovers(folder):
    return [*folder.glob(f"{PREFIX}*")]


def test_the_origin_of_a_bundle_is_shown_without_terminal_escapes(store, since, tmp_path):
    target, changed = tmp_path / "a.zip", tmp_path / "changed.zip"
    export(store, since, target)
    with zipfile.ZipFile(target) as old, zipfile.ZipFile(changed, "w") as new:
        for name in old.namelist():
            data = old.read(name)
            if name == "manifest.json":
                data = json.dumps(
                    {**json.loads(data), "created_by": "\x1b[2Jroot", "masking": "\x1b]0;x\x07"}
                )
            new.writestr(name, data)
    shown = run("show", changed)
    assert shown.exit_code == 0 and "root" in shown.output and "\x1b" not in shown.output


def test_a_masked_bundle_is_not_imported_and_creates_no_store(store, since, tmp_path):
    target, other = tmp_path / "a.zip", tmp_path / "other.duckdb"
    export(store, since, target)
    refused = run("import", target, "--store", other, "--yes")
    assert refused.exit_code == 2 and "--raw" in refused.output
    assert not other.exists()


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        (("--since", "@200", "--until", "@100"), "ends before it begins"),
        (("--since", "26:00"), "not a time of the day"),
        (("--since", "yesterday"), "is not a time"),
        ((), "--since"),
    ],
)
def test_an_invalid_range_is_refused(store, tmp_path, arguments, problem):
    result = run("export", *arguments, "-o", tmp_path / "a.zip", "--store", store.path)
    assert result.exit_code == 2 and problem in result.output
    assert not (tmp_path / "a.zip").exists()


def test_a_missing_store_or_bundle_is_reported(tmp_path):
    missing = tmp_path / "missing.duckdb"
    assert run("export", "--since", "1h", "-o", tmp_path / "a.zip", "--store", missing).exit_code == 2
    assert not missing.exists()
    assert "does not exist" in run("show", tmp_path / "missing.zip").output


def test_the_dashboard_takes_a_bundle_or_a_store(store, since, tmp_path):
    target = tmp_path / "a.zip"
    export(store, since, target)
    result = CliRunner().invoke(main, ["dashboard", "--bundle", str(target), "--store", str(store.path)])
    assert result.exit_code == 2 and "either --bundle or --store" in result.output
    (tmp_path / "b.zip").write_bytes(b"no bundle")
    result = CliRunner().invoke(main, ["dashboard", "--bundle", str(tmp_path / "b.zip")])
    assert result.exit_code == 2 and "not an incident bundle" in result.output
