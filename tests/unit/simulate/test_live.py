"""The parts of `make run`: its signals, its child process, its port and its target."""

import contextlib
import os
import signal
import subprocess
import sys
from pathlib import Path

import psutil
import pytest

from producer_core.dlq import DeadLetterFilter, DeadLetters
from producer_core.errors import BrokerUnreachable, MissingTool
from producer_core.simulate import live
from producer_core.simulate.dashboard_process import HOST, DashboardProcess, ReservedPort
from producer_core.simulate.live_run import LiveRun
from producer_core.simulate.load import SHARES, ShopLoad, topic_names
from producer_core.simulate.own_store import own_store
from producer_core.simulate.parent_watchdog import with_watchdog
from producer_core.simulate.target_cluster import real_target, store_path
from producer_core.store import Store
from tests.fixtures.replays import dead_letter
from tests.support import eventually

SERVER = """
import http.server, sys
print("starting", flush=True)
class Answer(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(200 if self.path == "/_stcore/health" else 404)
        self.end_headers()
http.server.HTTPServer(("127.0.0.1", int(sys.argv[1])), Answer).serve_forever()
"""


def server(code):
    return lambda port: [sys.executable, "-c", code, str(port)]


@pytest.fixture
def port():
    port = ReservedPort.first_free(18600)
    yield port
    port.release()


def test_a_child_answers_and_ends(port):
    child = DashboardProcess(server(SERVER), port)
    eventually(child.answers)

    child.finish()

    assert child.exit_code is not None and not psutil.pid_exists(child.pid)
    assert child.last_lines()[0] == "starting"


def test_a_child_that_ignores_sigterm_is_killed(port):
    deaf = "import signal; signal.signal(signal.SIGTERM, signal.SIG_IGN); print('deaf', flush=True); signal.pause()"
    child = DashboardProcess(server(deaf), port)
    eventually(child.last_lines)

    child.finish(timeout=0.2)

    assert child.exit_code == -signal.SIGKILL


def test_the_last_output_of_a_child_that_died_is_kept(port):
    child = DashboardProcess(server("print('out'); raise SystemExit('no such theme')"), port)
    eventually(lambda: child.exit_code is not None)

    assert sorted(child.last_lines()) == ["no such theme", "out"]
    child.finish()


def test_a_child_ends_when_its_parent_is_killed():
    code = (
        "import subprocess, signal; from producer_core.simulate.parent_watchdog import with_watchdog;"
        f"print(subprocess.Popen(with_watchdog([{sys.executable!r}, '-c', 'import signal; signal.pause()'])).pid, flush=True);"
        "signal.pause()"
    )
    parent = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True)
    child = psutil.Process(int(parent.stdout.readline()))
    eventually(lambda: "producer_core.simulate.parent_watchdog" not in child.cmdline())

    parent.kill()
    parent.wait()

    eventually(lambda: not child.is_running() or child.status() == psutil.STATUS_ZOMBIE)
    parent.stdout.close()


def test_a_command_with_a_watchdog_runs_unchanged():
    command = with_watchdog([sys.executable, "-c", "print('hello')"])

    assert subprocess.run(command, capture_output=True, text=True, check=True).stdout == "hello\n"


def test_a_port_in_use_is_skipped():
    import socket

    with socket.socket() as taken:
        taken.bind((HOST, 0))
        taken.listen()
        number = taken.getsockname()[1]
        port = ReservedPort.first_free(number)

    assert port.number > number
    port.release()


def test_two_concurrent_starts_get_different_ports():
    first, second = ReservedPort.first_free(18700), ReservedPort.first_free(18700)

    assert first.number != second.number
    first.release()
    second.release()


def test_the_error_when_no_port_is_free():
    held = ReservedPort.first_free(65535)
    with pytest.raises(MissingTool, match="Choose another with --port"):
        ReservedPort.first_free(65535)
    held.release()


def test_an_ignored_signal_still_stops():
    code = "from producer_core._internal.stop_signal import StopSignal; s = StopSignal(); print('ready', flush=True); print(s.wait(30))"
    child = subprocess.Popen(
        [sys.executable, "-c", code],
        stdout=subprocess.PIPE,
        text=True,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_IGN),
    )
    assert child.stdout.readline() == "ready\n"

    child.send_signal(signal.SIGINT)

    assert child.communicate(timeout=10)[0] == "True\n"


