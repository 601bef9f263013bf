"""The `metrics` commands on a real store."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
import urllib.error
import urllib.request

import pytest
from click.testing import CliRunner

from producer_core.cli import main
from producer_core.producer.prometheus.server import MetricsServer
from producer_core.store import Batch, StatisticsRow, Store
from tests.fixtures.pages import producer

SENT = (
    'messaging_client_sent_messages_total{messaging_destination_name="orders",messaging_operation_name="send",'
    'messaging_system="kafka"} 7.0'
)


@pytest.fixture
def path(tmp_path):
    path = tmp_path / "store.duckdb"
    now = int(time.time())
    with_seven = StatisticsRow(now, "c", "p", "orders", 7, 7, 0, 0, 0, 0, 0, 0, 70, 0.7)
    store = Store.open(path)
    store.append(Batch("p", 0, (with_seven,), producer=producer("p")))
    store.close()
    return path


def run(path, *arguments):
    return CliRunner().invoke(main, ["metrics", "serve", "--store", str(path), *arguments])


def test_once_prints_the_metrics(path):
    result = run(path, "--once")

    assert result.exit_code == 0
    assert SENT in result.output
    assert "producer_core_producers 1.0" in result.output


def test_once_replaces_a_file_that_node_exporter_can_read(path, tmp_path):
    target = tmp_path / "textfile" / "producer_core.prom"
    target.parent.mkdir()
    target.write_text("old")

    result = run(path, "--once", "--output", str(target))

    assert (result.exit_code, result.output) == (0, "")
    assert SENT in target.read_text()
    assert target.stat().st_mode & 0o777 == 0o644
    assert list(target.parent.iterdir()) == [target]


@pytest.mark.parametrize("name", ["producer_core.txt", "prom", "metrics.prom.tmp"])
def test_a_file_that_node_exporter_does_not_read_is_written_with_a_warning(path, tmp_path, name):
    result = run(path, "--once", "--output", str(tmp_path / name))

    assert result.exit_code == 0
    assert SENT in (tmp_path / name).read_text()
    assert f"Warning: node exporter ignores {name}" in result.stderr
    assert "end with .prom" in result.stderr


def test_a_file_that_cannot_be_written_is_an_error_with_a_fix(path, tmp_path):
    result = run(path, "--once", "--output", str(tmp_path / "absent" / "x.prom"))

    assert result.exit_code == 2
    assert "could not be written: No such file or directory" in result.output
    assert "Choose a file" in result.output


def test_output_requires_once(path, tmp_path):
    result = run(path, "--output", str(tmp_path / "x.prom"))

    assert result.exit_code == 2
    assert "--output requires --once" in result.output


def test_topics_beyond_the_bound_share_a_label(path):
    assert 'messaging_destination_name="other"' in run(path, "--once", "--topics", "0").output


def test_a_missing_client_library_is_an_error_that_names_the_extra(path, monkeypatch):
    monkeypatch.setattr("producer_core.cli.metrics.find_spec", lambda name: None)

    result = run(path, "--once")

    assert result.exit_code == 2
    assert "pip install 'producer-core[prometheus]'" in result.output


def test_a_missing_store_is_an_error_and_is_not_created(tmp_path):
    result = run(tmp_path / "absent.duckdb", "--once")

    assert result.exit_code == 2
    assert "There is no store" in result.output
    assert not (tmp_path / "absent.duckdb").exists()


def test_a_damaged_store_is_an_error(path):
    path.write_bytes(b"no database" * 1000)

    result = run(path, "--once")

    assert result.exit_code == 2
    assert "is not a DuckDB file" in result.output


def test_a_folder_that_does_not_exist_is_an_error_at_the_start(tmp_path):
    result = run(tmp_path / "mistyped" / "store.duckdb", "--port", "0")

    assert result.exit_code == 2
    assert f"The folder {tmp_path / 'mistyped'} of the store does not exist." in result.stderr
    assert "--store" in result.stderr


def test_a_file_that_is_no_store_is_an_error_at_the_start(path):
    path.write_bytes(b"no database" * 1000)

    result = run(path, "--port", "0")

    assert result.exit_code == 2
    assert "is not a DuckDB file" in result.stderr


@pytest.mark.slow
def test_a_port_in_use_is_an_error(path):
    with MetricsServer(lambda: b"", port=0) as server:
        result = subprocess.run(
            command(path, "--port", str(server.port)), capture_output=True, text=True, timeout=60
        )

    assert result.returncode == 2
    assert f"Port {server.port} on 127.0.0.1 is in use." in result.stderr


def command(path, *arguments):
    return [sys.executable, "-m", "producer_core", "metrics", "serve", "--store", str(path), *arguments]


@pytest.mark.slow
@pytest.mark.parametrize("given", [True, False], ids=["given path", "default path"])
def test_serve_answers_503_until_a_producer_creates_the_store(tmp_path, monkeypatch, given):
    """Regression: the command exited with 2, so a service that starts before the producers had to be restarted."""
    monkeypatch.delenv("PRODUCER_CORE_STORE", raising=False)
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    path = tmp_path / "store.duckdb" if given else tmp_path / "producer-core" / "store.duckdb"
    served = subprocess.Popen(
        [*command(path, "--port", "0")[: None if given else -4], *([] if given else ["--port", "0"])],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONUNBUFFERED": "1"},
    )
    try:
        url = served.stdout.readline().partition(" on ")[2].partition(". Stop")[0]
        assert served.stderr.readline() == f"No metrics: There is no store at {path}. " + START_ONE
        for _ in range(2):
            with pytest.raises(urllib.error.HTTPError) as found:
                get(url)
            assert found.value.code == 503
            assert f"There is no store at {path}." in found.value.read().decode()
            found.value.close()
        assert not path.exists()

        Store.open(path).close()
        assert "producer_core_producers 0.0" in get(url)

        served.send_signal(signal.SIGTERM)
        _, errors = served.communicate(timeout=30)
    finally:
        served.kill()
    assert served.returncode == 0
    assert errors == "The store is available.\n"


START_ONE = (
    "Start a producer that writes there, or specify the path: --store on the command line, store= in Python, or "
    "PRODUCER_CORE_STORE.\n"
)


@pytest.mark.slow
def test_serve_answers_until_it_is_stopped_and_reports_an_unavailable_store_once(path):
    served = subprocess.Popen(
        command(path, "--port", "0"),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONUNBUFFERED": "1"},
    )
    try:
        url = served.stdout.readline().partition(" on ")[2].partition(". Stop")[0]
        assert url.startswith("http://127.0.0.1:")
        assert SENT in get(url)

        moved = path.rename(path.with_name("moved.duckdb"))
        for _ in range(2):
            with pytest.raises(urllib.error.HTTPError) as found:
                get(url)
            assert found.value.code == 503
            assert "There is no store" in found.value.read().decode()
            found.value.close()
        moved.rename(path)
        assert SENT in get(url)

        served.send_signal(signal.SIGTERM)
        _, errors = served.communicate(timeout=30)
    finally:
        served.kill()
    assert served.returncode == 0
    assert errors.splitlines()[0].startswith("No metrics: There is no store")
    assert errors.splitlines()[-1] == "The store is available."
    assert errors.count("No metrics") == 1


def get(url):
    with urllib.request.urlopen(url, timeout=30) as response:
        return response.read().decode()


@pytest.mark.slow
def test_a_locked_store_is_an_error_that_names_the_holder(path):
    holder = subprocess.Popen(
        [
            sys.executable,
            "-c",
            f"import duckdb; c = duckdb.connect({str(path)!r}); print('open', flush=True); input()",
        ],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        assert holder.stdout.readline() == "open\n"

        result = run(path, "--once")
    finally:
        holder.communicate("\n", timeout=30)

    assert result.exit_code == 2
    assert f"is open in process {holder.pid}" in result.output
