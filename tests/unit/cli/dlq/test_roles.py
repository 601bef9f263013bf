"""The commands outside the dashboard that change dead letters or settings need the same roles as the pages."""

from __future__ import annotations

import pytest
from click.testing import CliRunner

from producer_core._internal.identity import system_user
from producer_core.cli import main
from producer_core.dlq import DeadLetters
from producer_core.dlq.files import export
from producer_core.dlq.topics import fetch, fetcher
from producer_core.errors import BrokerUnreachable, NotPermitted
from producer_core.store import Store
from tests.fixtures.approvals import POLICY, write_policy
from tests.fixtures.replays import ALL, add_dead_letters

ME = system_user()
AS_OPERATOR = POLICY.replace('"ada", "grace", "ann"', f'"ada", "{ME}"')
AS_ADMIN = POLICY.replace('"root-of-all"', f'"{ME}"')


@pytest.fixture
def store(tmp_path):
    opened = Store.open(tmp_path / "store.duckdb")
    add_dead_letters(opened, 2)
    yield opened
    opened.close()


@pytest.fixture
def exported(tmp_path, store):
    target = tmp_path / "dead-letters.jsonl"
    export(store, ALL, target, who="ann", origin="python")
    return target


@pytest.fixture
def group(store):
    (found, *_) = DeadLetters(store).page(ALL).dead_letters
    return found.fingerprint


def run(store, *words):
    return CliRunner().invoke(main, [*map(str, words), "--store", str(store.path)])


def commands(exported, group):
    return {
        "import": ("dlq", "import", exported, "--yes"),
        "resolve": ("dlq", "resolve", group),
        "reopen": ("dlq", "reopen", group),
        "objective set": ("dlq", "objective", "set", "orders", "99%", "4h"),
        "objective unset": ("dlq", "objective", "unset", "orders"),
    }


@pytest.mark.parametrize("name", ["import", "resolve", "reopen", "objective set", "objective unset"])
def test_a_viewer_changes_nothing_by_a_command(store, exported, group, name, tmp_path, monkeypatch):
    words = commands(exported, group)[name]
    if name == "reopen":
        assert run(store, *commands(exported, group)["resolve"]).exit_code == 0
    if name == "objective unset":
        assert run(store, *commands(exported, group)["objective set"]).exit_code == 0
    path = write_policy(monkeypatch, tmp_path)
    refused = run(store, *words)
    assert refused.exit_code != 0
    assert "is a viewer and may not change or replay dead letters" in refused.output.replace("\n", " ")
    path.write_text(AS_OPERATOR)
    done = run(store, *words)
    assert done.exit_code == 0, done.output


@pytest.mark.parametrize("text", [POLICY, AS_OPERATOR], ids=["viewer", "operator"])
def test_only_an_admin_changes_the_settings_of_a_store_with_admins(store, tmp_path, monkeypatch, text):
    path = write_policy(monkeypatch, tmp_path, text)
    refused = run(store, "store", "set", "keep_settled=60d")
    assert refused.exit_code != 0
    assert "may not change the settings of the store" in refused.output.replace("\n", " ")
    assert store.settings() == {}
    path.write_text(AS_ADMIN)
    assert run(store, "store", "set", "keep_settled=60d").exit_code == 0


def test_an_operator_changes_the_settings_of_a_store_without_admins(store, tmp_path, monkeypatch):
    write_policy(monkeypatch, tmp_path, AS_OPERATOR.replace('admin = ["root-of-all"]', ""))
    assert run(store, "store", "set", "keep_settled=60d").exit_code == 0


def test_a_viewer_does_not_fetch_a_dead_letter_topic(store, tmp_path, monkeypatch):
    monkeypatch.setattr(fetcher, "_REQUEST_TIMEOUT", 0.5)
    settings = {"bootstrap.servers": "127.0.0.1:1", "socket.timeout.ms": 500}
    path = write_policy(monkeypatch, tmp_path)
    with pytest.raises(NotPermitted):
        fetch(settings, "orders.DLQ", store, who="ann@host", origin="cli")
    path.write_text(AS_OPERATOR)
    with pytest.raises(BrokerUnreachable):
        fetch(settings, "orders.DLQ", store, who="ann@host", origin="cli")
