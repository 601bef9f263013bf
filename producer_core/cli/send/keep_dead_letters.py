"""Keep the dead letters of a `send` that no store holds."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from producer_core._internal.join_names import join_names
from producer_core.dlq import Spill
from producer_core.errors import JournalFull, StoreError
from producer_core.producer.dead_letter_backend import spill_path
from producer_core.producer.store_dead_letter_queue import StoreDeadLetterQueue
from producer_core.store import default_path
from producer_core.store.paths import has_content, user_path

if TYPE_CHECKING:
    from producer_core.cli.send.file_progress import FileProgress
    from producer_core.events import DeadLetter
    from producer_core.producer.producer import ReliableKafkaProducer


@dataclass(frozen=True)
class KeptDeadLetters:
    """Where a closed producer's dead letters are, unless they are in the store."""

    kept_in: str = ""
    """The spill files; empty if there are none."""
    store_trouble: str = ""
    """Why the store is unavailable; empty for a send without a store."""
    unkept: int = 0
    """Dead letters that no folder accepted."""
    unkept_reason: str = ""


def keep_dead_letters(producer: ReliableKafkaProducer, progress: FileProgress | None) -> KeptDeadLetters:
    """Write the dead letters that only this process holds to a spill file, which the next producer with a store reads."""
    queue = producer.dlq
    files: list[Path] = []
    trouble, reason = "", ""
    if isinstance(queue, StoreDeadLetterQueue):
        trouble = queue.store_trouble
        files += [queue.spill_file] if trouble and has_content(queue.spill_file) else []
    dead_letters = queue.take_unwritten()
    if dead_letters:
        file, reason = _spill(dead_letters)
        files += [] if file is None else [file]
        if file is not None and progress is not None:
            _settle(progress, dead_letters)
    return KeptDeadLetters(
        join_names(map(str, dict.fromkeys(files))), trouble, len(dead_letters) if reason else 0, reason
    )


def _spill(dead_letters: Sequence[DeadLetter]) -> tuple[Path | None, str]:
    """Write the dead letters to the first file that takes them. Return it, or why there is none."""
    reason = ""
    for path in _spill_files():
        try:
            Spill(path).append(dead_letters)
        except StoreError as error:
            reason = error.what
        else:
            return path, ""
    return None, reason


def _spill_files() -> Iterator[Path]:
    """Return the spill file of the default store, then that of the user's state folder."""
    yield from dict.fromkeys(map(spill_path, (default_path(), user_path())))


def _settle(progress: FileProgress, dead_letters: Sequence[DeadLetter]) -> None:
    progress.give_up(progress.rows_of([dead_letter.message_id for dead_letter in dead_letters]))
    with contextlib.suppress(JournalFull):  # a resumed send then reads these rows again
        progress.save()
