"""The `pipeline reprocess` command: a large DLQ sent again by Spark's workers, each dead letter exactly once."""

from __future__ import annotations

import contextlib
import tempfile
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

import click

from producer_core.cli import open_store, options, output
from producer_core.cli.dlq import filter_options, replay_dead_letters
from producer_core.cli.lazy_group import Failed
from producer_core.cli.pipeline.spark_options import SparkChoice, spark_options
from producer_core.cli.replay import replay_text
from producer_core.cli.replay.plan_options import plan_options
from producer_core.cli.replay.replay_run import ReplayRun, reached
from producer_core.cli.send import progress_bar
from producer_core.replay.runner import SPREAD_DRAIN

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from producer_core.config import ClientConfig
    from producer_core.dlq import DeadLetterFilter
    from producer_core.pipeline.reprocess import ReprocessOptions
    from producer_core.replay import Inconclusive, Newer, Operation, ReplayRunner
    from producer_core.store import Store


@click.command(short_help="Send a large DLQ again, in parallel, each dead letter once.")
@filter_options.filter_options
@click.option(
    "--from-export",
    "file",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="The dead letters of this file of dlq export; it is imported first.",
)
@click.option(
    "--no-manifest", is_flag=True, help="Take what can be read of a file without a (true) manifest."
)
@click.option(
    "--from-topic",
    "dead_letter_topic",
    metavar="TOPIC",
    help="The records of this Kafka dead-letter topic, in any dialect of dlq fetch; it is fetched first.",
)
@click.option(
    "--original-topic",
    metavar="TOPIC",
    help="Where records of that topic belong whose headers do not say it.",
)
@click.option(
    "--operation", "operation_id", metavar="ID", help="Go on with this replay, which Spark had before."
)
@plan_options
@click.option("--slices", type=click.IntRange(1, 256), help="Parallel slices.  [default: two a core]")
@click.option(
    "--slice-by",
    type=click.Choice(["session", "key"]),
    help="What keeps its order: a producer's session (the default), or a key of a topic: more parallel where one "
    "session has most letters.",
)
@click.option(
    "--progress-topic", metavar="TOPIC", help="Where slices are sealed.  [default: producer-core-progress]"
)
@click.option("--wave", type=click.IntRange(min=1), help="Letters at once, at most.  [default: 5000]")
@spark_options
@options.client_options
@options.yes
@options.store_option
@options.as_json
@click.pass_context
def reprocess(
    ctx: click.Context,
    /,
    store_path: Path | None,
    file: Path | None,
    no_manifest: bool,
    dead_letter_topic: str | None,
    original_topic: str | None,
    operation_id: str | None,
    dry_run: bool,
    to_cluster: str | None,
    include_quarantined: bool,
    slices: int | None,
    slice_by: Any,
    progress_topic: str | None,
    wave: int | None,
    spark: SparkChoice,
    servers: str | None,
    settings: tuple[tuple[str, str], ...],
    config_file: Path | None,
    yes: bool,
    as_json: bool,
    **given: Any,
) -> None:
    """Send the dead letters that the selection matches again, by Spark's workers, each exactly once.

    \b
      producer-core pipeline reprocess --topic orders --dry-run -b broker1:9092
      producer-core pipeline reprocess --topic orders -b broker1:9092 --yes
      producer-core pipeline reprocess --from-export orders.parquet -b broker1:9092 --slice-by key
      producer-core pipeline reprocess --from-topic orders-dlt -b broker1:9092 --rate 2000
      producer-core pipeline reprocess --operation 1f2e3d4c5b6a -b broker1:9092

    It is a replay as dlq replay makes one: the same look ahead, canary, rate (of the whole job), stop rule and
    outcomes, seen by the dashboard and by replay status, paused and cancelled there. A read_committed reader sees each
    dead letter once, whatever is killed meanwhile: workers, this process, brokers. After a killed process give the same
    command again, or --operation. Ctrl-C pauses.

    \b
    Exit codes: 0 all acknowledged or found on their topic (or a dry run was made), 1 some failed
    again, were skipped, or it stopped itself, 2 it could not be done, 130 paused by Ctrl-C.
    """
    from producer_core.dlq import DeadLetters
    from producer_core.pipeline.reprocess import (
        RECORDS_PER_BATCH,
        ReprocessOptions,
        from_sources,
        import_sources,
    )
    from producer_core.store import Store

    names = ("limit", "rate", "canary", "stop_percent", "stop_last", "newer", "inconclusive", "reason")
    plan = {name: given.pop(name) for name in names} | {"allow_quarantined": include_quarantined}
    where = from_sources(filter_options.chosen(given), file=file, dead_letter_topic=dead_letter_topic)
    if operation_id is not None:
        _only_goes_on(where, {**plan, "to_cluster": to_cluster})
    bringing = file is not None or dead_letter_topic is not None
    known = None if bringing else Store.open(store_path, create=False)
    spark.check()
    config, cluster = reached(*options.client_settings(servers, settings, config_file), to_cluster)
    counted = {name: plan[name] for name in ("limit", "rate", "newer", "inconclusive", "allow_quarantined")}
    source = {"file": file, "no_manifest": no_manifest, "dead_letter_topic": dead_letter_topic,
              "original_topic": original_topic}  # fmt: skip
    if dry_run:
        with _looked_at(known, source, config) as store:
            client = (config.bootstrap_servers, config.settings)
            where = filter_options.frozen(DeadLetters(store), where)
            replay_dead_letters.only_say(
                ReplayRun(store, where, client, to_cluster=to_cluster), counted, None, as_json=as_json
            )
        return
    store = known or open_store.opened(store_path)
    if bringing and operation_id is None:
        with progress_bar.told("taken in") as tell:
            for text in import_sources(
                store,
                config.settings,
                who=options.current_user(),
                progress=tell,
                **source,  # type: ignore[arg-type]
            ):
                output.say(text, err=True)
    where = filter_options.frozen(DeadLetters(store), where)
    choices = ReprocessOptions(slices, slice_by, progress_topic, wave or RECORDS_PER_BATCH)
    with ReprocessRun(store, where, None, to_cluster=to_cluster, origin="pipeline") as job:
        job.prepare(config.settings, cluster, choices)
        job.end_cancelled()
        under_way = replay_dead_letters.same(store, where)
        if operation_id is None and under_way is None and not DeadLetters(store).count(where):
            none = filter_options.none(DeadLetters(store), where)
            replay_dead_letters.end(ctx, as_json, store, None, f"Nothing to replay: {none}")
            return
        if operation_id is not None:
            operation = job.go(job.chosen(operation_id), rate=plan["rate"])
        else:
            looking = ReplayRun(
                store, where, (config.bootstrap_servers, config.settings), to_cluster=to_cluster
            )
            asks = replay_dead_letters.agreed(looking, counted, _ours(under_way), yes=yes)
            operation = replay_dead_letters.decided(job, plan, under_way, asks=asks, as_json=as_json)
        if not operation.ended:
            with spark.session("reprocess") as session:
                operation = job.under(session, operation)
    replay_dead_letters.end(ctx, as_json, store, operation, replay_text.sentence(operation))


