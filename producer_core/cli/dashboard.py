"""The `dashboard` command: the live page over a store, served on this machine until it is stopped."""

from __future__ import annotations

import sys
import time
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

import click

from producer_core.cli import options
from producer_core.cli.lazy import Failed
from producer_core.stopping import Stop

if TYPE_CHECKING:
    from producer_core.simulate.child import Child

_LOOPBACK = ("127.0.0.1", "localhost")
_STARTS_WITHIN = 60.0


@click.command(short_help="Open the live dashboard in a browser.")
@options.store_option
@click.option(
    "--port",
    type=click.IntRange(1, 65535),
    default=8501,
    show_default=True,
    help="The next free one if taken.",
)
@click.option(
    "--address", default=_LOOPBACK[0], show_default=True, help="Where to listen; only this machine, so far."
)
def dashboard(store_path: Path | None, port: int, address: str) -> None:
    """Serve the live dashboard over a store, until Ctrl-C.

    The store need not exist yet: the page waits for it. A replay begun there is carried out by a producer that is
    alive on the same store, so no credentials are needed here.
    """
    if address not in _LOOPBACK:
        raise Failed(
            f"The dashboard has no passwords yet, so it does not listen on {address}.",
            "Leave --address out and reach it from elsewhere through an SSH tunnel: "
            f"ssh -L {port}:127.0.0.1:{port} THIS_MACHINE",
        )
    missing = [name for name in ("streamlit", "plotly", "pandas") if find_spec(name) is None]
    if missing:
        raise Failed(
            f"The dashboard needs {' and '.join(missing)}, which is not installed.",
            "pip install 'producer-core[dashboard]'",
        )
    _serve(store_path, port)


def _serve(store_path: Path | None, wanted: int) -> None:
    from producer_core.simulate.child import Child, Port
    from producer_core.store.place import resolve

    store, stop = resolve(store_path), Stop()
    port = Port.first_free(wanted)
    if port.number != wanted:
        click.echo(f"Port {wanted} is taken; using {port.number}.", err=True)
    serve = import_module("dashboard.serve")
    child = Child(lambda number: serve.command(store, number), port)
    try:
        if _answers(child, stop):
            click.echo(f"The dashboard of {store} is at http://{_LOOPBACK[0]}:{port.number} (Ctrl-C ends it)")
            sys.stdout.flush()
        while child.exit_code is None and not stop.wait(0.2):
            pass
        ended = child.exit_code
    finally:
        child.finish()
        port.release()
    if ended is not None and not stop.asked:
        raise Failed("The dashboard's server ended. Its last lines:", "\n  ".join(child.last_lines()))


def _answers(child: Child, stop: Stop) -> bool:
    """Waits until the page can be opened; False when the server ended, or a signal came first."""
    deadline = time.monotonic() + _STARTS_WITHIN
    while time.monotonic() < deadline and not stop.asked and child.exit_code is None:
        if child.answers():
            return True
        stop.wait(0.1)
    return False
