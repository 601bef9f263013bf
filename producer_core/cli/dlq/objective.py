"""The `dlq objective` commands: the time within which dead letters must be decided, and how it is met."""

from __future__ import annotations

import dataclasses
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from producer_core.cli import options, output

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from producer_core.dlq.objectives import TopicDecisions
    from producer_core.kafka.topic_retention import TopicRetention
    from producer_core.replay.probe_time import ProbeTime, TopicOfCluster

_TIMEOUT = 10.0
"""Seconds for each request to the brokers."""


class PercentType(click.ParamType[float]):
    """A percentage such as `95%`, `95` or `99.9`."""

    name = "percent"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        if isinstance(value, float):
            return value
        text = str(value).strip().removesuffix("%").strip()
        try:
            return float(text)
        except ValueError:
            self.fail(f"{value!r} is not a percentage; write, for example, 95%.", param, ctx)


@click.group(short_help="Set how soon dead letters must be decided.")
def objective() -> None:
    """Set how soon the dead letters of a topic must be decided, and show how the objectives are met.

    A dead letter is decided when it is replayed, found on its topic, or archived. The time starts when the message became
    a dead letter for the first time: a failed replay is no decision, and restoring an archived dead letter takes the
    decision back. A dead letter counts once, when it is decided or at its deadline if it is not decided until then.

    \b
      producer-core dlq objective set payments 95% 4h
      producer-core dlq objective set "*" 90% 1d         for all other topics
      producer-core dlq objective list
    """


@objective.command(name="set", short_help="Set the objective of a topic.")
@click.argument("topic")
@click.argument("percent", type=PercentType())
@click.argument("within", type=options.DurationType(positive=True))
@options.store_option
@options.as_json
def set_(topic: str, percent: float, within: float, store_path: Path | None, as_json: bool) -> None:
    """Set that PERCENT of the dead letters of TOPIC must be decided WITHIN a time. "*" means all other topics.

    The objective applies to every process that uses the store; the change is recorded in the audit log.

    \b
      producer-core dlq objective set payments 95% 4h
    """
    from producer_core._internal.decision_objective import DecisionObjective
    from producer_core.dlq.objectives import set_objective
    from producer_core.store import Store

    chosen = DecisionObjective(percent, within)
    store = Store.open(store_path, create=False)
    set_objective(store, topic, chosen, who=options.current_user(), origin="cli")
    if as_json:
        output.emit({"topic": topic, **chosen.to_setting()})
    else:
        output.say(f"Objective of {_name(topic)}: {chosen}.")


@objective.command(short_help="Remove the objective of a topic.")
@click.argument("topic")
@options.store_option
@options.as_json
def unset(topic: str, store_path: Path | None, as_json: bool) -> None:
    """Remove the objective of TOPIC, or with "*" that of all other topics.

    \b
      producer-core dlq objective unset payments
    """
    from producer_core.dlq.objectives import set_objective
    from producer_core.store import Store

    store = Store.open(store_path, create=False)
    set_objective(store, topic, None, who=options.current_user(), origin="cli")
    output.emit({"topic": topic}) if as_json else output.say(f"Removed the objective of {_name(topic)}.")


@objective.command(name="list", short_help="Show the objectives and how they are met.")
@click.option(
    "--since",
    type=options.TimestampType(),
    default="28d",
    show_default=True,
    help="Beginning of the range: a time, or a duration before now.",
)
@options.client_options
@options.store_option
@options.as_json
def list_(
    since: float,
    servers: str | None,
    settings: tuple[tuple[str, str], ...],
    config_file: Path | None,
    store_path: Path | None,
    as_json: bool,
) -> None:
    """Show each topic with an objective or with dead letters: its objective and how it is met in the range.

    \b
      in time    share of the dead letters evaluated in the range that were decided within their time
      pending    pending dead letters, and those past their deadline
      next       the next deadline of a pending dead letter, and the number of deadlines within an hour
      p50, p95   time to decision of the dead letters decided in the range
      record     how long the topic keeps the oldest pending record that may be on it, for a probe or a consumer
                 that skips duplicates; "not needed" if no pending record can be on the topic

    With --bootstrap-servers or --config-file, the brokers are asked for the retention of the topics. Otherwise it is what
    the latest dry runs of replays have read, or unknown.

    \b
      producer-core dlq objective list
      producer-core dlq objective list --since 7d --bootstrap-servers localhost:9092

    The JSON object is {"objectives": {topic: ...}, "topics": [...]}; durations are seconds.
    """
    from producer_core.dlq.objectives import decisions, objectives
    from producer_core.replay.probe_time import checked_retentions, probe_time
    from producer_core.store import Store

    store, now = Store.open(store_path, create=False), time.time()
    found = decisions(store, now, since=since)
    retentions = checked_retentions(store)
    if servers is not None or config_file is not None:
        asked = _asked(found, *options.client_settings(servers, settings, config_file))
        retentions = {**retentions, **asked}
    probes = {one.topic: probe_time(one, retentions, now) for one in found}
    known = objectives(store)
    if as_json:
        output.emit(
            {
                "objectives": {topic: one.to_setting() for topic, one in known.items()},
                "topics": [_record(one, probes[one.topic]) for one in found],
            }
        )
        return
    for topic in (topic for topic in known if topic == "*"):
        output.say(f"All topics without an objective of their own: {known[topic]}.")
    if not found:
        output.say("No dead letter is pending or was decided in the range, and no topic has an objective.")
        return
    columns = ("topic", "objective", "in time", "pending", "next", "p50", "p95", "record")
    output.table(columns, [_row(one, probes[one.topic], now) for one in found], shrink=("topic", "record"))


def _asked(
    found: Sequence[TopicDecisions], servers: str, settings: dict[str, Any]
) -> Mapping[TopicOfCluster, TopicRetention]:
    """Ask the brokers for the retention of the topics that need it. Topics of another cluster stay unknown."""
    from producer_core.config import client_config
    from producer_core.kafka.clients import cluster_id
    from producer_core.kafka.topic_retention import topic_retentions

    needed = [one.topic for one in found if one.doubtful_at is not None]
    if not needed:
        return {}
    connection = client_config(servers, settings).settings
    cluster = cluster_id(connection, needed[0], _TIMEOUT)
    if cluster is None:
        output.say(f"No broker responded at {servers}, so the retention was not read.", err=True)
        return {}
    return {
        (cluster, topic): retention
        for topic, retention in topic_retentions(connection, needed, _TIMEOUT).items()
    }


def _record(one: TopicDecisions, probe: ProbeTime) -> dict[str, Any]:
    """Return a topic for JSON."""
    record = {**dataclasses.asdict(one), "objective": one.objective and one.objective.to_setting()}
    return {**record, "met": one.met, "record_left": probe.left, "record": probe.text}


def _row(one: TopicDecisions, probe: ProbeTime, now: float) -> list[str]:
    late = f" ({one.overdue:,} late)" if one.overdue else ""
    return [
        one.topic,
        str(one.objective or "-"),
        "-" if one.met is None else f"{one.met:.2%}{' !' if one.is_missed else ''}",
        f"{one.pending:,}{late}",
        "-" if one.next_at is None else f"in {output.duration(one.next_at - now)} ({one.due:,} within 1 h)",
        _span(one.p50),
        _span(one.p95),
        probe.text,
    ]


def _span(seconds: float | None) -> str:
    return "-" if seconds is None else output.duration(seconds)


def _name(topic: str) -> str:
    return "all other topics" if topic == "*" else topic
