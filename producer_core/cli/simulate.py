"""The `simulate` command: generate simulated shop traffic and send, print or save it."""

from __future__ import annotations

import contextlib
import json
import sys
from collections.abc import Callable, Iterator
from datetime import datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any, TextIO, TypeVar

import click

from producer_core._internal.join_names import join_names
from producer_core._internal.plural import plural
from producer_core.cli import options, simulate_setup
from producer_core.cli import output as cli_output
from producer_core.cli.lazy_group import Failed

if TYPE_CHECKING:
    from producer_core.simulate.config import DataGenerationConfig

F = TypeVar("F", bound=Callable[..., Any])

_TOPICS = ("transactions", "user-events", "product-updates", "fraud-alerts", "analytics-results")
_SCENARIOS = ("normal_traffic", "peak_traffic", "fraud_testing", "maintenance_mode")


class ScenarioGroup(click.Group):
    """Accepts `simulate SCENARIO` for `simulate stream --scenario SCENARIO`."""

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        found = super().get_command(ctx, cmd_name)
        if found is None and cmd_name.replace("-", "_") in _SCENARIOS:
            return _scenario(cmd_name.replace("-", "_"))
        return found

    def resolve_command(self, ctx: click.Context, args: list[str]) -> Any:
        if args and not args[0].startswith("-") and self.get_command(ctx, args[0]) is None:
            names = [*_SCENARIOS, *self.list_commands(ctx)]
            ctx.fail(f"Unknown scenario {args[0]!r}. Valid: {', '.join(names)}.")
        return super().resolve_command(ctx, args)


@click.group(cls=ScenarioGroup, short_help="Send simulated shop traffic.")
@click.option(
    "--shop",
    "--config",
    "-c",
    "shop_file",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help='Shop settings (JSON); "simulate config" prints the defaults.',
)
@click.pass_context
def simulate(ctx: click.Context, shop_file: Path | None) -> None:
    """Send the traffic of a simulated shop to Kafka, print it, or write it to a file.

    \b
    Scenarios (producer-core simulate SCENARIO):
      normal_traffic    an ordinary day: purchases, visits and product updates
      peak_traffic      a sale: three times the traffic, plus analytics
      fraud_testing     one in ten purchases is fraudulent and raises a fraud alert
      maintenance_mode  almost no traffic

    \b
      producer-core simulate normal_traffic --duration 5m --bootstrap-servers localhost:9092
      producer-core simulate peak_traffic --rate 500 --duration 30s
      producer-core simulate fraud_testing --dry-run
      producer-core simulate generate -t transactions -n 1000 --seed 7 -o transactions.jsonl
    """
    ctx.obj = simulate_setup.shop_of(shop_file)


def _streaming_options(command: F) -> F:
    for option in (
        click.option(
            "--dry-run", is_flag=True, help="Print the plan with an example per topic; send nothing."
        ),
        click.option("--no-store", is_flag=True, help="Do not keep statistics or dead letters."),
        options.store_option,
        click.option("--seed", type=int, help="Seed for reproducible records (except timestamps)."),
        click.option(
            "--rate-multiplier",
            "-r",
            type=click.FloatRange(min=0, min_open=True),
            default=1.0,
            show_default=True,
            help="Multiplier for the usual traffic of the shop.",
        ),
        click.option(
            "--rate",
            type=click.FloatRange(min=0, min_open=True),
            help="Total messages per second; default: by hour and season.",
        ),
        click.option(
            "--duration",
            "-d",
            type=options.DurationType(),
            default="1h",
            show_default=True,
            help="Duration: 30s, 5m, 2h.",
        ),
        click.option(
            "--topics",
            "-t",
            type=click.Choice(_TOPICS),
            multiple=True,
            help="Topics to send instead of a scenario; repeatable.",
        ),
        options.client_options,
    ):
        command = option(command)
    return command


def _scenario(name: str) -> click.Command:
    @_streaming_options
    @click.pass_obj
    def run(shop: DataGenerationConfig, /, **given: Any) -> None:
        _stream(shop, name, **given)

    run.__doc__ = f"Send the traffic of the scenario {name}. Ctrl-C stops it and waits for pending messages."
    return click.command(name=name)(run)


@simulate.command(short_help="Send the traffic of a scenario.")
@click.option(
    "--scenario",
    "-s",
    type=click.Choice(_SCENARIOS),
    default="normal_traffic",
    show_default=True,
    help="Scenario to send.",
)
@_streaming_options
@click.pass_obj
def stream(shop: DataGenerationConfig, /, scenario: str, **given: Any) -> None:
    """Send the traffic of a scenario, or of the selected topics."""
    _stream(shop, scenario, **given)


