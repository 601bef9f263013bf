"""The `broker` commands: a Kafka of one's own, left running until it is stopped."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from producer_core.cli import options, output
from producer_core.cli.lazy_group import Failed
from producer_core.kafka.acls import FEATURES, Feature

if TYPE_CHECKING:
    from producer_core.brokers.detached import DetachedState
    from producer_core.brokers.secure import Security
    from producer_core.kafka.acls import Permission


def _granting(command: options.F) -> options.F:
    """USER FEATURE TOPICS… and --transactional-id."""
    for option in (
        click.option(
            "--transactional-id", metavar="ID", help="For exactly_once: every id that begins like this."
        ),
        click.argument("topics", nargs=-1, required=True),
        click.argument("feature", type=click.Choice(FEATURES)),
        click.argument("user"),
    ):
        command = option(command)
    return command


@click.group(short_help="Start, stop and ask about a Kafka of your own.")
def broker() -> None:
    """A real Apache Kafka on this machine, for trying things out: one broker, or three.

    \b
      producer-core broker start                  one broker, ready in a few seconds
      producer-core broker start --nodes 3        three copies of each record, one broker may fail
      producer-core send orders orders.jsonl -b $(producer-core broker status --servers)
      producer-core broker stop

    \b
      producer-core broker start --secure         TLS, passwords and access control, to try them out
      producer-core send orders orders.jsonl --config-file $(producer-core broker status --config-file)

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
@click.option(
    "--secure",
    is_flag=True,
    help="Clients need TLS and a password, and may do only what they are granted.",
)
@options.as_json
def start(
    nodes: int, folder: Path | None, port: int | None, no_auto_create: bool, secure: bool, as_json: bool
) -> None:
    """Start it, and return when every broker answers; it runs on until `broker stop`.

    Prints the address for --bootstrap-servers. Topics that are merely used come to be with 4 partitions. Started
    already: says so, prints the same and changes nothing.

    With --secure it prints the path of a settings file for --config-file instead: those of the user `app`, who may
    use every topic. `admin` may do everything; `app2` nothing until `broker grant` says so. A second listener on
    127.0.0.1 asks for no password; it is for set-up.

    The JSON is {"bootstrap_servers": "host:port,…", "cluster_id", "folder", "nodes": [{"id", "port", "pid", "alive",
    "log"}]}, with --secure also {"direct_servers", "ca", "username", "password_file", "config_file", "users": [{"name",
    "mechanism", "password_file", "config_file"}]}.
    """
    from producer_core.brokers import detached

    with _progress() as progress:
        state, new = detached.start_detached(
            nodes=nodes,
            folder=folder,
            port=port,
            auto_create=not no_auto_create,
            secure=secure,
            progress=progress,
        )
    if not new:
        asked = "" if len(state.nodes) == nodes else f", with {output.count(len(state.nodes), 'node')}"
        if secure != (state.security is not None):
            asked += ", not secured" if secure else ", secured"
        output.say(f"It is running already{asked}; end it with: producer-core broker stop", err=True)
    if as_json:
        output.emit(_described(state))
        return
    output.say(str(state.security.config_file("app") if state.security else state.bootstrap_servers))


@broker.command(short_help="Which brokers run, and where.")
@click.option("--servers", is_flag=True, help="Only the addresses, for --bootstrap-servers.")
@click.option(
    "--config-file",
    "user",
    is_flag=False,
    flag_value="app",
    metavar="USER",
    help="Only the path of a user's client settings, for --config-file; default user app.",
)
@options.as_json
@click.pass_context
def status(ctx: click.Context, /, servers: bool, user: str | None, as_json: bool) -> None:
    """Which brokers run, where they listen, and where their data and logs are.

    Exit code 0 when at least one runs, 1 when none does. The JSON is that of `broker start`.
    """
    from producer_core.brokers import detached

    state = detached.status()
    if as_json:
        output.emit(_described(state) if state else {"bootstrap_servers": "", "nodes": []})
    elif state is None:
        output.say("No broker was started. Start one with: producer-core broker start", err=True)
    elif user:
        output.say(str(_security(state).config_file(user)))
    elif servers:
        output.say(state.bootstrap_servers)
    else:
        _show(state)
    ctx.exit(0 if state and state.alive else 1)


