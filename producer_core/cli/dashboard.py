"""The `dashboard` command: the live page over a store, served until it is stopped."""

from __future__ import annotations

import http.client
import ipaddress
import os
import re
import ssl
import sys
import time
from collections.abc import Callable, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple
from urllib.parse import urlsplit

import click

from producer_core._internal.dashboard_entry import load_dashboard
from producer_core._internal.stop_signal import StopSignal
from producer_core.cli import options, output
from producer_core.cli.lazy_group import Failed

if TYPE_CHECKING:
    from producer_core.simulate.dashboard_process import DashboardProcess

_LOOPBACK = "127.0.0.1"
_STARTS_WITHIN = 60.0
_SETTLES_WITHIN = 15.0
"""Seconds for a server that carries out replays: what is on its way is settled, and the replay given back."""
_FILE = click.Path(path_type=Path, exists=True, dir_okay=False)


def _addresses(_: click.Context, __: click.Parameter, given: Sequence[str]) -> Sequence[str]:
    for one in given:
        try:
            network = ipaddress.ip_network(one)
        except ValueError:
            raise click.BadParameter(
                f"{one!r} is no IP address or network, for example 127.0.0.1 or 10.0.0.0/24."
            ) from None
        if network.prefixlen == 0:
            raise click.BadParameter(
                f"{one!r} contains every client, so each client could choose the address that its attempts count for. "
                "Name the proxies alone."
            )
    return given


def _path(_: click.Context, __: click.Parameter, given: str) -> str:
    """The path with one slash before it and none after it; empty where it is the root."""
    path = given.strip("/")
    if path and not re.fullmatch(r"[\w~-][\w.~-]*(/[\w~-][\w.~-]*)*", path, re.ASCII):
        raise click.BadParameter(
            f"{given!r} is no path of letters, digits, '-', '_', '.' and '~', for example /kafka."
        )
    return f"/{path}" if path else ""


@click.group(invoke_without_command=True, short_help="Open the live dashboard in a browser.")
@options.store_option
@click.option(
    "--port",
    type=click.IntRange(1, 65535),
    default=8501,
    show_default=True,
    help="The next free one if taken.",
)
@click.option(
    "--address",
    default=_LOOPBACK,
    show_default=True,
    help="Where to listen; other than this machine only once people have to sign in.",
)
@click.option(
    "--host",
    "hosts",
    multiple=True,
    help="A further name under which browsers ask for it, as that of a proxy; repeat it.",
)
@click.option(
    "--proxy",
    "proxies",
    multiple=True,
    metavar="ADDRESS",
    callback=_addresses,
    help="A reverse proxy whose X-Forwarded-For and -Proto count; repeat it.",
)
@click.option(
    "--base-path",
    "base",
    default="",
    metavar="PATH",
    callback=_path,
    help="Serve all pages below this path, for example /kafka.",
)
@click.option("--tls-cert", type=_FILE, help="Serve https with this certificate (PEM), and --tls-key.")
@click.option("--tls-key", type=_FILE, help="The certificate's key.")
@click.pass_context
def dashboard(
    context: click.Context,
    store_path: Path | None,
    port: int,
    address: str,
    hosts: Sequence[str],
    proxies: Sequence[str],
    base: str,
    tls_cert: Path | None,
    tls_key: Path | None,
) -> None:
    """Serve the live dashboard over a store, until Ctrl-C.

    The store need not exist yet: the page waits for it. A replay begun there is carried out by a producer that is
    alive on the same store, so no credentials are needed here; where PRODUCER_CORE_CONFIG names a file of client
    settings (Java properties or JSON, with bootstrap.servers), the dashboard carries replays out as well. Alerts are
    judged and told as long as it runs.

    For other machines people have to sign in: «dashboard password NAME» makes the line for .streamlit/secrets.toml.
    """
    if context.invoked_subcommand is not None:
        return
    _needs_packages()
    if (tls_cert is None) != (tls_key is None):
        raise Failed("A certificate and its key belong together.", "Give both --tls-cert and --tls-key.")
    place = _Listener(
        address, tuple(hosts), tuple(proxies), base,
        (tls_cert, tls_key) if tls_cert is not None and tls_key is not None else None,
    )  # fmt: skip
    _refuse_strangers(place, port)
    _serve(store_path, port, place)


@dashboard.command()
@click.argument("name")
@click.option("--stdin", "from_stdin", is_flag=True, help="Read the password from standard input.")
def password(name: str, from_stdin: bool) -> None:
    """Make the line that lets NAME sign in to the dashboard by password.

    The password is asked for twice and is kept nowhere; the line holds a hash (scrypt) and belongs into
    .streamlit/secrets.toml, in the folder where the dashboard is started or in your home.

    \b
      [dashboard.passwords]
      ada = "scrypt$15$8$3$…"
    """
    if from_stdin:
        given = sys.stdin.readline().rstrip("\r\n")
    else:
        given = click.prompt("Password", hide_input=True, confirmation_prompt="Once more", err=True)
    try:
        kept = load_dashboard("commands").password.hashed(given)
    except ValueError as error:
        raise Failed(str(error)) from None
    output.say(
        "Put this into .streamlit/secrets.toml (chmod 600), then start the dashboard again:\n", err=True
    )
    output.say("[dashboard.passwords]")
    output.say(f"{_quoted(name)} = {_quoted(kept)}")


class _Listener(NamedTuple):
    """Where a dashboard is to listen, under which further names, behind which proxies, below which path, and with which
    certificate and key."""

    address: str
    hosts: tuple[str, ...]
    proxies: tuple[str, ...]
    base: str
    tls: tuple[Path, Path] | None


