"""HTTP servers on this machine that respond to a registry's client as a test tells them."""

from __future__ import annotations

import json
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest


@pytest.fixture
def serve():
    """Start servers that respond as told: a schema, a status, never, or in parts.

    `respond` gets the path and an event that is set at the end of the test. It returns the status and the body: an object
    for JSON, bytes, or an iterator of bytes. Requests for the subjects of an id are answered with `subjects`, and are not
    in the list of requests.
    """
    servers, release = [], threading.Event()

    def start(respond, *, subjects=("orders-value",), headers=()):
        class Handler(BaseHTTPRequestHandler):
            def do_GET(self):
                path = self.path.partition("?")[0]
                if "/ids/" in path and path.endswith("/versions"):
                    status, body = 200, [{"subject": subject, "version": 1} for subject in subjects]
                else:
                    asked.append(self.path)
                    status, body = respond(self.path, release)
                parts = body
                if isinstance(body, bytes | dict | list):
                    parts = [body if isinstance(body, bytes) else json.dumps(body).encode()]
                self.send_response(status)
                for name, value in headers:
                    self.send_header(name, value)
                if isinstance(parts, list):
                    self.send_header("Content-Length", str(len(parts[0])))
                self.end_headers()
                for part in parts:
                    self.wfile.write(part)
                    self.wfile.flush()

            def log_message(self, *arguments):
                pass

        class Server(ThreadingHTTPServer):
            daemon_threads = True

            def handle_error(self, *arguments):
                pass  # the client gave up

        asked = []
        server = Server(("127.0.0.1", 0), Handler)
        servers.append(server)
        threading.Thread(target=server.serve_forever, daemon=True).start()
        return f"http://127.0.0.1:{server.server_port}", asked

    yield start
    release.set()
    for server in servers:
        server.shutdown()
        server.server_close()