@broker.command(short_help="Allow a user of a secured broker what a feature needs.")
@_granting
def grant(user: str, feature: Feature, topics: tuple[str, ...], transactional_id: str | None) -> None:
    """Allow USER of a secured broker what FEATURE needs on TOPICS, and say what that is.

    \b
      producer-core broker grant app2 send orders payments
    """
    from producer_core.brokers import secure as access
    from producer_core.kafka.acls import required_permissions

    _change(
        access.grant,
        user,
        required_permissions(feature, topics, transactional_id=transactional_id),
        "may now",
    )


@broker.command(short_help="Take it back.")
@_granting
def revoke(user: str, feature: Feature, topics: tuple[str, ...], transactional_id: str | None) -> None:
    """Take back from USER what `broker grant` allowed."""
    from producer_core.brokers import secure as access
    from producer_core.kafka.acls import required_permissions

    _change(
        access.revoke,
        user,
        required_permissions(feature, topics, transactional_id=transactional_id),
        "may no longer",
    )


@broker.command()
def stop() -> None:
    """End it: cleanly, by force after a quarter of a minute. Without --folder its data are deleted."""
    from producer_core.brokers import detached

    state = detached.stop()
    if state is None:
        output.say("No broker was running.", err=True)
        return
    kept = "Its data are deleted." if state.temporary else f"Its data stay in {state.folder}."
    output.say(f"Stopped {output.count(len(state.nodes), 'broker')}. {kept}")


@broker.command(short_help="Fetch Apache Kafka's jars now.")
def fetch() -> None:
    """Fetch Apache Kafka's jars now, so that a later start needs no network."""
    from producer_core.brokers import jars

    with _progress() as progress:
        folder = jars.fetch(progress)
    output.say(f"Apache Kafka {jars.VERSION} is in {folder}")


def _change(
    act: Callable[[str, str, Sequence[Permission]], None],
    user: str,
    permissions: Sequence[Permission],
    words: str,
) -> None:
    from producer_core.brokers import detached

    state = detached.status()
    _security(state).password_file(user)  # an unknown user is an error
    assert state is not None
    act(state.direct_servers, user, permissions)
    for permission in permissions:
        output.say(f"{user} {words}: {permission}")


def _security(state: DetachedState | None) -> Security:
    if state is None or state.security is None:
        raise Failed("No secured broker was started.", "Start one with: producer-core broker start --secure")
    return state.security


def _described(state: DetachedState) -> dict[str, Any]:
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
        **(_credentials(state, state.security) if state.security else {}),
    }


def _credentials(state: DetachedState, security: Security) -> dict[str, Any]:
    from producer_core.brokers.secure import USERS

    return {
        "direct_servers": state.direct_servers,
        "ca": str(security.ca),
        "username": "app",
        "password_file": str(security.password_file("app")),
        "config_file": str(security.config_file("app")),
        "users": [
            {
                "name": user,
                "mechanism": mechanism,
                "password_file": str(security.password_file(user)),
                "config_file": str(security.config_file(user)),
            }
            for user, mechanism in USERS.items()
        ],
    }


def _show(state: DetachedState) -> None:
    output.pairs(
        [
            ("bootstrap servers", state.bootstrap_servers),
            ("cluster id", state.cluster_id),
            ("folder", str(state.folder)),
            *([("client settings", str(state.security.config_file("app")))] if state.security else []),
        ]
    )
    output.table(
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
        yield lambda text: output.say(text, err=True)
        return
    from rich.console import Console

    with Console(stderr=True).status("starting") as line:
        yield lambda text: line.update(text)
