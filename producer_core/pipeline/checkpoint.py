"""Check a stream's checkpoint, Spark's record of the offsets it has read, before Spark opens it."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from producer_core._internal import private_files
from producer_core._internal.file_lock import FileLock
from producer_core.errors import CheckpointDamaged, ConfigError, PipelineError
from producer_core.pipeline.folder_lock import lock_folder
from producer_core.pipeline.merge_batch import merged_through

if TYPE_CHECKING:
    from producer_core.store import Store

_LOCK, _CLUSTER, _TOPICS = ".lock", "cluster", "topics"
_START_OVER = "Use a new --checkpoint: everything is read again and nothing is counted twice."
_ENTRIES_CHECKED = 3
"""Entries at the end of a log that are checked; Spark reads no others."""


def check_files(folder: Path) -> None:
    """Raise CheckpointDamaged when Spark's files below `spark/` cannot be read; an empty folder is a new
    checkpoint."""
    spark = folder / "spark"
    if not spark.exists():
        return
    metadata = spark / "metadata"
    if metadata.exists() and not isinstance(_json(metadata.read_bytes(), metadata, folder).get("id"), str):
        raise _damaged(folder, metadata, "names no query")
    for log in ("offsets", "commits", "sources/0"):
        for entry in _newest(spark / log):
            # Spark writes a zero byte before those of sources, for Spark 2.1
            text = entry.read_bytes().removeprefix(b"\0")
            version, *rest = text.splitlines() or [b""]
            if not version.startswith(b"v"):
                raise _damaged(folder, entry, "is cut off" if not version else "is not Spark's")
            if not rest:
                raise _damaged(folder, entry, "is cut off")
            for line in rest:
                if line != b"-":  # a source without an offset yet
                    _json(line, entry, folder)
    if (spark / "offsets").exists() and not metadata.exists():
        raise _damaged(folder, metadata, "is missing")


def check_cluster(folder: Path, cluster_id: str, topics: Mapping[str, str]) -> None:
    """Raise ConfigError when the checkpoint's offsets belong to another cluster or to a topic that has been
    re-created since.

    Spark would skip records with such offsets. `topics` maps names to topic ids, for the topics that have an id.
    """
    saved = folder / _CLUSTER
    before = saved.read_text().strip() if saved.exists() else cluster_id
    if before != cluster_id:
        raise ConfigError(
            f"The checkpoint {folder} belongs to cluster {before}; the brokers belong to cluster {cluster_id}.",
            fix=_START_OVER,
        )
    known = _ids(folder)
    for topic, topic_id in topics.items():
        if known.get(topic, topic_id) != topic_id:
            raise ConfigError(
                f"Topic {topic!r} has been deleted and re-created since {folder} was written.",
                fix=_START_OVER,
            )


def check_store(folder: Path, place: Path, store: Store | None) -> None:
    """Raise ConfigError when the store (None: it does not exist) holds fewer batches than the checkpoint counts as
    read.

    The batches in between would never be merged.
    """
    commits = _newest(folder / "spark" / "commits")
    if not commits:
        return
    query = str(json.loads((folder / "spark" / "metadata").read_text())["id"])
    if store is None or merged_through(store, query) < int(commits[-1].name):
        raise ConfigError(
            f"The checkpoint {folder} is ahead of the store {place}: the store is new, a different one, or an older copy.",
            fix=_START_OVER,
        )


def check_unlocked(folder: Path) -> None:
    """Raise PipelineError when another job holds the checkpoint's lock; create nothing."""
    if (folder / _LOCK).exists():
        _lock(folder).release()


@contextmanager
def locked(folder: Path, cluster_id: str, topics: Mapping[str, str] | None = None) -> Iterator[None]:
    """Hold the checkpoint's folder for this process, cluster and topic ids; create the folder when it is missing."""
    lock = _lock(folder)
    try:
        check_cluster(folder, cluster_id, topics or {})
        check_files(folder)
        if cluster_id and not (folder / _CLUSTER).exists():
            _write(folder / _CLUSTER, cluster_id)
        if topics:
            _write(folder / _TOPICS, json.dumps({**_ids(folder), **topics}))
        yield
    finally:
        lock.release()


def _lock(folder: Path) -> FileLock:
    try:
        private_files.make_folder(folder)
        return lock_folder(folder / _LOCK, f"the checkpoint {folder}")
    except OSError as error:
        raise PipelineError(
            f"The checkpoint {folder} cannot be written: {error.strerror}.",
            fix="Check its disk and its owner.",
        ) from error


def _ids(folder: Path) -> dict[str, object]:
    saved = folder / _TOPICS
    return _json(saved.read_bytes(), saved, folder) if saved.exists() else {}


def _write(file: Path, text: str) -> None:
    draft = file.with_suffix(".draft")
    private_files.write(draft, text)
    draft.replace(file)


def _newest(log: Path) -> list[Path]:
    if not log.is_dir():
        return []
    return sorted((file for file in log.iterdir() if file.name.isdigit()), key=lambda file: int(file.name))[
        -_ENTRIES_CHECKED:
    ]


def _json(text: bytes, file: Path, folder: Path) -> dict[str, object]:
    try:
        found = json.loads(text)
    except ValueError as error:
        raise _damaged(folder, file, "is not JSON") from error
    return found if isinstance(found, dict) else {}


def _damaged(folder: Path, file: Path, why: str) -> CheckpointDamaged:
    return CheckpointDamaged(
        f"The checkpoint {folder} is damaged: {file.relative_to(folder)} {why}.",
        fix="Move that folder aside and start again: the topics are read from the beginning, and batches that are already "
        "merged are not counted twice.",
    )
