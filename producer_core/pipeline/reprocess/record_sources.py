"""Import dead letters that are not in the store yet, from an exported file or a dead-letter topic, before a replay.

They are imported as `dlq import` and `dlq fetch` do it, so the import can be repeated and is in the audit log, and
each dead letter leaves the store based only on its own outcome.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import orjson

from producer_core.dlq import DeadLetterFilter
from producer_core.dlq.files.manifest import format_of

if TYPE_CHECKING:
    from producer_core.store import Store

_FROM_FILE = "message_id IN (SELECT unnest(?::VARCHAR[]))"
_FROM_TOPIC = "starts_with(source, ?)"

Progress = Callable[[int, int], None]


@dataclass(frozen=True)
class ImportedSource(DeadLetterFilter):
    """Select, of the dead letters that match, those imported from this file or this dead-letter topic."""

    file: str | None = None
    dead_letter_topic: str | None = None

    def where(self) -> tuple[str, list[Any]]:
        condition, parameters = super().where()
        if self.file is not None:
            condition, parameters = f"{condition} AND {_FROM_FILE}", [*parameters, list(ids_in(self.file))]
        if self.dead_letter_topic is not None:
            condition, parameters = (
                f"{condition} AND {_FROM_TOPIC}",
                [*parameters, f"{self.dead_letter_topic}["],
            )
        return condition, parameters


def from_sources(
    where: DeadLetterFilter, *, file: Path | None = None, dead_letter_topic: str | None = None
) -> DeadLetterFilter:
    """Return the selection limited to a source, or unchanged without one."""
    if file is None and dead_letter_topic is None:
        return where
    given = {name: getattr(where, name) for name in where.__dataclass_fields__}
    return ImportedSource(
        **given, file=None if file is None else str(file.resolve()), dead_letter_topic=dead_letter_topic
    )


def import_sources(
    store: Store,
    settings: Mapping[str, Any],
    *,
    who: str,
    file: Path | None = None,
    no_manifest: bool = False,
    dead_letter_topic: str | None = None,
    original_topic: str | None = None,
    progress: Progress = lambda done, of: None,
) -> list[str]:
    """Import the sources and return a sentence about each. Dead letters that this store already has stay unchanged."""
    from producer_core.dlq import files, topics

    sentences: list[str] = []
    if file is not None:
        done = files.import_(
            store, file, who=who, origin="pipeline", no_manifest=no_manifest, progress=progress
        )
        sentences.append(done.text)
    if dead_letter_topic is not None:
        fetched = topics.fetch(
            settings,
            dead_letter_topic,
            store,
            who=who,
            origin="pipeline",
            original_topic=original_topic,
            progress=progress,
        )
        sentences.append(fetched.text)
    return sentences


def ids_in(file: str) -> tuple[str, ...]:
    """Return the message ids of an exported file."""
    path = Path(file)
    return _ids(path, path.stat().st_mtime_ns)


@lru_cache(maxsize=1)
def _ids(path: Path, _: int) -> tuple[str, ...]:
    if format_of(path) == "jsonl":
        with path.open("rb") as lines:
            return tuple(filter(None, map(_id, lines)))
    import pyarrow.parquet

    return tuple(pyarrow.parquet.read_table(path, columns=["message_id"])["message_id"].to_pylist())


def _id(line: bytes) -> str | None:
    try:
        found = orjson.loads(line)["message_id"]
    except (orjson.JSONDecodeError, KeyError, TypeError):  # the import reports such lines
        return None
    return found if isinstance(found, str) else None
