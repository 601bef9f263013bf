"""The advisory check queries every pinned package, fails on a finding, and reports an unreachable database."""

import http.server
import json
import subprocess
import sys
import threading
from contextlib import contextmanager

import pytest

from tests.support import ROOT


@contextmanager
def osv(affected):
    """Serve OSV's batch query on a local port: `affected` maps a package name to its advisory ids."""
    requested = []

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_POST(self):
            queries = json.loads(self.rfile.read(int(self.headers["Content-Length"])))["queries"]
            requested.extend((query["package"]["name"], query["version"]) for query in queries)
            results = [
                {"vulns": [{"id": one} for one in affected.get(query["package"]["name"], ())]}
                for query in queries
            ]
            body = json.dumps({"results": results}).encode()
            self.send_response(200)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_):
            """Keep the test's output quiet."""

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        try:
            yield f"http://127.0.0.1:{server.server_address[1]}", requested
        finally:
            server.shutdown()


def check(address, *options):
    return subprocess.run(
        [sys.executable, "scripts/advisories.py", *options],
        env={"OSV_API": address}, cwd=ROOT, capture_output=True, text=True, timeout=60,
    )  # fmt: skip


@pytest.mark.slow
def test_every_pinned_package_and_jar_is_looked_up():
    with osv({}) as (address, requested):
        done = check(address)

    assert done.returncode == 0, done.stdout + done.stderr
    names = {name for name, _ in requested}
    assert {"confluent-kafka", "duckdb", "streamlit", "pyspark"} <= names
    assert {"org.apache.kafka:kafka-clients", "at.yawk.lz4:lz4-java"} <= names
    assert f"packages checked: {len(requested)}, advisories found: 0" in done.stdout


@pytest.mark.slow
def test_a_known_advisory_fails_the_check_and_names_the_package():
    with osv({"duckdb": ["GHSA-xxxx"]}) as (address, _):
        done = check(address)

    assert done.returncode == 1
    assert "advisories: duckdb" in done.stdout and "GHSA-xxxx" in done.stdout


@pytest.mark.parametrize(("options", "code"), [((), 0), (("--require",), 2)])
def test_an_unreachable_database_is_reported(options, code):
    done = check("http://127.0.0.1:1", *options)

    assert done.returncode == code
    assert "packages NOT checked: " in done.stdout


def test_the_connector_replaces_jars_with_known_advisories():
    from producer_core.pipeline.connector import FIXED

    version = {name: tuple(map(int, number.split("."))) for name, (_, number) in FIXED.items()}

    assert version["kafka-clients"] >= (3, 9, 2)  # CVE-2025-27817, CVE-2026-35554
    assert version["lz4-java"] >= (1, 11, 1)  # CVE-2025-12183, CVE-2025-66566, CVE-2026-59949
