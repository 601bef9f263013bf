"""The `incident` commands: export a time range to one file, show such a file, and import its dead letters."""

from __future__ import annotations

import dataclasses
import time
from pathlib import Path
from typing import TYPE_CHECKING

import click

from producer_core._internal.plural import plural
from producer_core._internal.stop_signal import exit_on_signal
from producer_core.cli import open_store, options, output
from producer_core.cli.plain_text import plain

if TYPE_CHECKING:
    from producer_core.diagnostics.incident import BundleManifest, IncidentWindow
    from producer_core.dlq.files.manifest import Manifest
    from producer_core.store import Store

_TOPICS = 3


@click.group(short_help="Export an incident to one file; show and import it.")
def incident() -> None:
    """Export everything the store knows about a time range to one file, an incident bundle, and open such a file.

    \b
      producer-core incident export --since 02:10 --until 03:00 -o INC-42.zip
      producer-core dashboard --bundle INC-42.zip
    """


@incident.command(short_help="Export a time range to one file.")
@click.option(
    "--since",
    type=options.TimestampType(),
    required=True,
    help="Start: 02:10 (UTC, the last one), 2h (before now) or 2026-01-31T02:10.",
)
@click.option("--until", type=options.TimestampType(), help="End; default: now.")
@click.option(
    "--output",
    "-o",
    "target",
    type=click.Path(path_type=Path),
    required=True,
    metavar="FILE.zip",
    help="File to write.",
)
@click.option(
    "--raw", is_flag=True, help="Include unmasked keys, values and headers, so that it can be imported."
)
@click.option("--overwrite", is_flag=True, help="Replace an existing file.")
@options.yes
@options.store_option
@options.as_json
def export(
    since: float,
    until: float | None,
    target: Path,
    raw: bool,
    overwrite: bool,
    yes: bool,
    store_path: Path | None,
    as_json: bool,
) -> None:
    """Export statistics, alerts, dead letters, replays and operator actions of a time range to one file.

    \b
      producer-core incident export --since 02:10 --until 03:00 -o INC-42.zip
      producer-core incident export --since 2h -o INC-42.zip --raw

    The bundle also has the facts about clients and brokers, the settings without secrets, the findings of the doctor, and
    index.html, a page that any browser opens. For comparison it includes the statistics and dead letters of the previous
    period of the same length.

    A bundle is masked by the rules of this user: the built-in ones and masking.toml. Secrets are replaced, and no hash of
    them remains. Its dead letters cannot be imported or replayed. With --raw, the bundle has all bytes, and the dead
    letters that failed in the range can be imported; the command asks for confirmation. Any user who can read the store
    can export it raw. The file is readable for its owner only, and the audit log records each export. After a raw
    export, a replay from this store looks for each of its dead letters on its topic first.

    The command copies the store to a folder beside it, which needs room for it, and deletes the copy at its end.
    """
    from producer_core.diagnostics.doctor import check_locally
    from producer_core.diagnostics.incident import IncidentWindow, export_incident
    from producer_core.store import Store

    window = IncidentWindow(since, time.time() if until is None else until)
    store = Store.open(store_path, create=False)
    store.try_recover_statistics()
    if raw:
        number = plural(_count(store, window), "dead letter")
        options.confirm(f"Export {number} with unmasked keys, values and headers to {target}?", yes)
    with exit_on_signal():
        manifest = export_incident(
            store,
            target,
            window,
            who=options.current_user(),
            origin="cli",
            raw=raw,
            overwrite=overwrite,
            findings=check_locally(store.path, time.time()),
        )
    if as_json:
        output.emit(dataclasses.asdict(manifest))
        return
    output.say(f"Exported {_span(manifest)} to {target} ({output.size(target.stat().st_size)}).")
    output.say(_content(manifest))
    if manifest.masked:
        output.say(f"Masked by {manifest.masking}.")
    output.say(f"Open it: producer-core dashboard --bundle {target}")


