"""The `dashboard` command: serve the live dashboard of a store."""

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
from producer_core._internal.join_names import join_names
from producer_core._internal.stop_signal import StopSignal, exit_on_signal
from producer_core.cli import options, output
from producer_core.cli.lazy_group import Failed

if TYPE_CHECKING:
    from producer_core.simulate.dashboard_process import DashboardProcess

_LOOPBACK = "127.0.0.1"
_START_TIMEOUT = 60.0
_STOP_TIMEOUT = 15.0
"""Seconds for a server that executes replays to settle the records in flight and release the replay."""
_FILE = click.Path(path_type=Path, exists=True, dir_okay=False)


def _addresses(_: click.Context, __: click.Parameter, given: Sequence[str]) -> Sequence[str]:
    for address in given:
        try:
            network = ipaddress.ip_network(address)
        except ValueError:
            raise click.BadParameter(
                f"{address!r} is not an IP address or network; use, for example, 127.0.0.1 or 10.0.0.0/24."
            ) from None
        if network.prefixlen == 0:
            raise click.BadParameter(
                f"{address!r} contains every client, so any client could forge the address to which its sign-in "
                "attempts are attributed. Specify only the proxies."
            )
    return given


def _path(_: click.Context, __: click.Parameter, given: str) -> str:
    """Return the path with one leading slash and no trailing one; empty for the root."""
    path = given.strip("/")
    if path and not re.fullmatch(r"[\w~-][\w.~-]*(/[\w~-][\w.~-]*)*", path, re.ASCII):
        raise click.BadParameter(
            f"{given!r} is not a path; use A-Z, a-z, 0-9, '-', '_', '.' and '~', for example /kafka."
        )
    return f"/{path}" if path else ""


@click.group(invoke_without_command=True, short_help="Serve the live dashboard and print its address.")
@options.store_option
@click.option("--bundle", type=_FILE, help="Serve an incident bundle, read-only.")
@click.option(
    "--port",
    type=click.IntRange(1, 65535),
    default=8501,
    show_default=True,
    help="Port; the next free one if it is in use.",
)
@click.option(
    "--address",
    default=_LOOPBACK,
    show_default=True,
    help="Listen address; a non-local one requires sign-in.",
)
@click.option(
    "--host",
    "hosts",
    multiple=True,
    help="Additional host name, such as that of a proxy; repeatable.",
)
@click.option(
    "--proxy",
    "proxies",
    multiple=True,
    metavar="ADDRESS",
    callback=_addresses,
    help="Reverse proxy whose X-Forwarded-For and -Proto are trusted; repeatable.",
)
@click.option(
    "--base-path",
    "base",
    default="",
    metavar="PATH",
    callback=_path,
    help="Serve all pages below this path, for example /kafka.",
)
@click.option("--tls-cert", type=_FILE, help="Serve HTTPS with this certificate (PEM); requires --tls-key.")
@click.option("--tls-key", type=_FILE, help="Private key of the certificate.")
@click.pass_context
def dashboard(
    context: click.Context,
    store_path: Path | None,
    bundle: Path | None,
    port: int,
    address: str,
    hosts: Sequence[str],
    proxies: Sequence[str],
    base: str,
    tls_cert: Path | None,
    tls_key: Path | None,
) -> None:
    """Serve the live dashboard of a store until Ctrl-C.

    \b
      producer-core dashboard
      producer-core dashboard --store fleet.duckdb --port 9000
      producer-core dashboard --bundle INC-42.zip
      producer-core dashboard password ada

    The page waits for the store if it does not exist. A running producer on the same store executes the replays
    started here, so the dashboard needs no credentials. If PRODUCER_CORE_CONFIG names a file of client settings (Java
    properties or JSON, with bootstrap.servers), the dashboard executes replays too. It evaluates alerts and sends
    their notifications while it runs.

    With --bundle, the dashboard shows a file of "incident export" and its time range. Nothing in it can be changed.

    Access from other machines requires sign-in: "dashboard password NAME" prints the line for .streamlit/secrets.toml.
    """
    if context.invoked_subcommand is not None:
        return
    _require_packages()
    if store_path is not None and store_path.is_dir():
        raise Failed(
            f"The store {store_path} is a folder.", "Specify a file in that folder, for example store.duckdb."
        )
    if (tls_cert is None) != (tls_key is None):
        raise Failed("A certificate requires its key.", "Use --tls-cert together with --tls-key.")
    listener = _Listener(
        address, tuple(hosts), tuple(proxies), base,
        (tls_cert, tls_key) if tls_cert is not None and tls_key is not None else None,
    )  # fmt: skip
    _check_access(listener, port)
    if bundle is None:
        _serve(store_path, port, listener)
    elif store_path is not None:
        raise Failed("A bundle has its own store.", "Use either --bundle or --store.")
    else:
        _serve_bundle(bundle, port, listener)


