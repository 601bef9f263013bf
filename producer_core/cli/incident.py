"""The `incident` commands: export a time range to one file, show such a file, and import its dead letters."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import click

from producer_core._internal.plural import plural
from producer_core.cli import open_store, options, output

if TYPE_CHECKING:
    from producer_core.diagnostics.doctor.finding import DoctorFinding
    from producer_core.diagnostics.incident import BundleManifest


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

    A bundle is masked: secrets are replaced, and no hash of them remains. Its dead letters cannot be imported or replayed.
    With --raw, the bundle has all bytes; the command asks for confirmation. The file is readable for its owner only, and
    the audit log records each export. After a raw export, a replay from this store looks for each of its dead letters
    on its topic first.
    """
    from producer_core.diagnostics.incident import IncidentWindow, export_incident
    from producer_core.store import Store

    window = IncidentWindow(since, time.time() if until is None else until)
    store = Store.open(store_path, create=False)
    store.try_recover_statistics()
    if raw:
        options.confirm("Export unmasked keys, values and headers?", yes)
    manifest = export_incident(
        store,
        target,
        window,
        who=options.current_user(),
        origin="cli",
        raw=raw,
        overwrite=overwrite,
        findings=_findings(store.path),
    )
    if as_json:
        output.emit(dataclasses.asdict(manifest))
        return
    output.say(f"Exported {_span(manifest)} to {target} ({output.size(target.stat().st_size)}).")
    output.say(_content(manifest))
    output.say(f"Open it: producer-core dashboard --bundle {target}")


@incident.command(short_help="Verify a bundle and show what it contains.")
@click.argument("source", type=click.Path(path_type=Path))
@options.as_json
def show(source: Path, as_json: bool) -> None:
    """Verify the bundle SOURCE and show its range, origin and content.

    \b
      producer-core incident show INC-42.zip
    """
    from producer_core.diagnostics.incident import IncidentBundle

    with IncidentBundle(source) as bundle:
        manifest = bundle.manifest
    if as_json:
        output.emit(dataclasses.asdict(manifest))
        return
    output.pairs(
        [
            ("range", _span(manifest)),
            ("exported", f"{output.moment(manifest.created_at)} by {manifest.created_by}"),
            ("version", manifest.product_version),
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

    A dead letter that the store already contains is left unchanged. A replay looks for each imported dead letter on its
    topic first. A masked bundle cannot be imported.

    Exit codes: 0 all rows are in the store, 1 some rows were refused, 2 the import could not run.
    """
    from producer_core.diagnostics.incident import IncidentBundle, import_incident
    from producer_core.diagnostics.incident.import_dead_letters import check_raw
    from producer_core.store import Store

    with IncidentBundle(source) as bundle:
        check_raw(bundle)
        number = plural(bundle.manifest.counts.get("dead_letters", 0), "dead letter")
    if not dry_run:
        options.confirm(f"Import {number} from {source}?", yes)
    store = Store.open(store_path, create=False) if dry_run else open_store.opened(store_path)
    done = import_incident(store, source, who=options.current_user(), origin="cli", dry_run=dry_run)
    if as_json:
        output.emit(dataclasses.asdict(done))
    else:
        output.say(done.text)
        for bad in done.bad:
            output.say(f"  {bad}", err=True)
    context.exit(1 if done.refused else 0)


def _findings(store: Path) -> Iterator[DoctorFinding]:
    """Yield the findings about this machine and its store. The brokers may be gone by the time of the export."""
    from producer_core.diagnostics.doctor import check_store
    from producer_core.diagnostics.doctor.machine_checks import versions

    yield from versions()
    yield from check_store(store, time.time())


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