@incident.command(short_help="Verify a bundle and show what it contains.")
@click.argument("source", type=click.Path(path_type=Path))
@options.as_json
def show(source: Path, as_json: bool) -> None:
    """Verify the bundle SOURCE and show its range, origin and content.

    The command verifies every hash and every row. A bundle has no signature: it does not prove its origin.

    \b
      producer-core incident show INC-42.zip
    """
    from producer_core.diagnostics.incident import IncidentBundle

    with IncidentBundle(source) as bundle:
        bundle.verify()
        manifest = bundle.manifest
    if as_json:
        output.emit(dataclasses.asdict(manifest))
        return
    output.pairs(
        [
            ("range", _span(manifest)),
            ("exported", f"{output.moment(manifest.created_at)} by {manifest.created_by}"),
            ("version", manifest.product_version),
            ("masking", manifest.masking or "none"),
            ("content", _content(manifest)),
        ]
    )
    output.table(("table", "rows"), sorted(manifest.counts.items()), right=("rows",))


@incident.command(name="import", short_help="Import the dead letters of a raw bundle.")
@click.argument("source", type=click.Path(path_type=Path))
@click.option("--dry-run", is_flag=True, help="Check the dead letters and change nothing.")
@options.yes
@options.store_option
@options.as_json
@click.pass_context
def import_(
    context: click.Context, source: Path, dry_run: bool, yes: bool, store_path: Path | None, as_json: bool
) -> None:
    """Import the dead letters of the raw bundle SOURCE, as "dlq import" does.

    \b
      producer-core incident import INC-42.zip --store copy.duckdb

    The bundle's dead letters of its range are imported, unless the store already contains them. A replay looks for each
    one on its topic first, and keeps it as a dead letter if it does not find it, unless the replay has --inconclusive
    send. A masked bundle cannot be imported.

    Exit codes: 0 all rows are in the store, 1 some rows were refused, 2 the import could not run.
    """
    from producer_core.diagnostics.incident import IncidentBundle, import_incident
    from producer_core.diagnostics.incident.import_dead_letters import describe
    from producer_core.store import Store, paths

    with exit_on_signal(), IncidentBundle(source, beside=paths.resolve(store_path)) as bundle:
        question = _question(describe(bundle), source)
        if not dry_run:
            options.confirm(question, yes)
        store = Store.open(store_path, create=False) if dry_run else open_store.opened(store_path)
        done = import_incident(store, bundle, who=options.current_user(), origin="cli", dry_run=dry_run)
    if as_json:
        output.emit(dataclasses.asdict(done))
    else:
        output.say(done.text)
        for bad in done.bad:
            output.say(f"  {bad}", err=True)
    context.exit(1 if done.refused else 0)


def _count(store: Store, window: IncidentWindow) -> int:
    from producer_core.diagnostics.incident.raw_dead_letters import in_range
    from producer_core.dlq import DeadLetters

    return DeadLetters(store).count(in_range(window))


def _question(found: Manifest, source: Path) -> str:
    """Ask for an import, with the facts of the verified file."""
    topics = [f"{topic:.80}" for topic in found.by_topic]
    more = f" and {plural(len(topics) - _TOPICS, 'other topic')}" if len(topics) > _TOPICS else ""
    of = f" of {', '.join(topics[:_TOPICS])}{more}" if topics else ""
    return plain(
        f"Import {plural(found.rows, 'dead letter')}{of} from {source}, exported by {found.exported_by}?"
    )


def _span(manifest: BundleManifest) -> str:
    return f"{output.moment(manifest.since)} to {output.moment(manifest.until)}"


def _content(manifest: BundleManifest) -> str:
    names = (("dead_letters", "dead letter"), ("alerts", "alert"), ("operations", "replay"))
    parts = [plural(manifest.counts.get(table, 0), noun) for table, noun in names]
    kind = (
        "Masked: its dead letters cannot be imported or replayed."
        if manifest.masked
        else "Raw: keys, values, headers and error texts are unmasked."
    )
    return f"{', '.join(parts)}. {kind}"
