"""The `metrics` commands: serve the metrics of a store to Prometheus."""

from __future__ import annotations

import contextlib
import os
import threading
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

import click

from producer_core.cli import options, output
from producer_core.cli.lazy_group import Failed
from producer_core.errors import ProducerError

if TYPE_CHECKING:
    from producer_core.producer.prometheus import StoreCollector


@click.group(short_help="Serve metrics to Prometheus.")
def metrics() -> None:
    """Serve the metrics of all producers on a store to Prometheus.

    \b
      producer-core metrics serve --port 9464
      producer-core metrics serve --once --output /var/lib/node_exporter/producer_core.prom
    """


@metrics.command(short_help="Answer /metrics until stopped, or write the metrics once.")
@options.store_option
@click.option(
    "--port",
    type=click.IntRange(0, 65535),
    default=9464,
    show_default=True,
    help="Port; 0 chooses a free one.",
)
@click.option(
    "--address",
    default="127.0.0.1",
    show_default=True,
    help="Listen address; the endpoint has no authentication.",
)
@click.option(
    "--topics",
    type=click.IntRange(0, 100_000),
    default=200,
    show_default=True,
    help="Topics with their own label; the others share 'other'.",
)
@click.option("--once", is_flag=True, help="Write the metrics once and exit.")
@click.option(
    "--output",
    "target",
    type=click.Path(path_type=Path, dir_okay=False),
    help="With --once: replace this file; default: standard output.",
)
def serve(
    store_path: Path | None, port: int, address: str, topics: int, once: bool, target: Path | None
) -> None:
    """Answer /metrics for all producers on the store until stopped with Ctrl-C.

    \b
      producer-core metrics serve --store fleet.duckdb --port 9464
      producer-core metrics serve --once --output /var/lib/node_exporter/producer_core.prom

    One endpoint covers every producer of the host, including processes that have ended. Counters are totals since the
    store was created; retention does not lower them. Scrape either this endpoint or the processes, not both. The values
    are up to 8 seconds old. While the store is not available, the status is 503, so Prometheus shows the target as down.

    With --once, the command writes the metrics for node exporter's textfile collector, which reads files that end
    with .prom.
    """
    _require_package()
    from producer_core.producer.prometheus import StoreCollector
    from producer_core.store import Store

    if target is not None and not once:
        raise click.UsageError("--output requires --once.")
    store = Store.open(store_path, create=False)
    scrape = _Scrape(StoreCollector(store, topics=topics))
    if once:
        _write(scrape(), target)
    else:
        _serve(scrape, store.path, port, address)


def _require_package() -> None:
    if find_spec("prometheus_client") is None:
        raise Failed(
            "Metrics require the Python package 'prometheus_client', which is not installed.",
            "pip install 'producer-core[prometheus]'",
        )


class _Scrape:
    """Renders the metrics, and reports on standard error when the store becomes unavailable and available again."""

    def __init__(self, collector: StoreCollector) -> None:
        self._collector = collector
        self._lock = threading.Lock()  # guards the field below
        self._failing = False
        self.reports = False

    def __call__(self) -> bytes:
        try:
            text = self._collector.render()
        except ProducerError as error:
            self._report(error)
            raise
        self._report(None)
        return text

    def _report(self, error: ProducerError | None) -> None:
        with self._lock:
            changed, self._failing = self._failing != (error is not None), error is not None
        if changed and self.reports:
            output.say(f"No metrics: {error}" if error else "The store is available again.", err=True)


def _serve(scrape: _Scrape, store: Path, port: int, address: str) -> None:
    from producer_core._internal.stop_signal import StopSignal
    from producer_core.producer.prometheus.server import MetricsServer

    stop = StopSignal()
    scrape.reports = True
    with MetricsServer(scrape, port=port, address=address) as server:
        output.say(f"Serving the metrics of {store} on {server.url}. Stop with Ctrl-C.")
        stop.wait()


def _write(text: bytes, target: Path | None) -> None:
    """Print the metrics, or replace the file in one step, because node exporter may read it at any time."""
    if target is None:
        output.say(text.decode().removesuffix("\n"))
        return
    draft = target.with_name(f".{target.name}.{os.getpid()}.tmp")
    try:
        draft.write_bytes(text)
        draft.chmod(0o644)  # node exporter runs as another user
        draft.replace(target)
    except OSError as error:
        with contextlib.suppress(OSError):
            draft.unlink(missing_ok=True)
        raise Failed(
            f"The file {target} could not be written: {error.strerror or error}.",
            "Choose a file in a folder that this user may write to.",
        ) from error