def test_a_signal_delivered_to_another_thread_ends_the_wait():
    """Such a signal does not interrupt the main thread's call, nor does one that arrives just before it."""
    code = """if True:
        import signal, threading, time
        from producer_core._internal.stop_signal import StopSignal
        stop = StopSignal()
        def gets_it():
            time.sleep(0.5)  # until the main thread waits
            signal.pthread_kill(threading.get_ident(), signal.SIGTERM)
            time.sleep(60)
        threading.Thread(target=gets_it, daemon=True).start()
        print(stop.wait(), flush=True)
    """
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=30)

    assert (done.stdout, done.returncode) == ("True\n", 0), done.stderr


def test_another_signal_does_not_end_the_wait():
    code = """if True:
        import os, signal
        from producer_core._internal.stop_signal import StopSignal
        stop = StopSignal()
        signal.signal(signal.SIGUSR1, lambda *_: None)
        os.kill(os.getpid(), signal.SIGUSR1)
        print(stop.wait(0.2), flush=True)
        os.kill(os.getpid(), signal.SIGTERM)
        print(stop.wait(), flush=True)
    """
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=30)

    assert (done.stdout, done.returncode) == ("False\nTrue\n", 0), done.stderr


def test_the_demo_has_its_own_store(monkeypatch):
    monkeypatch.setenv("XDG_STATE_HOME", "/state")
    monkeypatch.setenv("PRODUCER_CORE_STORE", "/mine/production.duckdb")  # must not get simulated data

    assert store_path(None) == Path("/state/producer-core/demo.duckdb")
    assert store_path("broker1.example:9092,broker2:9092").name == "demo-broker1.example.duckdb"
    assert store_path("[::1]:9092").name == "demo-1.duckdb"


def test_a_second_demo_run_shows_no_dead_letters_of_the_first_broker(tmp_path):
    """It used to show 1,272 dead letters that could not be replayed, and an alert 49 minutes old."""
    path = tmp_path / "state" / "demo.duckdb"
    with own_store(path) as earlier:
        assert earlier is None
        DeadLetters(Store.open(path)).add([dead_letter(1), dead_letter(2)])
        path.with_name("demo.duckdb.spill").write_bytes(b"of the first run")

    with own_store(path) as earlier:
        assert DeadLetters(Store.open(path)).count(DeadLetterFilter()) == 0
        assert DeadLetters(Store.open(earlier, create=False)).count(DeadLetterFilter()) == 2
        assert not path.with_name("demo.duckdb.spill").exists()
        DeadLetters(Store.open(path)).add([dead_letter(3)])

        joined = contextlib.ExitStack()
        assert joined.enter_context(own_store(path)) is None
    with joined, own_store(path) as third:  # the second run still uses it
        assert third is None
        assert DeadLetters(Store.open(path)).count(DeadLetterFilter()) == 1

    with own_store(path) as earlier:
        assert DeadLetters(Store.open(earlier, create=False)).count(DeadLetterFilter()) == 1


def test_only_a_demo_on_the_embedded_broker_starts_with_a_new_store(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    for given in ({}, {"bootstrap_servers": "127.0.0.1:1"}, {"store": tmp_path / "mine.duckdb"}):
        run = LiveRun(**given)
        DeadLetters(Store.open(run.store)).add([dead_letter(1)])
        with run:
            run.open_store()
            left = DeadLetters(Store.open(run.store)).count(DeadLetterFilter())
        assert left == (1 if given else 0)


def test_a_wrong_address_is_an_error_instead_of_an_endless_wait(monkeypatch):
    monkeypatch.setattr("producer_core.simulate.target_cluster._TIMEOUT", 0.5)

    with pytest.raises(BrokerUnreachable):
        real_target("localhost:1")


@pytest.mark.parametrize(
    "arguments", [["--port", "0"], ["--rate", "-1"], ["--rate", "x"], ["--port", "99999"]]
)
def test_an_invalid_option_is_a_usage_error(arguments, capsys):
    handlers = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)}
    with pytest.raises(SystemExit) as end:
        live.main(arguments)
    for number, handler in handlers.items():
        signal.signal(number, handler)

    assert end.value.code == 2 and "usage: make run" in capsys.readouterr().err


def test_the_load_bounds_the_rejected_messages():
    load = ShopLoad(None, rate=20_000, seed=1)

    assert sum(SHARES.values()) == pytest.approx(1.0, abs=0.01)
    for second in range(90):
        assert load.rate_of("payments", second) < 11 and load.rate_of("audit-log", second) < 1
        assert load.rate_of("user-events", second) > 9000
    assert set(topic_names("demo.")) == {f"demo.{topic}" for topic in SHARES}


def test_the_watchdog_ends_at_once_when_the_parent_has_ended():
    command = with_watchdog([sys.executable, "-c", "print('must not run')"])
    command[3] = str(os.getppid())  # not the parent's id

    assert subprocess.run(command, capture_output=True, text=True, check=True).stdout == ""
