"""The `metrics` commands: serve the metrics of a store to Prometheus."""

from __future__ import annotations

import contextlib
import os
import threading
from collections.abc import Callable
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
    are up to 8 seconds old. While the store is not available, for example before the first producer creates it, the
    status is 503, so Prometheus shows the target as down. The folder of --store must exist.

    With --once, the command writes the metrics for node exporter's textfile collector, which reads files that end
    with .prom.
    """
    _require_package()
    from producer_core.producer.prometheus import StoreCollector
    from producer_core.store import paths

    if target is not None and not once:
        raise click.UsageError("--output requires --once.")
    path = paths.resolve(store_path)
    scrape = _Scrape(lambda: StoreCollector(path, topics=topics))
    if once:
        _write(scrape(), target)
    else:
        _require_folder(path)
        _serve(scrape, path, port, address)


def _require_package() -> None:
    if find_spec("prometheus_client") is None:
        raise Failed(
            "Metrics require the Python package 'prometheus_client', which is not installed.",
            "pip install 'producer-core[prometheus]'",
        )


def _require_folder(store: Path) -> None:
    """Fail at the start for a mistyped path: a folder that does not exist, or a file that is no store.

    A store that is locked, or does not exist yet, may become available while the command serves. The first producer
    creates the folder of the default path.
    """
    from producer_core.store import file_errors, paths

    if not store.parent.is_dir() and store != paths.user_path().resolve():
        raise Failed(
            f"The folder {store.parent} of the store does not exist.",
            f"Create it, or specify the path: {file_errors.CHOOSE_PATH}.",
        )
    paths.check_file(store)


class _Scrape:
    """Renders the metrics, and reports on standard error when the store becomes unavailable and available again.

    `opened` opens the store. It is called again for each scrape until it succeeds.
    """

    def __init__(self, opened: Callable[[], StoreCollector]) -> None:
        self._opened = opened
        self._opening = threading.Lock()  # guards the next field
        self._collector: StoreCollector | None = None
        self._lock = threading.Lock()  # guards the next field
        self._failing = False
        self.reports = False

    def __call__(self) -> bytes:
        try:
            text = self._open().render()
        except ProducerError as error:
            self._report(error)
            raise
        self._report(None)
        return text

    def try_open(self) -> None:
        """Open the store, and report a failure now instead of at the first scrape."""
        try:
            self._open()
        except ProducerError as error:
            self._report(error)

    def _open(self) -> StoreCollector:
        with self._opening:
            if self._collector is None:
                self._collector = self._opened()
            return self._collector

    def _report(self, error: ProducerError | None) -> None:
        with self._lock:
            changed, self._failing = self._failing != (error is not None), error is not None
        if changed and self.reports:
            output.say(f"No metrics: {error}" if error else "The store is available.", err=True)


def _serve(scrape: _Scrape, store: Path, port: int, address: str) -> None:
    from producer_core._internal.stop_signal import StopSignal
    from producer_core.producer.prometheus.server import MetricsServer

    stop = StopSignal()
    scrape.reports = True
    with MetricsServer(scrape, port=port, address=address) as server:
        output.say(f"Serving the metrics of {store} on {server.url}. Stop with Ctrl-C.")
        scrape.try_open()
        stop.wait()


def _write(text: bytes, target: Path | None) -> None:
    """Print the metrics, or replace the file in one step, because node exporter may read it at any time."""
    if target is None:
        output.say(text.decode().removesuffix("\n"))
        return
    if target.suffix != ".prom":
        output.say(
            f"Warning: node exporter ignores {target.name}, because it reads only files that end with .prom.",
            err=True,
        )
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
