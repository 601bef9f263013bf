"""The `pipeline integrity` command: compare acknowledged messages with the records on a topic, by message id."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
import orjson

from producer_core.cli import open_store, options, output
from producer_core.cli.pipeline.spark_options import SparkChoice, spark_options

if TYPE_CHECKING:
    from producer_core.pipeline.integrity import AuditReport

FOUND = 1
FINDINGS = (
    "lost", "duplicated", "reordered", "expired", "pending", "unledgered", "given_up_found", "undecided",
    "ledger_gaps", "ledger_lost", "strange", "unauditable",
)  # fmt: skip
"""The values of --fail-on: counts of the report, and "unauditable" (no ledger, or a compacted topic)."""


class _Findings(click.ParamType[tuple[str, ...]]):
    """Findings separated by commas, such as `lost,duplicated`."""

    name = "words"

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> tuple[str, ...]:
        if isinstance(value, tuple):
            return value
        named = tuple(word.strip() for word in str(value).split(",") if word.strip())
        if unknown := [word for word in named if word not in FINDINGS]:
            self.fail(f"{unknown[0]!r} is not a finding. Findings: {', '.join(FINDINGS)}.", param, ctx)
        return named


class _Offsets(click.ParamType[dict[int, int]]):
    """Offsets by partition as JSON, such as `{"0": 1200, "1": 40}`."""

    name = "json"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> dict[int, int]:
        if isinstance(value, dict):
            return value
        try:
            return {int(number): _valid_offset(offset) for number, offset in orjson.loads(value).items()}
        except (ValueError, TypeError, AttributeError):
            self.fail(
                f'{value!r} is not a JSON object of offsets by partition, such as {{"0": 1200, "1": 40}}.',
                param,
                ctx,
            )


def _valid_offset(offset: Any) -> int:
    if not isinstance(offset, int) or isinstance(offset, bool) or offset < 0:
        raise ValueError(offset)
    return offset


@click.command(short_help="Find lost, duplicated and reordered messages on a topic.")
@click.option("--topic", required=True, help="The topic to audit.")
@options.client_options
@click.option(
    "--ledger-topic",
    "ledger_topics",
    multiple=True,
    help="Telemetry topic with the producers' ledgers; repeatable.",
)
@options.store_option
@click.option(
    "--since",
    type=options.TimestampType(),
    help="Records since this time: 2h (ago), or 2026-01-31T12:00 (UTC).",
)
@click.option("--until", type=options.TimestampType(), help="Records before this time.")
@click.option(
    "--from-offsets",
    type=_Offsets(),
    metavar="JSON",
    help='First offset by partition, such as {"0": 1200}; default: the start.',
)
@click.option("--incremental", is_flag=True, help="Read only records after the last --incremental audit.")
@click.option(
    "--isolation",
    type=click.Choice(["read_committed", "read_uncommitted"]),
    default="read_committed",
    show_default=True,
    help="Isolation level of the consumer.",
)
@click.option(
    "--fail-on",
    type=_Findings(),
    default=(),
    metavar="FINDING,...",
    help=f"Exit with code 1 for any of these findings: {', '.join(FINDINGS)}.",
)
@click.option("--findings", metavar="FOLDER", help="Write all findings as Parquet to a new subfolder.")
@click.option(
    "--html", type=click.Path(path_type=Path, dir_okay=False), help="Also write the report as HTML."
)
@spark_options
@options.as_json
def integrity(
    topic: str,
    servers: str | None,
    settings: tuple[tuple[str, str], ...],
    config_file: Path | None,
    ledger_topics: tuple[str, ...],
    store_path: Path | None,
    since: float | None,
    until: float | None,
    from_offsets: dict[int, int] | None,
    incremental: bool,
    isolation: str,
    fail_on: tuple[str, ...],
    findings: str | None,
    html: Path | None,
    spark: SparkChoice,
    as_json: bool,
) -> None:
    """Compare the records of a topic with the acknowledgements in the producers' ledgers, by message id.

    The audit reads the topic once; if there are more than 50 million records, it reads the differences twice.

    \b
      producer-core pipeline integrity --topic orders --ledger-topic telemetry -b localhost:9092
      producer-core pipeline integrity --topic orders --ledger-topic telemetry --incremental --fail-on lost,duplicated

    The ledgers come from telemetry topics and from the store (`producer-core send` keeps its ledger there). The audit
    writes nothing to Kafka. The store keeps the report; a missing store is created.

    \b
    Exit codes: 0 audited, 1 a finding listed in --fail-on, 2 the command could not run.
    """
    from producer_core.config import client_config
    from producer_core.pipeline import preflight
    from producer_core.pipeline.integrity import audit
    from producer_core.pipeline.integrity.scope import AuditScope
    from producer_core.pipeline.integrity.spans import check_partitions

    AuditScope(since, until, from_offsets or {}, incremental)
    spark.check()
    addresses, chosen = options.client_settings(servers, settings, config_file)
    config = client_config(addresses, chosen)
    cluster = preflight.reach(config, [topic, *ledger_topics])
    if from_offsets:
        check_partitions(from_offsets, range(cluster.topic(topic).partitions))
    store = open_store.opened(store_path)
    with spark.session("integrity", driver_memory="2g") as session:
        report = audit(
            session, topic, bootstrap_servers=config, ledger_topics=ledger_topics, store=store, since=since,
            until=until, from_offsets=from_offsets, incremental=incremental,
            isolation="read_uncommitted" if isolation == "read_uncommitted" else "read_committed", findings=findings,
        )  # fmt: skip
    if html is not None:
        html.write_text(_page(report))
    _print(report, as_json)
    if report.found(fail_on):
        sys.exit(FOUND)


def _print(report: AuditReport, as_json: bool) -> None:
    if as_json:
        output.emit(report.to_dict())
    else:
        output.say(repr(report))


def _page(report: AuditReport) -> str:
    return (
        f'<!doctype html><meta charset="utf-8"><title>Audit of {report.topic}</title>{report._repr_html_()}\n'
    )
