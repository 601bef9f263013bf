"""Run Debian's nginx as a TLS-terminating reverse proxy on loopback, configured as docs/how-to/behind-a-proxy.md describes."""

from __future__ import annotations

import contextlib
import http.client
import re
import ssl
import subprocess

from tests.conftest import answers, needs
from tests.support import ROOT, eventually

NAME = "dash.example"
DOCUMENT = (ROOT / "docs" / "how-to" / "behind-a-proxy.md").read_text()
(SITE,) = re.findall(r"```nginx\n(.*?)```", DOCUMENT, re.DOTALL)
_LOCATION = re.compile(r"^    location / \{.*?^    \}\n", re.DOTALL | re.MULTILINE)

_MAIN = """
daemon off;
master_process off;
pid {folder}/nginx.pid;
error_log {folder}/error.log;
events {{}}
http {{
    access_log off;
    client_body_temp_path {folder}/body;
    proxy_temp_path {folder}/proxy;
    fastcgi_temp_path {folder}/fastcgi;
    uwsgi_temp_path {folder}/uwsgi;
    scgi_temp_path {folder}/scgi;
{site}
}}
"""


def below(path):
    """Return the documented site with a location below a path, for a dashboard with the same base path."""
    return replaced(SITE, "location / {", f"location {path}/ {{")


def beside_a_stripped_path(path):
    """Return the documented site with a second location below a path that nginx strips.

    In the second location nginx appends to the client's X-Forwarded-For, as many proxies do.
    """
    (location,) = _LOCATION.findall(SITE)
    other = replaced(location, "location / {", f"location {path}/ {{")
    other = replaced(other, "http://127.0.0.1:8501;", "http://127.0.0.1:8501/;")
    other = replaced(other, "$remote_addr", "$proxy_add_x_forwarded_for")
    return replaced(SITE, location, f"{location}\n{other}")


def certificate(folder):
    """Create a self-signed certificate for the name, and return its file and its key."""
    files = folder / "dash.example.pem", folder / "dash.example.key"
    subprocess.run(
        [
            needs("openssl", "openssl"), "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes",
            "-days", "2", "-subj", f"/CN={NAME}", "-addext", f"subjectAltName=DNS:{NAME}",
            "-out", str(files[0]), "-keyout", str(files[1]),
        ],
        check=True, capture_output=True,
    )  # fmt: skip
    return files


@contextlib.contextmanager
def nginx(folder, site, *, port, dashboard):
    """Serve `site` with nginx at a port; `dashboard` is the port of the server behind it."""
    binary = needs("nginx", "nginx-light")
    folder.mkdir()
    pem, key = certificate(folder)
    site = replaced(site, "listen 443 ssl;", f"listen 127.0.0.1:{port} ssl;")
    site = replaced(site, "/etc/ssl/dash.example.pem", str(pem))
    site = replaced(site, "/etc/ssl/dash.example.key", str(key))
    site = replaced(site, "http://127.0.0.1:8501", f"http://127.0.0.1:{dashboard}")
    (folder / "nginx.conf").write_text(_MAIN.format(folder=folder, site=site))
    with (folder / "output").open("w") as output:
        process = subprocess.Popen(
            [binary, "-p", str(folder), "-c", str(folder / "nginx.conf")], stdout=output, stderr=output
        )
    try:
        eventually(lambda: answers(port) or process.poll() is not None)
        assert process.poll() is None, (folder / "output").read_text()
        yield
    finally:
        process.terminate()
        process.wait(10)


def replaced(text, old, new):
    assert old in text, f"docs/how-to/behind-a-proxy.md no longer has {old!r}"
    return text.replace(old, new)


class Client:
    """Send requests from an address of its own; all of 127.0.0.0/8 belongs to this machine."""

    def __init__(self, address, port, *, tls=True, host=None):
        self._address, self._port, self._tls = address, port, tls
        self._host = host or f"{NAME}:{port}"

    def request(self, path, *, method="GET", body=None, **headers):
        """Return the status, the headers as a list of pairs, and the body."""
        context = ssl._create_unverified_context()
        more = {"source_address": (self._address, 0), "timeout": 30}
        connection = (
            http.client.HTTPSConnection("127.0.0.1", self._port, context=context, **more)
            if self._tls
            else http.client.HTTPConnection("127.0.0.1", self._port, **more)
        )
        try:
            given = {name.replace("_", "-"): value for name, value in headers.items()}
            connection.request(method, path, body, {"host": self._host, **given})
            response = connection.getresponse()
            found = [(name.lower(), value) for name, value in response.getheaders()]
            return response.status, found, b"" if response.status == 101 else response.read()
        finally:
            connection.close()

    def connect(self, path="/_stcore/stream", **headers):
        """Return the status of a WebSocket handshake; 101 if it is accepted."""
        handshake = {
            "connection": "Upgrade", "upgrade": "websocket", "sec_websocket_version": "13",
            "sec_websocket_key": "dGhlIHNhbXBsZSBub25jZQ==", "sec_websocket_protocol": "streamlit",
        }  # fmt: skip
        return self.request(path, **{**handshake, **headers})[0]
