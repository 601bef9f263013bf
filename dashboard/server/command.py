"""The server of the dashboard: its command, its settings and its files, the same from a checkout and a wheel."""

from __future__ import annotations

import ipaddress
import json
import os
import socket
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from producer_core._internal import private_files
from producer_core.dashboard.theme import COLOURS

HOST = "127.0.0.1"

PLOTLY_JS = "plotly-cartesian-4.1.1.min.js"
"""The lines, bars and heatmaps of plotly.js (npm: plotly.js-cartesian-dist-min), a third of the whole that comes with the
plotly package: a browser that was never here reads it in a second less. Another version has another name, so it may be
kept for ever."""

_LONGEST_HEADER = 32_768
"""Bytes of a header of the WebSocket's request. With OpenID Connect its cookies contain the tokens of the provider, and the
default of 8,192 is too short for a person in many groups."""

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
"""Given on the command line, so that an installed wheel needs no config file."""

_LAUNCHER = '''"""Started by `producer-core dashboard`."""

import streamlit

from producer_core.dashboard.server.process import parts

app = streamlit.App("page.py", **parts("producer_core.dashboard.app"))
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
    """What starts the dashboard's server for one store; it runs until it is ended by a signal.

    `hosts` are further names under which browsers may ask for it; `proxies` are addresses of reverse proxies whose
    X-Forwarded-For and X-Forwarded-Proto count; `base` is the path below which it serves its pages; `tls` is a
    certificate and its key.
    """
    options = {**OPTIONS, "server.address": address, "server.port": str(port)}
    if tls is not None:
        options |= {"server.sslCertFile": str(tls[0]), "server.sslKeyFile": str(tls[1])}
    if base:
        options["server.baseUrlPath"] = base.strip("/")
    flags = [f"--{name}={value}" for name, value in options.items()]
    names = dict.fromkeys((*names_of(address), "localhost", *hosts))
    flags += [f"--server.allowedHosts={host}" for host in names]
    flags.append(f"--theme.chartCategoricalColors={json.dumps(COLOURS)}")
    return [
        "env",
        # Uvicorn reads the variable before it loads our app, and without it trusts every process of this machine.
        f"FORWARDED_ALLOW_IPS={','.join(_trusted(proxies))}",
        f"WEBSOCKETS_MAX_LINE_LENGTH={_LONGEST_HEADER}",
        sys.executable,
        "-m",
        "streamlit",
        "run",
        str(launch_folder() / "app.py"),
        *flags,
        "--",
        str(store),
    ]


def _trusted(proxies: Sequence[str]) -> list[str]:
    """The networks of proxies; those of IPv4 also in the form that a socket for both versions reports."""
    networks = [ipaddress.ip_network(proxy) for proxy in proxies]
    mapped = [f"::ffff:{one.network_address}/{96 + one.prefixlen}" for one in networks if one.version == 4]
    return [*map(str, networks), *mapped]


def launch_folder() -> Path:
    """A folder of ours with the start script and plotly.js, which Streamlit serves from beside the script.

    An installed wheel may be read-only.
    """
    state = Path(os.environ.get("XDG_STATE_HOME") or "~/.local/state").expanduser()
    folder = state / "producer-core" / "dashboard-4"
    private_files.own_folder(folder)  # its scripts are executed
    put_plotly(folder / "static")
    for name, text in (("app.py", _LAUNCHER), ("page.py", _PAGE)):
        _put(folder / name, len(text.encode()), _writer(text))
    return folder


def _writer(text: str) -> Callable[[Path], object]:
    return lambda part: private_files.write(part, text)


def names_of(address: str) -> tuple[str, ...]:
    """The names under which browsers may ask for a server at an address; at every address: those of this machine."""
    if address not in ("0.0.0.0", "::", ""):  # noqa: S104  # compared, not bound
        return (address,)
    name = socket.gethostname()
    try:
        numbers = socket.gethostbyname_ex(name)[2]
    except OSError:
        numbers = []
    return tuple(dict.fromkeys((HOST, name, socket.getfqdn(), *numbers)))


def put_plotly(static: Path) -> None:
    """plotly.js into the folder that Streamlit serves as `app/static`."""
    private_files.make_folder(static)
    source = Path(__file__).parents[1] / "static" / PLOTLY_JS
    _put(
        static / PLOTLY_JS, source.stat().st_size, lambda part: private_files.write(part, source.read_bytes())
    )


def _put(target: Path, size: int, write: Callable[[Path], object]) -> None:
    """Whole or not at all: another dashboard may be reading it."""
    if target.exists() and target.stat().st_size == size:
        return
    part = target.with_suffix(f".{os.getpid()}")
    write(part)
    part.replace(target)


def free_port(wanted: int, address: str = HOST, tries: int = 100) -> int:
    """The wanted port, or the next free one above; OSError when none of a hundred is."""
    for port in range(wanted, min(wanted + tries, 65536)):
        with socket.socket(socket.AF_INET6 if ":" in address else socket.AF_INET) as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                probe.bind((address, port))
            except OSError:
                continue
            return port
    raise OSError(f"no port from {wanted} to {wanted + tries - 1} is free on {address}")