@dataclass
class ReprocessRun(ReplayRun):
    """A replay that Spark carries out; its look ahead needs no Spark."""

    patience: ClassVar[float] = SPREAD_DRAIN + 5
    waits_for: ClassVar[str] = (
        "The wave that Spark is sending gets 8 s to end; then it is killed, and its records are looked for on their "
        "topics (45 s at most). The rest stays in the store …"
    )
    _make: Callable[[Callable[[], SparkSession] | None], ReplayRunner] = field(init=False)
    _settings: Mapping[str, Any] = field(init=False)
    _choices: ReprocessOptions = field(init=False)

    def prepare(self, settings: Mapping[str, Any], cluster: str, choices: ReprocessOptions) -> None:
        """Where it sends to, and how; nobody is asked yet."""
        from producer_core.pipeline.reprocess import spark_runner

        self._cluster = cluster
        self._settings, self._choices = settings, choices
        self._make = lambda session: spark_runner(self.store, settings, cluster, choices, session=session)
        self._runner = self._make(None)

    def end_cancelled(self) -> None:
        """What a dead driver left of replays that were cancelled is looked for, before anything is planned."""
        from producer_core.pipeline.reprocess import end_cancelled

        for operation in end_cancelled(self.store, self._make(None), self._cluster):
            output.say(f"{operation.operation_id}: {replay_text.sentence(operation)}", err=True)

    def chosen(self, operation_id: str) -> Operation:
        """An operation that Spark had before, of this cluster."""
        from producer_core import replay

        operation = replay.get(self.store, operation_id)
        self._make(None).check(operation)
        self._operation_id = operation_id
        return operation

    def go(
        self,
        operation: Operation,
        *,
        newer: Newer | None = None,
        inconclusive: Inconclusive | None = None,
        rate: float | None = None,
    ) -> Operation:
        """Where its seals go is made, or seen to be usable, before anything goes and before Spark starts."""
        from producer_core.pipeline.reprocess import progress_topic as reprocess_progress_topic
        from producer_core.pipeline.reprocess import slicing

        if operation.state in ("planned", "running") and rate not in (None, operation.rate):
            raise Failed(
                f"The replay {operation.operation_id} goes on at the rate that it has.",
                f"Pause it first: producer-core replay pause {operation.operation_id}.",
            )
        if not operation.ended:
            topic = slicing.progress_topic(self.store, operation.operation_id, self._choices.progress_topic)
            reprocess_progress_topic.require_topic(self._settings, topic)
        return super().go(operation, newer=newer, inconclusive=inconclusive, rate=rate)

    def under(self, session: SparkSession, operation: Operation) -> Operation:
        """Carried out under this session, until it ends, pauses, or Ctrl-C."""
        from producer_core.pipeline.job_status import track_job
        from producer_core.pipeline.reprocess.job import report_progress

        self._stop()
        self._running, self._runner = None, self._make(lambda: session)
        left: click.exceptions.Exit | None = None
        with track_job(self.store, name=f"reprocess {operation.operation_id}", kind="reprocess") as told:
            told.details({"operation": operation.operation_id, "spark": session.sparkContext.applicationId})
            try:
                operation = replay_dead_letters.watched(
                    self, operation, lambda now: report_progress(told, now)
                )
                told.message(replay_text.sentence(operation))
            except click.exceptions.Exit as paused:
                told.unfinished(failed=False)
                told.message("Paused by Ctrl-C.")
                left = paused
        if left is not None:
            raise left
        return operation