@dashboard.command(short_help="Print the line that lets NAME sign in.")
@click.argument("name")
@click.option("--stdin", "from_stdin", is_flag=True, help="Read the password from standard input.")
def password(name: str, from_stdin: bool) -> None:
    """Print the line that lets NAME sign in to the dashboard with a password.

    The command asks for the password twice and does not store it. The line contains a hash (scrypt) and belongs in
    .streamlit/secrets.toml, in the folder where the dashboard starts or in your home folder.

    \b
      [dashboard.passwords]
      ada = "scrypt$15$8$3$…"
    """
    if not name.strip():
        raise Failed("The name is empty.", "Specify the name that the user enters at sign-in.")
    if from_stdin:
        given = sys.stdin.readline().rstrip("\r\n")
    else:
        given = click.prompt("Password", hide_input=True, confirmation_prompt="Repeat the password", err=True)
    try:
        hashed = load_dashboard("commands").password.hashed(given)
    except ValueError as error:
        raise Failed(str(error)) from None
    output.say("Add this to .streamlit/secrets.toml (chmod 600), then restart the dashboard:\n", err=True)
    output.say("[dashboard.passwords]")
    output.say(f"{_quoted(name)} = {_quoted(hashed)}")


class _Listener(NamedTuple):
    """The listen address of a dashboard, its host names, proxies and base path, and its certificate with the key."""

    address: str
    hosts: tuple[str, ...]
    proxies: tuple[str, ...]
    base: str
    tls: tuple[Path, Path] | None


def _require_packages() -> None:
    missing = [name for name in ("streamlit", "plotly", "pandas") if find_spec(name) is None]
    if missing:
        raise Failed(
            f"The dashboard requires {join_names(missing)}, which {'is' if len(missing) == 1 else 'are'} not installed.",
            "pip install 'producer-core[dashboard]'",
        )


def _check_access(listener: _Listener, port: int) -> None:
    """Raise Failed if other machines could use the dashboard without sign-in, ConfigError if secrets.toml is invalid."""
    access_rules: Any = load_dashboard("commands").access_rules
    rules = access_rules.read()
    problem: str | None = access_rules.refusal(listener.address, listener.hosts, rules)
    if problem is not None:
        raise Failed(
            problem,
            'Create a password with "producer-core dashboard password NAME", or omit --address and --host and use an '
            f"SSH tunnel: ssh -L {port}:{_LOOPBACK}:{port} THIS_MACHINE",
        )
    if rules.oidc:
        _check_redirect(rules.redirect_uri, listener)
    if (
        rules.passwords
        and access_rules.is_loopback(listener.address)
        and listener.hosts
        and not listener.proxies
    ):
        output.say(
            "Behind a proxy, also use --proxy with its address. Without it, wrong passwords from one browser delay "
            "sign-in for all others.",
            err=True,
        )
    if not access_rules.is_loopback(listener.address) and listener.tls is None:
        output.say(
            "The dashboard uses plain HTTP: passwords and data are not encrypted. Use --tls-cert and --tls-key, or an "
            "HTTPS proxy whose address is specified with --proxy.",
            err=True,
        )


