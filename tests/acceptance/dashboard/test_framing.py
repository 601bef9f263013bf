"""Test the protection against clickjacking and DNS rebinding with the real server and Chromium."""

from __future__ import annotations

import http.client
import http.server
import threading

import pytest

from tests.acceptance.browsing import served, window

pytestmark = pytest.mark.browser


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    folder = tmp_path_factory.mktemp("framing")
    with served(folder / "store.duckdb", folder) as started:
        yield started


@pytest.fixture(scope="module")
def foreign_site(server):
    """Serve a page of another origin that contains the dashboard in a frame."""

    class Site(http.server.BaseHTTPRequestHandler):
        def do_GET(self):
            self.send_response(200)
            self.send_header("content-type", "text/html")
            self.end_headers()
            self.wfile.write(
                f'<iframe src="{server.url}dead-letters" width=900 height=700></iframe>'.encode()
            )

        def log_message(self, *_):
            pass

    site = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Site)
    threading.Thread(target=site.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{site.server_port}/"
    site.shutdown()
    site.server_close()


def request(server, path, *, host=None, method="GET", **headers):
    connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=10)
    try:
        named = {"host": host or f"127.0.0.1:{server.port}"}
        connection.request(
            method, path, headers=named | {name.replace("_", "-"): value for name, value in headers.items()}
        )
        response = connection.getresponse()
        return response.status, {name.lower(): value for name, value in response.getheaders()}
    finally:
        connection.close()


def test_a_foreign_page_cannot_frame_the_dashboard(browser, server, foreign_site):
    with window(browser) as page:
        page.goto(foreign_site)
        frame = page.frames[1]
        frame.wait_for_load_state()

        assert frame.url.startswith("chrome-error:")


def test_a_page_of_the_same_origin_can_frame_the_dashboard(browser, server):
    with window(browser) as page:
        page.goto(f"{server.url}_stcore/health")
        page.evaluate("document.body.innerHTML = '<iframe src=\"/overview\" width=900 height=700></iframe>'")

        page.frame_locator("iframe").get_by_role("link", name="Dead letters").wait_for()


@pytest.mark.parametrize(
    ("path", "headers"),
    [
        ("/", {"accept": "text/html"}),
        ("/alerts", {"accept": "text/html"}),
        ("/_stcore/health", {}),
        ("/_stcore/host-config", {}),
        ("/static/missing.js", {}),
        ("/..%5c..%5cx", {}),
        ("/component/missing/index.html", {}),
        ("/media/missing.csv", {}),
    ],
)
def test_every_response_forbids_foreign_frames(server, path, headers):
    _, found = request(server, path, **headers)

    assert found["content-security-policy"] == "frame-ancestors 'self'"
    assert found["x-frame-options"] == "SAMEORIGIN"


@pytest.mark.parametrize("host", ["evil.example", "127.0.0.1.evil.example", "127.0.0.1:80:80", "a@127.0.0.1"])
def test_a_foreign_host_name_is_rejected(server, host):
    for path in ("/", "/_stcore/host-config", "/static/index.html"):
        status, found = request(server, path, host=host, accept="text/html")
        assert status == 421 and found["x-frame-options"] == "SAMEORIGIN"
    assert request(server, "/_stcore/health", host=host)[0] == 200
