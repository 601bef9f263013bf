"""The `pipeline reprocess` command: replay a large DLQ with Spark workers, each dead letter exactly once."""

from __future__ import annotations

import contextlib
import tempfile
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

import click

from producer_core._internal.join_names import join_names
from producer_core.cli import open_store, options, output
from producer_core.cli.dlq import approvals, filter_options, replay_dead_letters
from producer_core.cli.lazy_group import Failed
from producer_core.cli.pipeline.spark_options import SparkChoice, spark_options
from producer_core.cli.replay import replay_text
from producer_core.cli.replay.plan_options import plan_options
from producer_core.cli.replay.replay_run import ReplayRun, connected_cluster
from producer_core.cli.send import progress_bar
from producer_core.replay.runner import SPARK_STOP_TIMEOUT

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from producer_core.config import ClientConfig
    from producer_core.dlq import DeadLetterFilter
    from producer_core.pipeline.reprocess import ReprocessOptions
    from producer_core.replay import Inconclusive, Newer, Operation, ReplayRunner
    from producer_core.store import Store


@click.command(short_help="Replay a large DLQ in parallel, exactly once.")
@filter_options.filter_options
@click.option(
    "--from-export",
    "file",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help='Import this file from "dlq export", then replay its dead letters.',
)
@click.option(
    "--no-manifest",
    is_flag=True,
    help="Import the readable part of a file without a valid manifest.",
)
@click.option(
    "--from-topic",
    "dead_letter_topic",
    metavar="TOPIC",
    help="Fetch this Kafka dead-letter topic (any dialect), then replay its dead letters.",
)
@click.option(
    "--original-topic",
    metavar="TOPIC",
    help="Original topic of records whose headers do not name it.",
)
@click.option(
    "--operation", "operation_id", metavar="ID", help="Continue this replay from an earlier Spark job."
)
@plan_options
@click.option("--slices", type=click.IntRange(1, 256), help="Parallel slices.  [default: two per core]")
@click.option(
    "--slice-by",
    type=click.Choice(["session", "key"]),
    help="Keep the order per producer session (default) or per key.",
)
@click.option(
    "--progress-topic",
    metavar="TOPIC",
    help="Topic for the progress of slices.  [default: producer-core-progress]",
)
@click.option("--wave", type=click.IntRange(min=1), help="Maximum dead letters per batch.  [default: 5000]")
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
    """Send the selected dead letters again with Spark workers, each exactly once.

    \b
      producer-core pipeline reprocess --topic orders --dry-run -b broker1:9092
      producer-core pipeline reprocess --topic orders -b broker1:9092 --yes
      producer-core pipeline reprocess --from-export orders.parquet -b broker1:9092 --slice-by key
      producer-core pipeline reprocess --from-topic orders-dlt -b broker1:9092 --rate 2000
      producer-core pipeline reprocess --operation 1f2e3d4c5b6a -b broker1:9092

    The replay has the same preflight check, canary, rate limit (of the whole job), stop rule and outcomes as dlq replay.
    The dashboard and the replay commands show it and can pause or cancel it. A read_committed consumer reads each record
    once, even if workers, this process or brokers are killed. After a crash, repeat the command, or use --operation.
    Ctrl-C pauses the replay. If one session has most of the dead letters, use --slice-by key.

    \b
    Exit codes: 0 all acknowledged or found on their topic, or a dry run, 1 some failed again or were
    skipped, or the replay stopped, 2 the command could not run, 3 a second person must approve the replay first; then
    repeat the command, 130 paused by Ctrl-C.
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
        _refuse_changes(where, {**plan, "to_cluster": to_cluster})
    imports = file is not None or dead_letter_topic is not None
    opened = None if imports else Store.open(store_path, create=False)
    spark.check()
    config, cluster = connected_cluster(*options.client_settings(servers, settings, config_file), to_cluster)
    preview_options = {
        name: plan[name] for name in ("limit", "rate", "newer", "inconclusive", "allow_quarantined")
    }
    source = {"file": file, "no_manifest": no_manifest, "dead_letter_topic": dead_letter_topic,
              "original_topic": original_topic}  # fmt: skip
    if dry_run:
        with _dry_run_store(opened, source, config) as store:
            client = (config.bootstrap_servers, config.settings)
            where = filter_options.frozen(DeadLetters(store), where)
            preview = ReplayRun(store, where, client, to_cluster=to_cluster)
            replay_dead_letters.print_dry_run(preview, preview_options, None, as_json=as_json)
        return
    store = opened or open_store.opened(store_path)
    if imports and operation_id is None:
        with progress_bar.counter("Imported") as report:
            for text in import_sources(
                store,
                config.settings,
                who=options.current_user(),
                progress=report,
                **source,  # type: ignore[arg-type]
            ):
                output.say(text, err=True)
    where = filter_options.frozen(DeadLetters(store), where)
    choices = ReprocessOptions(slices, slice_by, progress_topic, wave or RECORDS_PER_BATCH)
    with (
        approvals.waiting_request(store, as_json=as_json),
        ReprocessRun(store, where, None, to_cluster=to_cluster, origin="pipeline") as job,
    ):
        job.prepare(config.settings, cluster, choices)
        job.end_cancelled()
        existing = replay_dead_letters.current_operation(store, where)
        if operation_id is None and existing is None and not DeadLetters(store).count(where):
            none = filter_options.none(DeadLetters(store), where)
            replay_dead_letters.finish(ctx, as_json, store, None, f"Nothing to replay: {none}")
            return
        if operation_id is not None:
            operation = job.go(job.select(operation_id), rate=plan["rate"])
        else:
            preview = ReplayRun(
                store, where, (config.bootstrap_servers, config.settings), to_cluster=to_cluster
            )
            ask = replay_dead_letters.must_ask(preview, preview_options, _spark_replay(existing), yes=yes)
            operation = replay_dead_letters.plan_and_start(job, plan, existing, ask=ask, as_json=as_json)
        if not operation.ended:
            with spark.session("reprocess") as session:
                operation = job.run_on(session, operation)
    replay_dead_letters.finish(ctx, as_json, store, operation, replay_text.sentence(operation))


@dataclass
class ReprocessRun(ReplayRun):
    """A replay that Spark runs; its preflight check needs no Spark."""

    stop_timeout: ClassVar[float] = SPARK_STOP_TIMEOUT + 5
    pause_notice: ClassVar[str] = (
        "Spark has 8 s to finish its current batch. After that the batch is killed, and the job searches the topics "
        "for its records (45 s at most). The other records stay in the store …"
    )
    _make: Callable[[Callable[[], SparkSession] | None], ReplayRunner] = field(init=False)
    _settings: Mapping[str, Any] = field(init=False)
    _choices: ReprocessOptions = field(init=False)

    def prepare(self, settings: Mapping[str, Any], cluster: str, choices: ReprocessOptions) -> None:
        """Set the destination and the options, without connecting."""
        from producer_core.pipeline.reprocess import spark_runner

        self._cluster = cluster
        self._settings, self._choices = settings, choices
        self._make = lambda session: spark_runner(self.store, settings, cluster, choices, session=session)
        self._runner = self._make(None)

    def end_cancelled(self) -> None:
        """Settle the cancelled replays that a dead driver left, before a new one is planned."""
        from producer_core.pipeline.reprocess import end_cancelled

        for operation in end_cancelled(self.store, self._make(None), self._cluster):
            output.say(f"{operation.operation_id}: {replay_text.sentence(operation)}", err=True)

    def select(self, operation_id: str) -> Operation:
        """Return an operation of an earlier Spark job on this cluster, to continue it."""
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
        """Create or check the progress topic before Spark starts, then start the replay."""
        from producer_core.pipeline.reprocess import progress_topic as reprocess_progress_topic
        from producer_core.pipeline.reprocess import slicing

        if operation.state in ("planned", "running") and rate not in (None, operation.rate):
            raise Failed(
                f"The rate of replay {operation.operation_id} cannot be changed while it is {operation.state}.",
                f"Pause it first: producer-core replay pause {operation.operation_id}.",
            )
        if not operation.ended:
            topic = slicing.progress_topic(self.store, operation.operation_id, self._choices.progress_topic)
            reprocess_progress_topic.require_topic(self._settings, topic)
        return super().go(operation, newer=newer, inconclusive=inconclusive, rate=rate)

    def run_on(self, session: SparkSession, operation: Operation) -> Operation:
        """Run the replay on this session until it ends, is paused, or Ctrl-C."""
        from producer_core.pipeline.job_status import track_job
        from producer_core.pipeline.reprocess.job import report_progress

        self._stop()
        self._runner_thread, self._runner = None, self._make(lambda: session)
        interrupted: click.exceptions.Exit | None = None
        with track_job(self.store, name=f"reprocess {operation.operation_id}", kind="reprocess") as job:
            job.details({"operation": operation.operation_id, "spark": session.sparkContext.applicationId})
            try:
                operation = replay_dead_letters.follow(self, operation, lambda now: report_progress(job, now))
                job.message(replay_text.sentence(operation))
            except click.exceptions.Exit as paused:
                job.unfinished(failed=False)
                job.message("Paused by Ctrl-C.")
                interrupted = paused
        if interrupted is not None:
            raise interrupted
        return operation


def _refuse_changes(where: DeadLetterFilter, plan: Mapping[str, Any]) -> None:
    """Fail if options would change the dead letters or the plan of an existing replay; only its rate may change."""
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
            f"The dead letters and the plan of an existing replay cannot be changed, but you specified {join_names(given)}.",
            "With --operation, only --rate may change.",
        )


def _spark_replay(existing: Operation | None) -> Operation | None:
    """Return the existing replay of this selection; fail if Spark does not run it."""
    if existing is not None and not existing.by_spark:
        raise Failed(
            f"A replay of this selection that does not run on Spark already exists: "
            f"{replay_text.existing_replay(existing)}",
            "Wait until it finishes (producer-core replay status), or cancel it: "
            f"producer-core replay cancel {existing.operation_id}.",
        )
    return existing


@contextlib.contextmanager
def _dry_run_store(opened: Store | None, source: dict[str, Any], config: ClientConfig) -> Iterator[Store]:
    """Yield the opened store, or a temporary store with the imported source."""
    from producer_core.pipeline.reprocess import import_sources
    from producer_core.store import Store

    if opened is not None:
        yield opened
        return
    with tempfile.TemporaryDirectory(prefix="producer-core-") as folder:
        store = Store.open(Path(folder) / "dry_run.duckdb")
        for text in import_sources(store, config.settings, who=options.current_user(), **source):
            output.say(text, err=True)
        output.say("Dead letters that are already in your store stay unchanged there.", err=True)
        try:
            yield store
        finally:
            store.close()