def _check_redirect(address: str, listener: _Listener) -> None:
    """Raise Failed where the redirect_uri of the OIDC provider does not lead to this dashboard."""
    missing = [name for name in ("authlib", "httpx") if find_spec(name) is None]
    if missing:
        raise Failed(
            f"Sign-in with OIDC requires {join_names(missing)}.", "pip install 'producer-core[oidc]'"
        )
    serve: Any = load_dashboard("commands").command
    host, path = urlsplit(address).hostname or "", urlsplit(address).path
    if host not in (*serve.host_names(listener.address), "localhost", *listener.hosts):
        raise Failed(
            f"redirect_uri in secrets.toml has the host {host or '(none)'}, which is not a host name of the dashboard.",
            f"Use --host {host}" if host else "Set it to the dashboard's own address with /oauth2callback.",
        )
    if path != f"{listener.base}/oauth2callback":
        raise Failed(
            f"redirect_uri in secrets.toml has the path {path}, but the dashboard uses {listener.base}/oauth2callback.",
            f"Use --base-path {path.removesuffix('/oauth2callback') or '/'}, or change redirect_uri.",
        )


def _serve_bundle(bundle: Path, port: int, listener: _Listener) -> None:
    """Verify the bundle, build its store, and serve it until Ctrl-C."""
    from producer_core.diagnostics.incident import IncidentBundle

    with exit_on_signal(), IncidentBundle(bundle) as opened:
        _serve(opened.store_path, port, listener, name=str(bundle))


def _serve(store_path: Path | None, wanted: int, listener: _Listener, *, name: str = "") -> None:
    from producer_core.simulate.dashboard_process import DashboardProcess, ReservedPort
    from producer_core.store.paths import resolve

    store = resolve(store_path)
    serve: Any = load_dashboard("commands").command
    try:
        port = ReservedPort.first_free(serve.free_port(wanted, listener.address))
    except OSError as error:
        raise Failed(
            f"The dashboard cannot listen on {listener.address}: {error}.",
            "Set --address to an address of this machine.",
        ) from None
    stop = StopSignal()  # not earlier: nothing after this point is refused
    if port.number != wanted:
        output.say(f"Port {wanted} is in use; using {port.number}.", err=True)
    command: Callable[[int], Sequence[str]] = lambda number: serve.command(  # noqa: E731
        store, number, listener.address,
        hosts=listener.hosts, proxies=listener.proxies, base=listener.base, tls=listener.tls,
    )  # fmt: skip
    child = DashboardProcess(command, port)
    try:
        if _wait_until_healthy(child, listener, stop):
            scheme = "https" if listener.tls else "http"
            output.say(
                f"The dashboard of {name or store} is at {scheme}://{_reachable_host(listener)}:{port.number}{listener.base} "
                "(press Ctrl-C to stop)"
            )
            sys.stdout.flush()
        while child.exit_code is None and not stop.wait(0.2):
            pass
        ended = child.exit_code
    finally:
        child.finish(_STOP_TIMEOUT if os.environ.get("PRODUCER_CORE_CONFIG") else 2.0)
        port.release()
    if ended is not None and not stop.requested:
        raise Failed(
            "The dashboard server exited. The last lines of its log:", "\n  ".join(child.last_lines())
        )


def _wait_until_healthy(child: DashboardProcess, listener: _Listener, stop: StopSignal) -> bool:
    """Wait until the server is healthy. Return False when it ends, or a signal arrives, before that."""
    deadline = time.monotonic() + _START_TIMEOUT
    while time.monotonic() < deadline and not stop.requested and child.exit_code is None:
        if _is_healthy(listener, child.port):
            return True
        stop.wait(0.1)
    return False


def _is_healthy(listener: _Listener, port: int) -> bool:
    """Query Streamlit's own health check. The request carries no secret, so the certificate need not be verified."""
    host = _reachable_host(listener).strip("[]")
    if listener.tls is None:
        connection = http.client.HTTPConnection(host, port, timeout=2)
    else:
        context = ssl._create_unverified_context()  # noqa: S323
        connection = http.client.HTTPSConnection(host, port, timeout=2, context=context)
    try:
        connection.request("GET", f"{listener.base}/_stcore/health")
        return connection.getresponse().status == 200
    except OSError:
        return False
    finally:
        connection.close()


def _reachable_host(listener: _Listener) -> str:
    """Return a host under which a browser on this machine reaches the dashboard."""
    wildcards = {"0.0.0.0": _LOOPBACK, "::": "[::1]"}  # noqa: S104  # compared, not bound
    address = listener.address
    return wildcards.get(address, f"[{address}]" if ":" in address else address)


def _quoted(text: str) -> str:
    """Return the text as a TOML basic string."""
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'
