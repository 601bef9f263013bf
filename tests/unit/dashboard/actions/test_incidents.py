"""Test the download of an incident bundle: masking, limits, audit, and its command."""

from __future__ import annotations

import re
import shlex

import pytest

from producer_core.cli import main
from producer_core.dashboard.actions import incidents
from producer_core.diagnostics.incident import IncidentBundle, IncidentWindow
from producer_core.errors import TransferError
from tests.fixtures import incidents as fixtures

SINCE = 1_700_000_000.0


@pytest.fixture
def window():
    return IncidentWindow(SINCE, SINCE + fixtures.LENGTH)


@pytest.fixture
def filled(store, window):
    fixtures.fill(store, window.since)
    return store


def test_a_download_is_a_masked_bundle_of_the_range_and_audited(filled, window, tmp_path):
    file = incidents.export(filled, window, who="ada")
    assert file.name == "incident-20231114-2213.zip"
    (tmp_path / file.name).write_bytes(file.content)
    with IncidentBundle(tmp_path / file.name) as bundle:
        found = bundle.manifest
        assert bundle.store.info().rows["dead_letters"] == 22
    assert (found.masked, found.origin, found.created_by) == (True, "dashboard", "ada")
    assert (found.since, found.until) == (window.since, window.until)
    entry = filled.rows("audit_latest", limit=1)[0]
    assert (entry["action"], entry["who"], entry["count"]) == ("incident", "ada", 22)


def test_a_large_store_or_bundle_is_refused_with_the_command(filled, window, monkeypatch):
    monkeypatch.setattr(incidents, "MAX_BYTES", 1000)
    with pytest.raises(TransferError, match="a download has at most") as caught:
        incidents.export(filled, window, who="ada")
    assert "command" in caught.value.fix
    monkeypatch.setattr(incidents, "MAX_STORE", 1000)
    before = len(filled.rows("audit_latest", limit=100))
    with pytest.raises(TransferError, match="a download copies at most"):
        incidents.export(filled, window, who="ada")
    assert len(filled.rows("audit_latest", limit=100)) == before  # nothing was copied


def test_the_command_exports_the_same_range(filled, window, tmp_path, monkeypatch):
    from click.testing import CliRunner

    monkeypatch.chdir(tmp_path)
    program, *arguments = shlex.split(incidents.command(filled.path, window))
    assert program == "producer-core"
    done = CliRunner().invoke(main, arguments)
    assert done.exit_code == 0, done.output
    with IncidentBundle(tmp_path / incidents.name(window)) as bundle:
        assert (bundle.manifest.since, bundle.manifest.until) == (window.since, window.until)
    assert re.search(r"--since=2023-11-14T22:13:20Z", incidents.command(filled.path, window))