def _needs_packages() -> None:
    missing = [name for name in ("streamlit", "plotly", "pandas") if find_spec(name) is None]
    if missing:
        raise Failed(
            f"The dashboard needs {' and '.join(missing)}, which is not installed.",
            "pip install 'producer-core[dashboard]'",
        )


def _refuse_strangers(place: _Listener, port: int) -> None:
    """ConfigError, too, where the file of secrets is wrong."""
    admission: Any = load_dashboard("commands").access_rules
    admitted = admission.read()
    problem: str | None = admission.refusal(place.address, place.hosts, admitted)
    if problem is not None:
        raise Failed(
            problem,
            "Make a password with «producer-core dashboard password NAME», or leave --address and --host out and "
            f"reach it through an SSH tunnel: ssh -L {port}:{_LOOPBACK}:{port} THIS_MACHINE",
        )
    if admitted.oidc:
        _comes_back(admitted.redirect_uri, place)
    if admitted.passwords and admission.is_loopback(place.address) and place.hosts and not place.proxies:
        output.say(
            "Behind a proxy also give --proxy with its address: without it wrong passwords of one browser make all "
            "others wait.",
            err=True,
        )
    if not admission.is_loopback(place.address) and place.tls is None:
        output.say(
            "This is plain http: passwords and data travel readable. Give --tls-cert and --tls-key, or put a proxy "
            "with https before it and give its address with --proxy.",
            err=True,
        )


def _comes_back(address: str, place: _Listener) -> None:
    """Whether who signed in at a provider could come back: its answer goes to the name that redirect_uri has."""
    missing = [name for name in ("authlib", "httpx") if find_spec(name) is None]
    if missing:
        raise Failed(
            f"Signing in by OIDC needs {' and '.join(missing)}.", "pip install 'producer-core[oidc]'"
        )
    serve: Any = load_dashboard("commands").command
    host, path = urlsplit(address).hostname or "", urlsplit(address).path
    if host not in (*serve.host_names(place.address), "localhost", *place.hosts):
        raise Failed(
            f"redirect_uri in secrets.toml leads to {host or 'nowhere'}, and the dashboard does not answer to that name.",
            f"Give --host {host}" if host else "It is the dashboard's own address with /oauth2callback.",
        )
    if path != f"{place.base}/oauth2callback":
        raise Failed(
            f"redirect_uri in secrets.toml leads to {path}, and the dashboard answers at {place.base}/oauth2callback.",
            f"Give --base-path {path.removesuffix('/oauth2callback') or '/'}, or change redirect_uri.",
        )


def _serve(store_path: Path | None, wanted: int, place: _Listener) -> None:
    from producer_core.simulate.dashboard_process import DashboardProcess, ReservedPort
    from producer_core.store.paths import resolve

    store = resolve(store_path)
    serve: Any = load_dashboard("commands").command
    try:
        port = ReservedPort.first_free(serve.free_port(wanted, place.address))
    except OSError as error:
        raise Failed(
            f"The dashboard cannot listen on {place.address}: {error}.",
            "Give --address one of this machine's.",
        ) from None
    stop = StopSignal()  # only now: nothing below can be refused
    if port.number != wanted:
        output.say(f"Port {wanted} is taken; using {port.number}.", err=True)
    command: Callable[[int], Sequence[str]] = lambda number: serve.command(  # noqa: E731
        store, number, place.address, hosts=place.hosts, proxies=place.proxies, base=place.base, tls=place.tls
    )
    child = DashboardProcess(command, port)
    try:
        if _answers(child, place, stop):
            scheme = "https" if place.tls else "http"
            output.say(
                f"The dashboard of {store} is at {scheme}://{_reached_at(place)}:{port.number}{place.base} "
                "(Ctrl-C ends it)"
            )
            sys.stdout.flush()
        while child.exit_code is None and not stop.wait(0.2):
            pass
        ended = child.exit_code
    finally:
        child.finish(_SETTLES_WITHIN if os.environ.get("PRODUCER_CORE_CONFIG") else 2.0)
        port.release()
    if ended is not None and not stop.requested:
        raise Failed("The dashboard's server ended. Its last lines:", "\n  ".join(child.last_lines()))


def _answers(child: DashboardProcess, place: _Listener, stop: StopSignal) -> bool:
    """Waits until the page can be opened; False when the server ended, or a signal came first."""
    deadline = time.monotonic() + _STARTS_WITHIN
    while time.monotonic() < deadline and not stop.requested and child.exit_code is None:
        if _healthy(place, child.port):
            return True
        stop.wait(0.1)
    return False


def _healthy(place: _Listener, port: int) -> bool:
    """Whether Streamlit says so itself; nothing is sent that a wrong certificate could listen to."""
    host = _reached_at(place).strip("[]")
    if place.tls is None:
        asking = http.client.HTTPConnection(host, port, timeout=2)
    else:
        context = ssl._create_unverified_context()  # noqa: S323
        asking = http.client.HTTPSConnection(host, port, timeout=2, context=context)
    try:
        asking.request("GET", f"{place.base}/_stcore/health")
        return asking.getresponse().status == 200
    except OSError:
        return False
    finally:
        asking.close()


def _reached_at(place: _Listener) -> str:
    everywhere = {"0.0.0.0": _LOOPBACK, "::": "[::1]"}  # noqa: S104  # compared, not bound
    return everywhere.get(place.address, f"[{place.address}]" if ":" in place.address else place.address)


def _quoted(text: str) -> str:
    """A basic string of TOML."""
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'
