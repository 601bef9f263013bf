"""The HTTP endpoint: paths, methods, errors, and clients that are slow."""

from __future__ import annotations

import contextlib
import http.client
import os
import re
import signal
import socket
import subprocess
import sys

import pytest

from producer_core.errors import ConfigError, StoreLocked
from producer_core.producer.prometheus.server import MetricsServer


def request(server, path="/metrics", method="GET"):
    connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=10)
    try:
        connection.request(method, path)
        response = connection.getresponse()
        return response.status, response.read(), response.headers
    finally:
        connection.close()


@pytest.fixture
def server():
    with MetricsServer(lambda: b"up 1\n", port=0) as server:
        yield server


def test_metrics_have_the_content_type_of_the_text_format(server):
    status, body, headers = request(server)

    assert (status, body) == (200, b"up 1\n")
    assert headers["Content-Type"] == "text/plain; version=0.0.4; charset=utf-8"
    assert request(server, "/metrics?name[]=x")[0] == 200


def test_a_head_request_has_the_headers_without_a_body(server):
    status, body, headers = request(server, method="HEAD")

    assert (status, body, headers["Content-Length"]) == (200, b"", "5")


@pytest.mark.parametrize("path", ["/", "/metrics/", "/favicon.ico", "/../metrics"])
def test_other_paths_are_not_found(server, path):
    status, body, _ = request(server, path)

    assert status == 404
    assert b"/metrics" in body
    assert request(server, path, "HEAD")[:2] == (404, b"")


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "OPTIONS", "BREW"])
def test_other_methods_are_refused_as_plain_text(server, method):
    status, body, headers = request(server, method=method)

    assert (status, body) == (405, b"Method not allowed. The metrics are read with GET.\n")
    assert (headers["Allow"], headers["Content-Type"]) == ("GET, HEAD", "text/plain; charset=utf-8")


def test_a_malformed_request_is_answered_as_plain_text(server):
    with socket.create_connection(("127.0.0.1", server.port), timeout=10) as client:
        client.sendall(b"GET / HTTP/1.0\r\n" + b"a: b\r\n" * 101 + b"\r\n")
        answer = client.makefile("rb").read()

    assert b" 431 " in answer.splitlines()[0]
    assert b"Content-Type: text/plain; charset=utf-8" in answer
    assert b"<html" not in answer


def test_it_listens_on_the_loopback_address_only_by_default(server):
    assert server.url == f"http://127.0.0.1:{server.port}/metrics"


def test_an_unavailable_store_is_status_503_with_the_reason():
    def locked():
        raise StoreLocked("The store s is in use.", fix="Close it.")

    with MetricsServer(locked, port=0) as server:
        status, body, _ = request(server)

    assert status == 503
    assert body.startswith(b"The store s is in use.")


def test_a_bug_is_status_500_and_logged(caplog):
    with MetricsServer(lambda: 1 / 0, port=0) as server:
        assert request(server)[0] == 500
        assert request(server)[0] == 500

    assert "ZeroDivisionError" in caplog.text


@pytest.mark.slow
def test_slow_clients_do_not_block_others():
    text = b"x" * 50_000_000  # more than the buffers of a connection
    with MetricsServer(lambda: text, port=0) as server:
        silent = [socket.create_connection(("127.0.0.1", server.port)) for _ in range(20)]
        half_read = socket.create_connection(("127.0.0.1", server.port))
        half_read.sendall(b"GET /metrics HTTP/1.0\r\n\r\n")
        half_read.recv(100)

        assert len(request(server)[1]) == len(text)

        for client in (*silent, half_read):
            client.close()


def test_a_port_in_use_is_an_error_with_a_fix(server):
    with pytest.raises(ConfigError, match=f"Port {server.port} on 127.0.0.1 is in use") as raised:
        MetricsServer(lambda: b"", port=server.port)

    assert "another port (0 chooses a free one)" in raised.value.fix
    assert "producer-core metrics serve" in raised.value.fix


@pytest.mark.parametrize("address", ["192.0.2.1", "no such host"])
def test_an_unusable_address_is_an_error_with_a_fix(address):
    with pytest.raises(ConfigError) as raised:
        MetricsServer(lambda: b"", port=0, address=address)

    reason = raised.value.what.removeprefix(f"The metrics cannot be served on {address}, port 0: ")
    assert re.fullmatch(r"[A-Z][A-Za-z ]+\.", reason)  # the system's words, without its number
    assert raised.value.fix == "Choose an address of this host, and a port above 1023."


@pytest.mark.parametrize(
    "port",
    [-1, 65536, "9464", None, 9464.0, True, object()],
    ids=lambda port: f"{type(port).__name__} {port}"[:12],
)
def test_an_invalid_port_is_an_error_with_a_fix(port):
    with pytest.raises(ConfigError) as raised:
        MetricsServer(lambda: b"", port=port)

    assert raised.value.what.startswith("port must be a whole number from 0 to 65535, not ")
    assert raised.value.fix == "For example, 9464; 0 chooses a free one."


@pytest.mark.parametrize("address", ["", 5, None, b"127.0.0.1", "a\0b"], ids=repr)
def test_an_invalid_address_is_an_error_with_a_fix(address):
    with pytest.raises(ConfigError, match="is not an address to listen on") as raised:
        MetricsServer(lambda: b"", port=0, address=address)

    assert raised.value.fix == "For example, '127.0.0.1', or '0.0.0.0' for all interfaces."


def test_a_closed_server_releases_its_port(server):
    server.close()

    with MetricsServer(lambda: b"again", port=server.port) as second:
        assert request(second)[1] == b"again"


def test_a_forked_child_does_not_keep_the_port_in_use():
    """Regression: after a restart of the parent, the port was in use by a child that never answered."""
    server = MetricsServer(lambda: b"up 1\n", port=0)
    ready, proceed = os.pipe(), os.pipe()
    child = os.fork()
    if not child:
        os.write(ready[1], b"1")
        os.read(proceed[0], 1)
        os._exit(0)
    try:
        os.read(ready[0], 1)
        port = server.port
        assert request(server)[0] == 200
        server.close()
        with MetricsServer(lambda: b"up 2\n", port=port) as following:
            assert request(following)[1] == b"up 2\n"
    finally:
        os.write(proceed[1], b"1")
        os.waitpid(child, 0)


def test_a_forked_child_can_close_the_server_of_its_parent():
    """Regression: leaving the `with` block in a child, which `sys.exit()` does, waited forever."""
    code = (
        "import os, sys, urllib.request\n"
        "from producer_core.producer.prometheus.server import MetricsServer\n"
        "with MetricsServer(lambda: b'up 1\\n', port=0) as server:\n"
        "    if not (child := os.fork()):\n"
        "        server.close()\n"
        "        sys.exit(7)\n"
        "    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7\n"
        "    assert urllib.request.urlopen(server.url, timeout=10).read() == b'up 1\\n'\n"
    )
    process = subprocess.Popen([sys.executable, "-c", code], start_new_session=True)
    try:
        assert process.wait(60) == 0
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