def _stream(
    shop: DataGenerationConfig,
    scenario: str,
    *,
    servers: str | None,
    settings: tuple[tuple[str, str], ...],
    config_file: Path | None,
    topics: tuple[str, ...],
    duration: float,
    rate: float | None,
    rate_multiplier: float,
    seed: int | None,
    store_path: Path | None,
    no_store: bool,
    dry_run: bool,
) -> None:
    from producer_core.simulate.scenarios import scenarios

    definition = scenarios()[scenario]
    chosen = list(topics or definition["topics"])
    multiplier = rate_multiplier * (1.0 if topics else definition["rate_multiplier"])
    if not topics and "fraud_rate_override" in definition:
        shop.fraud_rate = definition["fraud_rate_override"]
    if dry_run:
        simulate_setup.plan(shop, chosen, duration, multiplier, rate, seed)
        return
    address, client = options.client_settings(servers, settings, config_file)
    with simulate_setup.orchestrator(
        shop, address, client, simulate_setup.store_of(store_path, no_store), seed
    ) as generation:
        cli_output.say(
            f"Sending {join_names(chosen)} to {address} for {cli_output.duration(duration)}; press Ctrl-C to stop.",
            err=True,
        )
        with _interruptible("Interrupted; waiting for pending messages."):
            generation.run_topics(chosen, duration / 3600, rate_multiplier=multiplier, rate=rate)


@simulate.command(short_help="Send the traffic of past days at full speed.")
@click.option(
    "--days", "-d", type=click.IntRange(min=1), default=30, show_default=True, help="Number of days."
)
@click.option(
    "--batch-size",
    type=click.IntRange(1, 100_000),
    default=1000,
    show_default=True,
    help="Records held in memory.",
)
@click.option("--seed", type=int, help="Seed for reproducible records (except timestamps).")
@options.store_option
@click.option("--no-store", is_flag=True, help="Do not keep statistics or dead letters.")
@options.client_options
@click.pass_obj
def historical(
    shop: DataGenerationConfig,
    days: int,
    batch_size: int,
    seed: int | None,
    store_path: Path | None,
    no_store: bool,
    servers: str | None,
    settings: tuple[tuple[str, str], ...],
    config_file: Path | None,
) -> None:
    """Send the traffic of past days as fast as it is generated, in batches of bounded size.

    Thirty days of the default shop are 79 million messages; start with --days 1.
    """
    address, client = options.client_settings(servers, settings, config_file)
    with simulate_setup.orchestrator(
        shop, address, client, simulate_setup.store_of(store_path, no_store), seed
    ) as generation:
        with _interruptible("Interrupted; waiting for pending messages."):
            generation.generate_historical_data(days, batch_size=batch_size)


@simulate.command(short_help="Write records as JSON Lines.")
@click.option(
    "--type",
    "-t",
    "kind",
    type=click.Choice((*simulate_setup.TYPES, "all")),
    required=True,
    help="Type of the records.",
)
@click.option(
    "--count",
    "-n",
    type=click.IntRange(min=0),
    default=1000,
    show_default=True,
    help="Number of records; with --type all, a third per type.",
)
@click.option(
    "--output",
    "-o",
    type=click.Path(path_type=Path, dir_okay=False),
    help="Output file; default: standard output.",
)
@click.option("--start-date", type=click.DateTime(), help="Start; default: 7 days before the end.")
@click.option("--end-date", type=click.DateTime(), help="End; default: now, or 2025-01-01 with a seed.")
@click.option("--pretty", is_flag=True, help="Write one indented JSON array.")
@click.option("--seed", type=int, help="Seed for a reproducible file.")
@click.pass_obj
def generate(
    shop: DataGenerationConfig,
    kind: str,
    count: int,
    output: Path | None,
    start_date: datetime | None,
    end_date: datetime | None,
    pretty: bool,
    seed: int | None,
) -> None:
    """Write records as JSON Lines, for "producer-core send" or for tests.

    With --type all, the field "topic" of each record contains its topic.
    """
    from producer_core.simulate.generator import SEEDED_NOW, ECommerceDataGenerator

    week = timedelta(days=7)
    now = datetime.now() if seed is None else SEEDED_NOW
    end = end_date or (start_date + week if start_date and start_date > now else now)
    start = start_date or end - week
    if end < start:
        raise click.UsageError(f"--end-date {end:%Y-%m-%d} is before --start-date {start:%Y-%m-%d}.")
    records = simulate_setup.records_of(ECommerceDataGenerator(shop, seed=seed), kind, count, start, end)
    with _output(output) as file:
        if pretty:
            json.dump(list(records), file, indent=2)
            file.write("\n")
        else:
            for record in records:
                file.write(json.dumps(record) + "\n")
    if output is not None:
        cli_output.say(f"{plural(count, 'record')} written to {output}.", err=True)


@simulate.command(short_help="Print the shop settings as JSON.")
@click.option(
    "--output",
    "-o",
    type=click.Path(path_type=Path, dir_okay=False),
    help="Output file; default: standard output.",
)
@click.pass_obj
def config(shop: DataGenerationConfig, output: Path | None) -> None:
    """Print the shop settings as JSON. Edit them and use the file with --shop."""
    with _output(output) as file:
        file.write(shop.to_json() + "\n")


@contextlib.contextmanager
def _interruptible(text: str) -> Iterator[None]:
    """Print `text` on Ctrl-C, which ends the block, and the command with exit code 130."""
    try:
        yield
    except KeyboardInterrupt:
        cli_output.say(f"\n{text}", err=True)
        raise


@contextlib.contextmanager
def _output(path: Path | None) -> Iterator[TextIO]:
    if path is None:
        yield sys.stdout
        return
    try:
        with path.open("w") as file:
            yield file
    except OSError as error:
        raise Failed(f"{path} cannot be written: {error.strerror}.") from error
