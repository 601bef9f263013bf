"""The `pipeline integrity` command: proof, by message id, of what became of what brokers acknowledged."""

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
WORDS = (
    "lost", "duplicated", "reordered", "expired", "pending", "unledgered", "given_up_found", "undecided",
    "ledger_gaps", "ledger_lost", "strange", "unauditable",
)  # fmt: skip
"""What --fail-on takes; each is a number of the report, but unauditable: no ledger, or a compacted topic."""


class _Kinds(click.ParamType[tuple[str, ...]]):
    """`lost,duplicated`."""

    name = "words"

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> tuple[str, ...]:
        if isinstance(value, tuple):
            return value
        named = tuple(word.strip() for word in str(value).split(",") if word.strip())
        if unknown := [word for word in named if word not in WORDS]:
            self.fail(
                f"{unknown[0]!r} is nothing that can be found; there are {', '.join(WORDS)}.", param, ctx
            )
        return named


class _Offsets(click.ParamType[dict[int, int]]):
    """`{"0": 1200, "1": 40}`."""

    name = "json"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> dict[int, int]:
        if isinstance(value, dict):
            return value
        try:
            return {int(number): _from_zero(offset) for number, offset in orjson.loads(value).items()}
        except (ValueError, TypeError, AttributeError):
            self.fail(
                f'{value!r} is not offsets by partition; write for example {{"0": 1200, "1": 40}}.',
                param,
                ctx,
            )


def _from_zero(offset: Any) -> int:
    if not isinstance(offset, int) or isinstance(offset, bool) or offset < 0:
        raise ValueError(offset)
    return offset


@click.command(short_help="Prove what is lost, duplicated and out of order on a topic, by message id.")
@click.option("--topic", required=True, help="The topic to audit.")
@options.client_options
@click.option(
    "--ledger-topic",
    "ledger_topics",
    multiple=True,
    help="A telemetry topic with the producers' ledgers; may be given more than once.",
)
@options.store_option
@click.option(
    "--since", type=options.TimestampType(), help="Records since then: 2h (ago), 2026-01-31T12:00 (UTC)."
)
@click.option("--until", type=options.TimestampType(), help="Records before then.")
@click.option(
    "--from-offsets", type=_Offsets(), metavar="JSON", help='Begin here: {"0": 1200}; others at their start.'
)
@click.option("--incremental", is_flag=True, help="Only what no --incremental audit of this store has read.")
@click.option(
    "--isolation",
    type=click.Choice(["read_committed", "read_uncommitted"]),
    default="read_committed",
    show_default=True,
    help="As which reader.",
)
@click.option(
    "--fail-on",
    type=_Kinds(),
    default=(),
    metavar="WORDS",
    help=f"Exit code 1 when any of these was found: {', '.join(WORDS)}.",
)
@click.option("--findings", metavar="FOLDER", help="All findings as Parquet, in a new folder of this one.")
@click.option("--html", type=click.Path(path_type=Path, dir_okay=False), help="The report as a page, too.")
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
    """Reads a topic once, compares it with what producers wrote down of the broker's acknowledgements, and looks at
    what differs a second time.

    \b
      producer-core pipeline integrity --topic orders --ledger-topic telemetry -b localhost:9092
      producer-core pipeline integrity --topic orders --ledger-topic telemetry --incremental --fail-on lost,duplicated

    Ledgers come from the telemetry topics and from the store (`producer-core send` keeps its own there). Nothing is
    written to Kafka. The store keeps the report, and is made where there is none.

    \b
    Exit codes: 0 audited, 1 what --fail-on names was found, 2 it could not be done.
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
    _tell(report, as_json)
    if report.found(fail_on):
        sys.exit(FOUND)


def _tell(report: AuditReport, as_json: bool) -> None:
    if as_json:
        output.emit(report.to_dict())
    else:
        output.say(repr(report))


def _page(report: AuditReport) -> str:
    return (
        f'<!doctype html><meta charset="utf-8"><title>Audit of {report.topic}</title>{report._repr_html_()}\n'
    )
