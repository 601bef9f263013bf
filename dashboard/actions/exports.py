"""Acts that only look: seeing a dead letter unmasked, and taking a selection home as a file. Both stand in the audit."""

from __future__ import annotations

import shlex
import tempfile
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from producer_core.dashboard.actions.result import ORIGIN, ActionResult
from producer_core.dashboard.auth.access import actor
from producer_core.dlq import DeadLetterFilter, DeadLetters, files
from producer_core.dlq.files.manifest import Format
from producer_core.dlq.filter import command_options
from producer_core.errors import ProducerError, TransferError
from producer_core.store import Store

MOST_LETTERS = 20_000
MOST_BYTES = 64 << 20
"""A download holds so much at most, because the server holds all of it; the command line writes any number."""

FORMATS: dict[str, Format] = {"JSON Lines": "jsonl", "CSV": "csv"}


@dataclass(frozen=True)
class ExportFile:
    """A file as it is given to a browser."""

    name: str
    content: bytes
    text: str


def reveal(store: Store, message_id: str) -> ActionResult:
    """Write down who sees this dead letter unmasked; it may be shown only after that."""
    try:
        result = DeadLetters(store).reveal([message_id], who=actor(), origin=ORIGIN)
    except ProducerError as error:
        return ActionResult(False, str(error))
    return ActionResult(True, result.text)


def export(store: Store, where: DeadLetterFilter, format: Format, *, who: str, now: float) -> ExportFile:
    """The selection as a masked file. TransferError for one that is too large, and then nothing was written.

    `who` may act: it was asked when the button was drawn, because a download runs outside of any session.
    """
    weigh(store, where)
    name = f"dead-letters-{datetime.fromtimestamp(now, UTC):%Y%m%d-%H%M%S}.{format}"
    with tempfile.TemporaryDirectory(prefix="producer-core-") as folder:
        target = Path(folder) / name
        manifest = files.export(store, where, target, who=who, origin=ORIGIN, format=format, masked=True)
        return ExportFile(name, target.read_bytes(), manifest.text)


def weigh(store: Store, where: DeadLetterFilter) -> None:
    """TransferError where a selection is more than a browser should be given at once."""
    dead_letters = DeadLetters(store)
    number = dead_letters.count(where)
    if number > MOST_LETTERS:
        raise _too_many(f"{number:,} dead letters are more than the {MOST_LETTERS:,} of one download.")
    sizes = dead_letters.table(where, limit=MOST_LETTERS).column("value_size").to_pylist()
    if (size := sum(filter(None, sizes))) > MOST_BYTES:
        raise _too_many(
            f"{size / (1 << 20):,.0f} MiB are more than the {MOST_BYTES >> 20} MiB of one download."
        )


def command(store: Path, where: DeadLetterFilter) -> str:
    """The command that writes the selection, all of it and unmasked, so that it can be imported again."""
    options = command_options(where) if len(where.ids) <= 20 else ["--ids=…"]
    return shlex.join(["producer-core", "dlq", "export", "letters.parquet", *options, f"--store={store}"])


def _too_many(text: str) -> TransferError:
    return TransferError(text, fix="Narrow the selection, or use the command below, which writes any number.")
