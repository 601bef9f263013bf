"""A source of dead letters that are not in the store yet: an exported file, or a dead-letter topic. They are taken in first.

Each is taken in as `dlq import` and `dlq fetch` do it, so that it can be repeated, is in the audit, and each dead letter
leaves the store only by its own outcome.
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

_DRAWN = "message_id IN (SELECT unnest(?::VARCHAR[]))"
_FETCHED = "starts_with(source, ?)"

Progress = Callable[[int, int], None]


@dataclass(frozen=True)
class ImportedSource(DeadLetterFilter):
    """Of the dead letters that match, those that came from this exported file, or from this dead-letter topic."""

    file: str | None = None
    dead_letter_topic: str | None = None

    def where(self) -> tuple[str, list[Any]]:
        condition, parameters = super().where()
        if self.file is not None:
            condition, parameters = f"{condition} AND {_DRAWN}", [*parameters, list(ids_in(self.file))]
        if self.dead_letter_topic is not None:
            condition, parameters = (
                f"{condition} AND {_FETCHED}",
                [*parameters, f"{self.dead_letter_topic}["],
            )
        return condition, parameters


def brought(
    where: DeadLetterFilter, *, file: Path | None = None, dead_letter_topic: str | None = None
) -> DeadLetterFilter:
    """The selection, narrowed to a source; as it is where there is none."""
    if file is None and dead_letter_topic is None:
        return where
    given = {name: getattr(where, name) for name in where.__dataclass_fields__}
    return ImportedSource(
        **given, file=None if file is None else str(file.resolve()), dead_letter_topic=dead_letter_topic
    )


def bring(
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
    """Takes the sources in; what came of each, in sentences. What this store knows stays as it is here."""
    from producer_core.dlq import files, topics

    said: list[str] = []
    if file is not None:
        done = files.import_(
            store, file, who=who, origin="pipeline", no_manifest=no_manifest, progress=progress
        )
        said.append(done.text)
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
        said.append(fetched.text)
    return said


def ids_in(file: str) -> tuple[str, ...]:
    """The message ids of an exported file."""
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
    except (orjson.JSONDecodeError, KeyError, TypeError):  # the import names such lines
        return None
    return found if isinstance(found, str) else None
