"""The `broker` commands: a Kafka of one's own, left running until it is stopped."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from producer_core.cli import options, show

if TYPE_CHECKING:
    from producer_core.brokers.detached import State


@click.group(short_help="Start, stop and ask about a Kafka of your own.")
def broker() -> None:
    """A real Apache Kafka on this machine, for trying things out: one broker, or three.

    \b
      producer-core broker start                  one broker, ready in a few seconds
      producer-core broker start --nodes 3        three copies of each record, one broker may fail
      producer-core send orders orders.jsonl -b $(producer-core broker status --servers)
      producer-core broker stop

    It needs Java 17 or newer; its jars (45 MB) are fetched once. It listens on 127.0.0.1 only.
    """


@broker.command(short_help="Start it, and return when every broker answers.")
@click.option(
    "--nodes",
    type=click.IntRange(1, 9),
    default=1,
    show_default=True,
    help="Brokers; 0.4 GiB of memory each.",
)
@click.option(
    "--folder",
    type=click.Path(path_type=Path, file_okay=False),
    help="Keep the data here, and go on with them at the next start. Default: begin empty, delete at stop.",
)
@click.option(
    "--port", type=click.IntRange(1024, 65535), help="The first broker's port; default: a free one."
)
@click.option(
    "--no-auto-create", is_flag=True, help="Refuse unknown topics. Default: a topic that is used comes to be."
)
@options.as_json
def start(nodes: int, folder: Path | None, port: int | None, no_auto_create: bool, as_json: bool) -> None:
    """Start it, and return when every broker answers; it runs on until `broker stop`.

    Prints the address for --bootstrap-servers. Topics that are merely used come to be with 4 partitions. Started
    already: says so, prints the same and changes nothing.

    The JSON is {"bootstrap_servers": "host:port,…", "cluster_id", "folder", "nodes": [{"id", "port", "pid", "alive",
    "log"}]}.
    """
    from producer_core.brokers import detached

    with _progress() as progress:
        state, new = detached.start_detached(
            nodes=nodes, folder=folder, port=port, auto_create=not no_auto_create, progress=progress
        )
    if not new:
        asked = "" if len(state.nodes) == nodes else f", with {show.count(len(state.nodes), 'node')}"
        click.echo(f"It is running already{asked}; end it with: producer-core broker stop", err=True)
    if as_json:
        show.emit(_described(state))
        return
    click.echo(state.bootstrap_servers)


@broker.command(short_help="Which brokers run, and where.")
@click.option("--servers", is_flag=True, help="Only the addresses, for --bootstrap-servers.")
@options.as_json
@click.pass_context
def status(ctx: click.Context, /, servers: bool, as_json: bool) -> None:
    """Which brokers run, where they listen, and where their data and logs are.

    Exit code 0 when at least one runs, 1 when none does. The JSON is that of `broker start`.
    """
    from producer_core.brokers import detached

    state = detached.status()
    if as_json:
        show.emit(_described(state) if state else {"bootstrap_servers": "", "nodes": []})
    elif state is None:
        click.echo("No broker was started. Start one with: producer-core broker start", err=True)
    elif servers:
        click.echo(state.bootstrap_servers)
    else:
        _show(state)
    ctx.exit(0 if state and state.alive else 1)


@broker.command()
def stop() -> None:
    """End it: cleanly, by force after a quarter of a minute. Without --folder its data are deleted."""
    from producer_core.brokers import detached

    state = detached.stop()
    if state is None:
        click.echo("No broker was running.", err=True)
        return
    kept = "Its data are deleted." if state.temporary else f"Its data stay in {state.folder}."
    click.echo(f"Stopped {show.count(len(state.nodes), 'broker')}. {kept}")


@broker.command(short_help="Fetch Apache Kafka's jars now.")
def fetch() -> None:
    """Fetch Apache Kafka's jars now, so that a later start needs no network."""
    from producer_core.brokers import jars

    with _progress() as progress:
        folder = jars.fetch(progress)
    click.echo(f"Apache Kafka {jars.VERSION} is in {folder}")


def _described(state: State) -> dict[str, Any]:
    return {
        "bootstrap_servers": state.bootstrap_servers,
        "cluster_id": state.cluster_id,
        "folder": str(state.folder),
        "nodes": [
            {
                "id": node.number,
                "port": node.port,
                "pid": process.pid,
                "alive": process.alive,
                "log": str(node.log),
            }
            for node, process in zip(state.nodes, state.processes, strict=True)
        ],
    }


def _show(state: State) -> None:
    show.pairs(
        [
            ("bootstrap servers", state.bootstrap_servers),
            ("cluster id", state.cluster_id),
            ("folder", str(state.folder)),
        ]
    )
    show.table(
        ("node", "state", "process", "log"),
        [
            (str(node.number), "runs" if process.alive else "ended", str(process.pid), str(node.log))
            for node, process in zip(state.nodes, state.processes, strict=True)
        ],
    )


@contextmanager
def _progress() -> Iterator[Callable[[str], None]]:
    """What happens now, on one line of a terminal that is gone afterwards; plain lines elsewhere."""
    if not sys.stderr.isatty():
        yield lambda text: click.echo(text, err=True)
        return
    from rich.console import Console

    with Console(stderr=True).status("starting") as line:
        yield lambda text: line.update(text)
