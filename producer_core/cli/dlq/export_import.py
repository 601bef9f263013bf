"""The commands that write dead letters to a file, and take them in from one."""

from __future__ import annotations

import dataclasses
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from producer_core.cli import open_store, options, output
from producer_core.cli.dlq import filter_options
from producer_core.cli.send import progress_bar

if TYPE_CHECKING:
    from producer_core.store import Store

_FORMATS = ("parquet", "jsonl", "csv")


@click.command(short_help="Write dead letters to a file: Parquet, JSON Lines or CSV.")
@click.argument("target", type=click.Path(path_type=Path))
@filter_options.filter_and_state_options
@click.option("--format", "form", type=click.Choice(_FORMATS), help="Default: what the file's name says.")
@click.option(
    "--masked/--raw",
    "masked",
    default=None,
    help="Hide secrets, cards and addresses, or not. Default: --masked for CSV, --raw for the others.",
)
@click.option("--overwrite", is_flag=True, help="Replace the file if it is there.")
@options.store_option
@options.as_json
def export(
    target: Path,
    form: str | None,
    masked: bool | None,
    overwrite: bool,
    store_path: Path | None,
    as_json: bool,
    **given: Any,
) -> None:
    """Write the dead letters that the selection matches now to TARGET, and a manifest beside it.

    \b
      producer-core dlq export orders.parquet --topic orders       every byte; import takes it in again
      producer-core dlq export orders.jsonl --since 1h             the same as JSON Lines, bytes as base64
      producer-core dlq export orders.csv --topic orders           to look at, masked, safe in a spreadsheet
      producer-core dlq export orders.jsonl --masked               to show around: it can never be imported

    The file appears when it is whole; what changed while it was written is counted and said. The manifest
    (TARGET.manifest.json) has counts, the selection, sha256, and by whom and when it was exported. The export is in
    the audit. Nothing is taken away here: dead letters that are imported elsewhere could be replayed from both places,
    so archive them in one.

    In CSV a cell that a spreadsheet could take for a formula begins with ' (take it away for the text), and null
    differs from an empty text by having no quotes.
    """
    from producer_core.dlq import files
    from producer_core.store import Store

    store, where = Store.open(store_path, create=False), filter_options.chosen(given)
    with progress_bar.counter("exported") as tell:
        manifest = files.export(
            store,
            where,
            target,
            who=options.current_user(),
            origin="cli",
            format=form,  # type: ignore[arg-type]  # click checked it
            masked=masked,
            overwrite=overwrite,
            progress=tell,
        )
    if as_json:
        output.emit(dataclasses.asdict(manifest))
        return
    output.say(manifest.text)
    output.say(f"{output.size(manifest.size)}, sha256 {manifest.sha256}; more in {target}.manifest.json")


@click.command(name="import", short_help="Take in dead letters from an exported file.")
@click.argument("source", type=click.Path(path_type=Path))
@click.option(
    "--dry-run", is_flag=True, help="Read and check it all, and change nothing; no store need be there."
)
@click.option(
    "--no-manifest", is_flag=True, help="Take what can be read of a file without a (true) manifest."
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
    """Take in the dead letters of SOURCE, a .parquet or .jsonl file that dlq export wrote, each as it was.

    \b
      producer-core dlq import orders.parquet --dry-run
      producer-core dlq import orders.parquet

    A message id that is known here stays as it is here. So an import that was interrupted or killed is simply
    repeated. Rows that are no dead letters are named, and the others are taken in. What was being replayed when it
    was exported counts as doubtful. The file must be what its manifest says.

    Exit codes: 0 all rows are here, 1 some were refused, 2 it could not be done.
    """
    from producer_core.dlq import files

    manifest = files.manifest_of(source, no_manifest=no_manifest)
    if not dry_run:
        number = output.count(manifest.rows, "dead letter") if manifest else "what can be read"
        options.confirm(f"Import {number} of {source}?", yes)
    with (
        _into(store_path, dry_run=dry_run) as store,
        progress_bar.counter("checked") as checking,
        progress_bar.counter("imported") as tell,
    ):
        done = files.import_(
            store,
            source,
            who=options.current_user(),
            origin="cli",
            no_manifest=no_manifest,
            dry_run=dry_run,
            checking=checking,
            progress=tell,
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
                "The store they came from may still have them: archive them there, or both could replay them."
            )
    context.exit(1 if done.refused else 0)


COMMANDS = (export, import_)


@contextmanager
def _into(path: Path | None, *, dry_run: bool) -> Iterator[Store]:
    """The store to import into. A dry run needs none: where there is none, all is new, and nothing is left behind."""
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
