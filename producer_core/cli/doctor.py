"""The `doctor` command: check the environment and print each finding with its fix."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import TYPE_CHECKING

import click

from producer_core._internal.plural import plural
from producer_core.cli import options, output
from producer_core.kafka.acls import FEATURES, Feature

if TYPE_CHECKING:
    from producer_core.diagnostics.doctor import DoctorFinding
_SIGNS = {"ok": "ok      ", "warning": "WARNING ", "problem": "PROBLEM "}
_COLOURS = {"ok": "green", "warning": "yellow", "problem": "red"}


@click.command(short_help="Check brokers, topics, schemas, store, Redis and Java.")
@options.client_options
@options.store_option
@click.option(
    "--topic", "topics", multiple=True, help="Check the replicas of and permissions on TOPIC; repeatable."
)
@click.option(
    "--feature",
    "features",
    type=click.Choice(FEATURES),
    multiple=True,
    help="Feature whose permissions are checked; repeatable. Default: send, probe, standing.",
)
@click.option("--transactional-id", metavar="ID", help="Check the permission to use this transactional id.")
@click.option("--redis-url", help="Check this Redis server, for example redis://localhost:6379/0.")
@click.option(
    "--schema-registry",
    metavar="URL",
    help="Check this schema registry and the subjects of the topics. Default: schema.registry.url of the settings.",
)
@click.option(
    "--timeout",
    type=options.DurationType(),
    default="10s",
    show_default=True,
    help="Time limit for a broker's response.",
)
@options.as_json
@click.pass_context
def doctor(
    ctx: click.Context,
    /,
    servers: str | None,
    settings: tuple[tuple[str, str], ...],
    config_file: Path | None,
    store_path: Path | None,
    topics: tuple[str, ...],
    features: tuple[Feature, ...],
    transactional_id: str | None,
    redis_url: str | None,
    schema_registry: str | None,
    timeout: float,
    as_json: bool,
) -> None:
    """Check everything that sending requires, and print what to fix.

    \b
      producer-core doctor --bootstrap-servers broker1:9092 --topic orders
      producer-core doctor --topic orders --feature exactly_once --transactional-id shop
      producer-core doctor --json | jq '.findings[] | select(.level != "ok")'

    Exit code: 0 without a problem (warnings do not count), 1 with a problem.
    The JSON object is {"status": "ok" | "warning" | "problem", "findings": [{"check", "level", "text", "fix"}]}.
    """
    from producer_core.diagnostics.doctor import DEFAULT_FEATURES, examine

    addresses, config = options.client_settings(servers, settings, config_file)
    found: list[DoctorFinding] = []
    for finding in examine(
        addresses,
        config,
        topics=topics,
        store=store_path,
        redis_url=redis_url,
        timeout=timeout,
        features=features or DEFAULT_FEATURES,
        transactional_id=transactional_id,
        schema_registry=schema_registry,
    ):
        found.append(finding)
        if not as_json:
            _print(finding)
    levels = [finding.level for finding in found]
    status = next((level for level in ("problem", "warning") if level in levels), "ok")
    if as_json:
        output.emit({"status": status, "findings": [dataclasses.asdict(finding) for finding in found]})
    else:
        counts = (
            plural(levels.count("problem"), "problem"),
            plural(levels.count("warning"), "warning"),
        )
        output.say(f"\n{counts[0]}, {counts[1]}.")
    ctx.exit(1 if status == "problem" else 0)


def _print(finding: DoctorFinding) -> None:
    sign = click.style(_SIGNS[finding.level], fg=_COLOURS[finding.level])
    output.say(f"{finding.check}: {finding.text}", sign=sign)
    if finding.fix and finding.level != "ok":
        output.say(f"        {finding.fix}")