def _only_goes_on(where: DeadLetterFilter, plan: Mapping[str, Any]) -> None:
    """A replay that was begun keeps its dead letters and its plan; only its rate may change."""
    from producer_core.dlq import DeadLetterFilter

    names = {"allow_quarantined": "--include-quarantined", "to_cluster": "--to"}
    given = [
        names.get(name, f"--{name.replace('_', '-')}")
        for name, value in plan.items()
        if value is not None and value is not False and name != "rate"
    ]
    if where != DeadLetterFilter():
        given.insert(0, "a selection")
    if given:
        raise Failed(
            f"A replay that was begun keeps its dead letters and its plan, and you gave {', '.join(given)}.",
            "Leave that out; only --rate may change with --operation.",
        )


def _ours(under_way: Operation | None) -> Operation | None:
    """The replay of this selection that is under way already; Failed where it is not Spark's."""
    if under_way is not None and not under_way.by_spark:
        raise Failed(
            f"There is an ordinary replay of this selection: {replay_text.standing(under_way)}",
            f"Let it end (producer-core replay status), or cancel it: producer-core replay cancel {under_way.operation_id}.",
        )
    return under_way


@contextlib.contextmanager
def _looked_at(known: Store | None, source: dict[str, Any], config: ClientConfig) -> Iterator[Store]:
    """The store; for a dry run of a source a store of its own that is thrown away, with what the source holds."""
    from producer_core.pipeline.reprocess import import_sources
    from producer_core.store import Store

    if known is not None:
        yield known
        return
    with tempfile.TemporaryDirectory(prefix="producer-core-") as folder:
        store = Store.open(Path(folder) / "look.duckdb")
        for text in import_sources(store, config.settings, who=options.current_user(), **source):
            output.say(text, err=True)
        output.say("Letters that your store knows already stay as they are there.", err=True)
        try:
            yield store
        finally:
            store.close()
