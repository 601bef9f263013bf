"""The `dlq` commands that export dead letters to a file and import them."""

from __future__ import annotations

import dataclasses
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from producer_core._internal.plural import plural
from producer_core.cli import open_store, options, output, registry_options
from producer_core.cli.dlq import filter_options
from producer_core.cli.send import progress_bar

if TYPE_CHECKING:
    from producer_core.store import Store

_FORMATS = ("parquet", "jsonl", "csv")


@click.command(short_help="Export dead letters to Parquet, JSON Lines or CSV.")
@click.argument("target", type=click.Path(path_type=Path))
@filter_options.filter_and_state_options
@click.option("--format", "form", type=click.Choice(_FORMATS), help="Format; default: by file extension.")
@click.option(
    "--masked/--raw",
    "masked",
    default=None,
    help="Mask secrets or not; default: --masked for CSV, otherwise --raw.",
)
@click.option("--overwrite", is_flag=True, help="Replace an existing file.")
@registry_options.registry_options
@options.store_option
@options.as_json
def export(
    target: Path,
    form: str | None,
    masked: bool | None,
    overwrite: bool,
    url: str | None,
    settings: tuple[tuple[str, str], ...],
    config_file: Path | None,
    store_path: Path | None,
    as_json: bool,
    **given: Any,
) -> None:
    """Export the selected dead letters to TARGET, with a manifest beside it.

    \b
      producer-core dlq export orders.parquet --topic orders       complete; can be imported
      producer-core dlq export orders.jsonl --since 1h             complete, as JSON Lines with base64
      producer-core dlq export orders.csv --topic orders           masked, for spreadsheets
      producer-core dlq export orders.jsonl --masked               masked, for sharing; cannot be imported

    The file appears only when it is complete; the command reports dead letters that changed in the meantime. The
    manifest (TARGET.manifest.json) contains counts, the selection, a SHA-256, the operator and the time. The audit
    log records the export. The dead letters stay in this store. If you import them elsewhere, archive them in one of
    the stores, so that they are not replayed twice. After an export that can be imported, a replay from this store
    looks for each of them on its topic first.

    In a file that cannot be imported, keys and values with a schema id are decoded, as in "producer-core dlq show".

    In CSV, a cell that a spreadsheet could read as a formula begins with ' (remove it to get the text). A null
    is unquoted; an empty string is quoted.
    """
    from producer_core.dlq import files
    from producer_core.store import Store

    store, where = Store.open(store_path, create=False), filter_options.chosen(given)
    with progress_bar.counter("exported") as report:
        manifest = files.export(
            store,
            where,
            target,
            who=options.current_user(),
            origin="cli",
            format=form,  # type: ignore[arg-type]  # validated by click
            masked=masked,
            overwrite=overwrite,
            progress=report,
            registry=registry_options.chosen_registry(url, settings, config_file),
        )
    if as_json:
        output.emit(dataclasses.asdict(manifest))
        return
    output.say(manifest.text)
    output.say(f"{output.size(manifest.size)}, SHA-256 {manifest.sha256}. Manifest: {target}.manifest.json")


@click.command(name="import", short_help="Import dead letters from an exported file.")
@click.argument("source", type=click.Path(path_type=Path))
@click.option("--dry-run", is_flag=True, help="Check the whole file and change nothing; requires no store.")
@click.option(
    "--no-manifest", is_flag=True, help="Import every readable row even if there is no valid manifest."
)
@options.yes
@options.store_option
@options.as_json
@click.pass_context
def import_(
    context: click.Context,
    source: Path,
    dry_run: bool,
    no_manifest: bool,
    yes: bool,
    store_path: Path | None,
    as_json: bool,
) -> None:
    """Import the dead letters of SOURCE, a .parquet or .jsonl file from "dlq export".

    \b
      producer-core dlq import orders.parquet --dry-run
      producer-core dlq import orders.parquet

    A dead letter that the store already contains is left unchanged, so an interrupted import can be repeated. Invalid
    rows are reported, and all others are imported. The outcome of a record that was being replayed at the time of the
    export is uncertain. The file must match its manifest.

    Exit codes: 0 all rows are in the store, 1 some rows were refused, 2 the import could not run.
    """
    from producer_core.dlq import files

    manifest = files.manifest_of(source, no_manifest=no_manifest)
    if not dry_run:
        number = plural(manifest.rows, "dead letter") if manifest else "all readable dead letters"
        options.confirm(f"Import {number} from {source}?", yes)
    with (
        _target_store(store_path, dry_run=dry_run) as store,
        progress_bar.counter("checked") as checking,
        progress_bar.counter("imported") as report,
    ):
        done = files.import_(
            store,
            source,
            who=options.current_user(),
            origin="cli",
            no_manifest=no_manifest,
            dry_run=dry_run,
            checking=checking,
            progress=report,
        )
    if as_json:
        output.emit(dataclasses.asdict(done))
    else:
        output.say(done.text)
        for bad in done.bad:
            output.say(f"  {bad}", err=True)
        if done.refused > len(done.bad):
            output.say(f"  … and {done.refused - len(done.bad):,} more", err=True)
        if done.new and not dry_run:
            output.say(
                "The source store may still contain it. Archive it there, so that it is not replayed twice."
                if done.new == 1
                else "The source store may still contain them. Archive them there, so that they are not replayed twice."
            )
    context.exit(1 if done.refused else 0)


COMMANDS = (export, import_)


@contextmanager
def _target_store(path: Path | None, *, dry_run: bool) -> Iterator[Store]:
    """Yield the store to import into. A dry run without a store uses an empty temporary one."""
    from producer_core.store import Store
    from producer_core.store.paths import has_content, resolve

    if not dry_run or has_content(resolve(path)):
        yield Store.open(path, create=False) if dry_run else open_store.opened(path)
        return
    with tempfile.TemporaryDirectory(prefix="producer-core-") as folder:
        empty = Store.open(Path(folder) / "empty.duckdb")
        try:
            yield empty
        finally:
            empty.close()
