"""The HTTP endpoint: paths, methods, errors, and clients that are slow."""

from __future__ import annotations

import http.client
import socket

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


def test_other_methods_are_refused(server):
    assert request(server, method="POST")[0] == 501


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
    with pytest.raises(ConfigError, match=rf"Port {server.port} on 127.0.0.1 is in use.*another port"):
        MetricsServer(lambda: b"", port=server.port)


@pytest.mark.parametrize(("address", "port"), [("192.0.2.1", 0), ("no such host", 0), ("127.0.0.1", 70_000)])
def test_an_unusable_address_is_an_error_with_a_fix(address, port):
    with pytest.raises(ConfigError, match="cannot be served"):
        MetricsServer(lambda: b"", port=port, address=address)


def test_a_closed_server_releases_its_port(server):
    server.close()

    with MetricsServer(lambda: b"again", port=server.port) as second:
        assert request(second)[1] == b"again"
