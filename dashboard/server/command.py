"""Build the command line of the dashboard's server and the folder of files that it runs from."""

from __future__ import annotations

import ipaddress
import json
import os
import socket
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from producer_core._internal import private_files
from producer_core._internal.home_folder import own_state_folder
from producer_core.dashboard.theme import COLOURS

HOST = "127.0.0.1"

PLOTLY_JS = "plotly-cartesian-4.1.1.min.js"
"""The Cartesian build of plotly.js (npm: plotly.js-cartesian-dist-min), a third of the file in the plotly package: a
browser with an empty cache loads it one second faster. Each version has its own name, so browsers may cache it forever."""

_MAX_HEADER_BYTES = 32_768
"""Length of a header in the WebSocket handshake. With OpenID Connect the cookies contain the provider's tokens, and the
default of 8,192 is too short for a user in many groups."""

OPTIONS: Mapping[str, str] = {
    "server.headless": "true",
    "server.fileWatcherType": "none",
    "server.enableStaticServing": "true",
    "server.showEmailPrompt": "false",
    "browser.gatherUsageStats": "false",
    "client.toolbarMode": "minimal",
    "client.showErrorDetails": "type",
    "theme.baseRadius": "small",
    "theme.metricValueFontSize": "1.3rem",
    "theme.metricValueFontWeight": "600",
    "theme.light.primaryColor": "#1d4ed8",
    "theme.dark.primaryColor": "#2f6fed",
}
"""Passed on the command line, so that an installed wheel needs no config file."""

_LAUNCHER = '''"""Started by `producer-core dashboard`."""

import streamlit

from producer_core.dashboard.server.process import app_options

app = streamlit.App("page.py", **app_options("producer_core.dashboard.app"))
'''

_PAGE = '"""The page."""\n\nfrom producer_core.dashboard.app import main\n\nmain()\n'


def command(
    store: Path,
    port: int,
    address: str = HOST,
    *,
    hosts: Sequence[str] = (),
    proxies: Sequence[str] = (),
    base: str = "",
    tls: tuple[Path, Path] | None = None,
) -> list[str]:
    """Return the command that serves the dashboard of one store until a signal ends it.

    `hosts` are additional host names that browsers may use. `proxies` are addresses of reverse proxies whose
    X-Forwarded-For and X-Forwarded-Proto the server trusts. `base` is the path below which it serves its pages. `tls`
    is a certificate and its key.
    """
    options = {**OPTIONS, "server.address": address, "server.port": str(port)}
    if tls is not None:
        options |= {"server.sslCertFile": str(tls[0]), "server.sslKeyFile": str(tls[1])}
    if base:
        options["server.baseUrlPath"] = base.strip("/")
    flags = [f"--{name}={value}" for name, value in options.items()]
    names = dict.fromkeys((*host_names(address), "localhost", *hosts))
    flags += [f"--server.allowedHosts={host}" for host in names]
    flags.append(f"--theme.chartCategoricalColors={json.dumps(COLOURS)}")
    return [
        "env",
        # Uvicorn reads the variable before it loads the app; by default it trusts every process of this machine.
        f"FORWARDED_ALLOW_IPS={','.join(_trusted_networks(proxies))}",
        f"WEBSOCKETS_MAX_LINE_LENGTH={_MAX_HEADER_BYTES}",
        sys.executable,
        "-m",
        "streamlit",
        "run",
        str(launch_folder() / "app.py"),
        *flags,
        "--",
        str(store),
    ]


def _trusted_networks(proxies: Sequence[str]) -> list[str]:
    """Return the networks of the proxies. IPv4 networks also appear in the form that a dual-stack socket reports."""
    networks = [ipaddress.ip_network(proxy) for proxy in proxies]
    mapped = [f"::ffff:{one.network_address}/{96 + one.prefixlen}" for one in networks if one.version == 4]
    return [*map(str, networks), *mapped]


def launch_folder() -> Path:
    """Return a private folder with the start script and, beside it for Streamlit's static files, plotly.js.

    The folder is outside the package because an installed wheel may be read-only.
    """
    folder = own_state_folder("dashboard-5")  # private: the server executes its scripts
    install_plotly(folder / "static")
    for name, text in (("app.py", _LAUNCHER), ("page.py", _PAGE)):
        _write_atomically(folder / name, len(text.encode()), _writer(text))
    return folder


def _writer(text: str) -> Callable[[Path], object]:
    return lambda part: private_files.write(part, text)


def host_names(address: str) -> tuple[str, ...]:
    """Return the host names that browsers may use for a server at an address; for a wildcard, all of this machine's."""
    if address not in ("0.0.0.0", "::", ""):  # noqa: S104  # compared, not bound
        return (address,)
    name = socket.gethostname()
    try:
        numbers = socket.gethostbyname_ex(name)[2]
    except OSError:
        numbers = []
    return tuple(dict.fromkeys((HOST, name, socket.getfqdn(), *numbers)))


def install_plotly(static: Path) -> None:
    """Copy plotly.js into the folder that Streamlit serves as `app/static`."""
    private_files.make_folder(static)
    source = Path(__file__).parents[1] / "static" / PLOTLY_JS
    _write_atomically(
        static / PLOTLY_JS, source.stat().st_size, lambda part: private_files.write(part, source.read_bytes())
    )


def _write_atomically(target: Path, size: int, write: Callable[[Path], object]) -> None:
    """Write the file unless it has the size already; the rename protects another server that reads it."""
    if target.exists() and target.stat().st_size == size:
        return
    part = target.with_suffix(f".{os.getpid()}")
    write(part)
    part.replace(target)


def free_port(wanted: int, address: str = HOST, tries: int = 100) -> int:
    """Return the wanted port or the next free one above it; raise OSError if `tries` ports are taken."""
    for port in range(wanted, min(wanted + tries, 65536)):
        with socket.socket(socket.AF_INET6 if ":" in address else socket.AF_INET) as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                probe.bind((address, port))
            except OSError:
                continue
            return port
    raise OSError(f"no port from {wanted} to {wanted + tries - 1} is free on {address}")
