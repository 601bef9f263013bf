"""The dashboard's child process and its port."""

from __future__ import annotations

import signal
import sys

import psutil
import pytest

from producer_core.errors import MissingTool
from producer_core.simulate.dashboard_process import HOST, DashboardProcess, ReservedPort
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


def test_a_child_process_serves_requests_and_ends(port):
    child = DashboardProcess(server(SERVER), port)
    eventually(child.answers)

    child.finish()

    assert child.exit_code is not None and not psutil.pid_exists(child.pid)
    assert child.last_lines()[0] == "starting"


@pytest.mark.slow
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


def test_the_error_for_no_free_port_names_the_port_option():
    held = ReservedPort.first_free(65535)
    with pytest.raises(MissingTool, match="Choose another with --port"):
        ReservedPort.first_free(65535)
    held.release()
