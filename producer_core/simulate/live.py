"""The command behind `make run`: a broker, a load with faults, a store, and the dashboard."""

from __future__ import annotations

import argparse
import contextlib
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, TextIO

from producer_core._internal.stop_signal import StopSignal

if TYPE_CHECKING:
    from producer_core.simulate.live_run import LiveRun

HINT = (
    "Open {prefix}payments: its messages are rejected for 12 s of every 80 s; replay them afterwards. "
    "{prefix}audit-log is always rejected. Press Ctrl-C to stop."
)

EARLIER = (
    "The store of the previous run is in {store}. Its broker is no longer running, so its dead letters cannot be "
    "replayed."
)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run until a signal. Exit code: 0 ended by a signal, 1 the dashboard kept exiting, 2 the start failed."""
    stop = StopSignal()  # before the slow imports, so that a Ctrl-C in the first second counts
    options = _options(arguments)

    from producer_core.errors import ProducerError
    from producer_core.simulate.live_run import LiveRun

    try:
        with LiveRun(
            bootstrap_servers=options.bootstrap_servers or None,
            store=options.store,
            port=options.port,
            rate=options.rate,
        ) as run:
            return _show(run, stop)
    except (ProducerError, OSError) as error:
        _say(f"Error: {error}", sys.stderr)
        return 2


def _show(run: LiveRun, stop: StopSignal) -> int:
    run.start(lambda: stop.requested)
    while not stop.requested:
        if run.port != run.wanted_port:
            _say(f"Port {run.wanted_port} is in use; using {run.port}.")
        if run.wait_until_up(stop.wait):
            _say(f"http://127.0.0.1:{run.port}\n{HINT.format(prefix=run.prefix)}\nStore: {run.store}")
            if run.earlier_store:
                _say(EARLIER.format(store=run.earlier_store))
        while run.dashboard_runs and not stop.wait(0.5):
            pass
        if not stop.requested:
            _say("The dashboard exited. The last lines of its log:", sys.stderr)
            _say("\n".join(run.last_lines()) or "(none)", sys.stderr)
            if not run.restart_dashboard():
                _say("The dashboard exited too often and will not be restarted.", sys.stderr)
                return 1
            _say("Restarting the dashboard.", sys.stderr)
    return 0


def _options(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="make run", description=__doc__)
    parser.add_argument(
        "--bootstrap-servers",
        metavar="HOST:PORT",
        default="",
        help="your Kafka instead of the embedded broker; creates topics demo.*",
    )
    parser.add_argument(
        "--port", type=_port, default=8501, help="port of the dashboard, or the next free one"
    )
    parser.add_argument("--store", type=Path, help="path of the store")
    parser.add_argument("--rate", type=_rate, default=300.0, help="messages a second, default 300")
    return parser.parse_args(arguments)


def _port(text: str) -> int:
    number = int(text)
    if not 1 <= number <= 65535:
        raise ValueError
    return number


def _rate(text: str) -> float:
    rate = float(text)
    if not 0 < rate <= 20_000:
        raise argparse.ArgumentTypeError("must be above 0 and at most 20000")
    return rate


def _say(text: str, stream: TextIO | None = None) -> None:
    """Print; ignore a closed terminal, so that everything still ends in order."""
    with contextlib.suppress(OSError):
        print(text, file=stream or sys.stdout, flush=True)


if __name__ == "__main__":
    sys.exit(main())
