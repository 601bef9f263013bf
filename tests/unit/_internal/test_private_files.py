"""With a lax umask, other users can neither read a producer's files nor change code that the dashboard executes."""

from __future__ import annotations

import os
import stat

import pytest

from producer_core import ReliableKafkaProducer
from producer_core._internal import private_files
from producer_core.brokers import detached, embedded
from producer_core.dashboard.server import command


@pytest.fixture(autouse=True)
def lax_umask():
    before = os.umask(0)
    yield
    os.umask(before)


def open_to_others(folder):
    return [
        str(path.relative_to(folder))
        for path in sorted(folder.rglob("*"))
        if stat.S_IMODE(path.lstat().st_mode) & 0o077
    ]


@pytest.mark.slow
def test_a_producer_writes_no_file_that_others_can_read(tmp_path):
    with (
        embedded.start(topics={"orders": 1}) as broker,
        ReliableKafkaProducer(
            broker.bootstrap_servers, journal_dir=tmp_path / "a" / "b" / "journal", store=tmp_path / "c" / "d" / "store.duckdb",
            telemetry_topic="telemetry",
        ) as producer,
    ):  # fmt: skip
        producer.send_message("orders", {"n": 1})
        producer.flush(20)

    assert any((tmp_path / "a" / "b" / "journal").iterdir())
    assert (tmp_path / "a" / "b" / "journal" / "telemetry").is_dir()
    assert open_to_others(tmp_path) == []


def test_code_that_the_dashboard_executes_is_private(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "home" / "state"))

    folder = command.launch_folder()

    assert (folder / "app.py").exists()
    assert open_to_others(tmp_path) == []


def test_a_code_directory_with_open_permissions_is_made_private(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    folder = tmp_path / "producer-core" / "dashboard-5"
    folder.mkdir(parents=True)

    command.launch_folder()

    assert stat.S_IMODE(folder.stat().st_mode) == 0o700


def test_broker_state_is_private(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "home" / "state"))

    with detached._locked():
        pass

    assert stat.S_IMODE((tmp_path / "home" / "state" / "producer-core" / "broker").stat().st_mode) == 0o700


def test_a_directory_shared_on_purpose_keeps_its_mode(tmp_path):
    shared = tmp_path / "shared"
    shared.mkdir(mode=0o777)

    private_files.make_folder(shared / "a" / "b")

    assert stat.S_IMODE(shared.stat().st_mode) == 0o777
    assert open_to_others(shared) == []


def test_replacing_an_open_file_makes_it_private(tmp_path):
    path = tmp_path / "file"
    path.write_text("old and longer")

    private_files.write(path, "new")

    assert path.read_text() == "new" and stat.S_IMODE(path.stat().st_mode) == 0o600
