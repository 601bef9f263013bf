"""The `broker` commands: a local Kafka cluster that runs until it is stopped."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from producer_core._internal.plural import plural
from producer_core.cli import options, output
from producer_core.cli.lazy_group import Failed
from producer_core.kafka.acls import FEATURES, Feature

if TYPE_CHECKING:
    from producer_core.brokers.detached import DetachedState
    from producer_core.brokers.schema_registry import RegistryProcess
    from producer_core.brokers.secure import Security
    from producer_core.kafka.acls import Permission


def _granting(command: options.F) -> options.F:
    """Add the arguments USER, FEATURE and TOPICS, and the option --transactional-id."""
    for option in (
        click.option(
            "--transactional-id", metavar="ID", help="For exactly_once: prefix of the transactional ids."
        ),
        click.argument("topics", nargs=-1, required=True),
        click.argument("feature", type=click.Choice(FEATURES)),
        click.argument("user"),
    ):
        command = option(command)
    return command


@click.group(short_help="Start and stop a local Kafka.")
def broker() -> None:
    """Run a real Apache Kafka cluster on this machine for tests and experiments.

    \b
      producer-core broker start                  one broker, ready in a few seconds
      producer-core broker start --nodes 3        three replicas; tolerates the failure of one broker
      producer-core send orders orders.jsonl -b $(producer-core broker status --servers)
      producer-core broker stop

    \b
      producer-core broker start --secure         with TLS, passwords and access control
      producer-core send orders orders.jsonl --config-file $(producer-core broker status --config-file)

    \b
      producer-core broker start --schema-registry   with a schema registry

    Requires Java 17 or newer. The jars (45 MB) are downloaded once. The brokers listen on 127.0.0.1 only.
    """


@broker.command(short_help="Start the brokers and wait until they respond.")
@click.option(
    "--nodes",
    type=click.IntRange(1, 9),
    default=1,
    show_default=True,
    help="Number of brokers; each uses 0.4 GiB of memory.",
)
@click.option(
    "--folder",
    type=click.Path(path_type=Path, file_okay=False),
    help="Keep the data in this folder; default: delete the data on stop.",
)
@click.option(
    "--port", type=click.IntRange(1024, 65535), help="Port of the first broker; default: a free port."
)
@click.option("--no-auto-create", is_flag=True, help="Do not create topics automatically on first use.")
@click.option(
    "--secure",
    is_flag=True,
    help="Require TLS and passwords, and enforce access control.",
)
@click.option("--schema-registry", is_flag=True, help="Run a schema registry beside the brokers.")
@options.as_json
def start(
    nodes: int,
    folder: Path | None,
    port: int | None,
    no_auto_create: bool,
    secure: bool,
    schema_registry: bool,
    as_json: bool,
) -> None:
    """Start the brokers, and return when every broker responds. They run until "broker stop".

    Prints the address for --bootstrap-servers. Topics are created automatically on first use, with 4 partitions. If the
    brokers are already running, the command prints the same address and changes nothing.

    The brokers support transactions and so exactly_once, with one node too. Each transaction adds a marker to each of
    its partitions, which takes an offset, so offsets have gaps. The embedded broker of the demo and the examples does
    not guarantee exactly_once.

    With --secure, it prints the path of a settings file for --config-file instead, for the user "app", which may use
    every topic. The user "admin" may do everything; "app2" has no permissions until "broker grant". A second listener
    on 127.0.0.1 requires no password; it is for setup.

    With --schema-registry, it also starts Apicurio Registry with Confluent's API (109 MB, downloaded once; 0.3 GiB of
    memory; without a password) and prints the registry's address in a second line, for --schema-registry of "send".

    The JSON object is {"bootstrap_servers": "host:port,…", "cluster_id", "folder", "nodes": [{"id", "port", "pid",
    "alive", "log"}]}, with --schema-registry also {"schema_registry_url"}, with --secure also {"direct_servers", "ca", "username", "password_file", "config_file", "users":
    [{"name", "mechanism", "password_file", "config_file"}]}.
    """
    from producer_core.brokers import detached

    with _progress() as progress:
        state, new = detached.start_detached(
            nodes=nodes,
            folder=folder,
            port=port,
            auto_create=not no_auto_create,
            secure=secure,
            registry=schema_registry,
            progress=progress,
        )
    if not new:
        details = "" if len(state.nodes) == nodes else f" with {plural(len(state.nodes), 'node')}"
        if secure != (state.security is not None):
            details += ", not secured" if secure else ", secured"
        if schema_registry and state.registry is None:
            details += ", without a schema registry"
        output.say(
            f"The broker is already running{details}. Stop it with: producer-core broker stop", err=True
        )
    if as_json:
        output.emit(_described(state))
        return
    output.say(str(state.security.config_file("app") if state.security else state.bootstrap_servers))
    if state.registry is not None:
        output.say(state.registry.url)


@broker.command(short_help="Show the running brokers and their addresses.")
@click.option("--servers", is_flag=True, help="Print only the addresses, for --bootstrap-servers.")
@click.option(
    "--config-file",
    "user",
    is_flag=False,
    flag_value="app",
    metavar="USER",
    help="Print only the settings file of USER; default: app.",
)
@options.as_json
@click.pass_context
def status(ctx: click.Context, /, servers: bool, user: str | None, as_json: bool) -> None:
    """Show the running brokers, their addresses, and the folders of their data and logs.

    Exit code: 0 if at least one broker is running, 1 otherwise. The JSON object is that of "broker start".
    """
    from producer_core.brokers import detached

    state = detached.status()
    if as_json:
        output.emit(_described(state) if state else {"bootstrap_servers": "", "nodes": []})
    elif state is None:
        output.say("No broker is running. Start one with: producer-core broker start", err=True)
    elif user:
        output.say(str(_security(state).config_file(user)))
    elif servers:
        output.say(state.bootstrap_servers)
    else:
        _show(state)
    ctx.exit(0 if state and state.alive else 1)


@broker.command(short_help="Grant a user the permissions of a feature.")
@_granting
def grant(user: str, feature: Feature, topics: tuple[str, ...], transactional_id: str | None) -> None:
    """Grant USER of a secured broker the permissions that FEATURE requires on TOPICS, and list them.

    \b
      producer-core broker grant app2 send orders payments
    """
    from producer_core.brokers import secure as access

    _change(access.grant, user, feature, topics, transactional_id, "granted")


@broker.command(short_help="Revoke the permissions of a feature.")
@_granting
def revoke(user: str, feature: Feature, topics: tuple[str, ...], transactional_id: str | None) -> None:
    """Revoke from USER the permissions that "broker grant" granted."""
    from producer_core.brokers import secure as access

    _change(access.revoke, user, feature, topics, transactional_id, "revoked")


@broker.command(short_help="Stop the brokers.")
def stop() -> None:
    """Stop the brokers, and kill any that are still running after 15 seconds.

    Their data is deleted unless they were started with --folder.
    """
    from producer_core.brokers import detached

    state = detached.stop()
    if state is None:
        output.say("No broker was running.", err=True)
        return
    kept = "The data is deleted." if state.temporary else f"The data remains in {state.folder}."
    output.say(f"Stopped {plural(len(state.nodes), 'broker')}. {kept}")


@broker.command(short_help="Download the jars of Apache Kafka.")
@click.option("--schema-registry", is_flag=True, help="Download Apicurio Registry instead (109 MB).")
def fetch(schema_registry: bool) -> None:
    """Download the jars of Apache Kafka, so that a later start needs no network."""
    from producer_core.brokers import jars
    from producer_core.brokers import schema_registry as registry

    if schema_registry:
        with _progress() as progress:
            folder = registry.fetch(progress)
        output.say(f"Apicurio Registry {registry.VERSION} is in {folder}")
        return
    with _progress() as progress:
        folder = jars.fetch(progress)
    output.say(f"Apache Kafka {jars.VERSION} is in {folder}")


def _change(
    change: Callable[[str, str, Sequence[Permission]], None],
    user: str,
    feature: Feature,
    topics: Sequence[str],
    transactional_id: str | None,
    verb: str,
) -> None:
    from producer_core.brokers import detached
    from producer_core.kafka.acls import required_permissions

    permissions = required_permissions(feature, topics, transactional_id=transactional_id)
    state = detached.status()
    _security(state).password_file(user)  # raises for an unknown user
    assert state is not None
    change(state.direct_servers, user, permissions)
    for permission in permissions:
        output.say(f"{user}: {verb} {permission}")


def _security(state: DetachedState | None) -> Security:
    if state is None or state.security is None:
        raise Failed("No secured broker is running.", "Start one with: producer-core broker start --secure")
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
        **({"schema_registry_url": state.registry.url} if state.registry else {}),
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
            *([("schema registry", _registry_text(state.registry))] if state.registry else []),
        ]
    )
    output.table(
        ("node", "state", "process", "log"),
        [
            (str(node.number), "running" if process.alive else "ended", str(process.pid), str(node.log))
            for node, process in zip(state.nodes, state.processes, strict=True)
        ],
    )


def _registry_text(registry: RegistryProcess) -> str:
    return registry.url if registry.process.alive else f"ended; its log is {registry.log}"


@contextmanager
def _progress() -> Iterator[Callable[[str], None]]:
    """Show the current step: on a terminal in one line that is erased at the end, otherwise in plain lines."""
    if not sys.stderr.isatty():
        yield lambda text: output.say(text, err=True)
        return
    from rich.console import Console

    with Console(stderr=True).status("starting") as line:
        yield lambda text: line.update(text)
