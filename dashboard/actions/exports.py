"""Show a dead letter unmasked, and export a selection as a file. The audit log records both."""

from __future__ import annotations

import shlex
import tempfile
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from producer_core.dashboard.actions.result import ORIGIN, ActionResult
from producer_core.dashboard.actions.roles import acting
from producer_core.dlq import DeadLetterFilter, DeadLetters, files
from producer_core.dlq.files.manifest import Format
from producer_core.dlq.filter import command_options
from producer_core.errors import ProducerError, TransferError
from producer_core.store import Store

MAX_DEAD_LETTERS = 20_000
MAX_BYTES = 64 << 20
"""Limits of one download, which the server holds in memory. The command line has no limit."""

FORMATS: dict[str, Format] = {"JSON Lines": "jsonl", "CSV": "csv"}


@dataclass(frozen=True)
class ExportFile:
    """A file to download."""

    name: str
    content: bytes
    text: str


def reveal(store: Store, message_id: str) -> ActionResult:
    """Record in the audit log that the user views this dead letter unmasked. The page shows it only afterwards."""
    try:
        result = DeadLetters(store).reveal([message_id], who=acting(store), origin=ORIGIN)
    except ProducerError as error:
        return ActionResult(False, str(error))
    return ActionResult(True, result.text)


def export(store: Store, where: DeadLetterFilter, format: Format, *, who: str, now: float) -> ExportFile:
    """Return the selection as a masked file; raise TransferError, without writing anything, if it is too large.

    The caller has checked that `who` may act when it drew the button, because a download runs outside any session.
    """
    check_size(store, where)
    name = f"dead-letters-{datetime.fromtimestamp(now, UTC):%Y%m%d-%H%M%S}.{format}"
    with tempfile.TemporaryDirectory(prefix="producer-core-") as folder:
        target = Path(folder) / name
        manifest = files.export(store, where, target, who=who, origin=ORIGIN, format=format, masked=True)
        return ExportFile(name, target.read_bytes(), manifest.text)


def check_size(store: Store, where: DeadLetterFilter) -> None:
    """Raise TransferError if the selection exceeds the limits of one download."""
    dead_letters = DeadLetters(store)
    count = dead_letters.count(where)
    if count > MAX_DEAD_LETTERS:
        raise _too_large(
            f"The selection has {count:,} dead letters; one download holds at most {MAX_DEAD_LETTERS:,}."
        )
    sizes = dead_letters.table(where, limit=MAX_DEAD_LETTERS).column("value_size").to_pylist()
    if (size := sum(filter(None, sizes))) > MAX_BYTES:
        raise _too_large(
            f"The selection is {size / (1 << 20):,.0f} MiB; one download holds at most {MAX_BYTES >> 20} MiB."
        )


def command(store: Path, where: DeadLetterFilter) -> str:
    """Return the command that exports the whole selection unmasked, in a form that can be imported."""
    options = command_options(where) if len(where.ids) <= 20 else ["--ids=…"]
    return shlex.join(
        ["producer-core", "dlq", "export", "dead-letters.parquet", *options, f"--store={store}"]
    )


def _too_large(text: str) -> TransferError:
    return TransferError(text, fix="Narrow the selection, or use the command below, which has no limit.")
