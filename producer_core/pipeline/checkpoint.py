"""The checkpoint: how far a stream has read, as Spark notes it; looked at before Spark stumbles over it."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from producer_core._internal import private_files
from producer_core.errors import CheckpointDamaged, ConfigError, PipelineError
from producer_core.pipeline.folder_lock import JobLock
from producer_core.pipeline.merge_batch import merged_through

if TYPE_CHECKING:
    from producer_core.store import Store

_LOCK, _CLUSTER, _TOPICS = ".lock", "cluster", "topics"
_ANOTHER = "Take a new --checkpoint: everything is read again and nothing counts twice."
_LOOKED_AT = 3
"""The last entries of a log; Spark reads no others."""


def examine(folder: Path) -> None:
    """CheckpointDamaged when Spark's own notes below `spark/` cannot be read; an empty folder is a new checkpoint."""
    spark = folder / "spark"
    if not spark.exists():
        return
    metadata = spark / "metadata"
    if metadata.exists() and not isinstance(_json(metadata.read_bytes(), metadata, folder).get("id"), str):
        raise _damaged(folder, metadata, "names no query")
    for log in ("offsets", "commits", "sources/0"):
        for entry in _newest(spark / log):
            text = entry.read_bytes().removeprefix(
                b"\0"
            )  # Spark begins those of sources with one, for its 2.1
            version, *rest = text.splitlines() or [b""]
            if not version.startswith(b"v"):
                raise _damaged(folder, entry, "is cut off" if not version else "is not Spark's")
            if not rest:
                raise _damaged(folder, entry, "is cut off")
            for line in rest:
                if line != b"-":  # a source that has not begun
                    _json(line, entry, folder)
    if (spark / "offsets").exists() and not metadata.exists():
        raise _damaged(folder, metadata, "is missing")


def same_cluster(folder: Path, cluster_id: str, topics: Mapping[str, str]) -> None:
    """ConfigError when the checkpoint's offsets are of another cluster, or of a topic that was deleted and made again:
    they would pass over records of this one. `topics` are ids by name, of those that have one."""
    noted = folder / _CLUSTER
    before = noted.read_text().strip() if noted.exists() else cluster_id
    if before != cluster_id:
        raise ConfigError(
            f"The checkpoint {folder} is of cluster {before}, and the brokers are of cluster {cluster_id}.",
            fix=_ANOTHER,
        )
    known = _ids(folder)
    for topic, its_id in topics.items():
        if known.get(topic, its_id) != its_id:
            raise ConfigError(
                f"Topic {topic!r} was deleted and made again since {folder} was written.", fix=_ANOTHER
            )


def goes_with(folder: Path, place: Path, store: Store | None) -> None:
    """ConfigError when less is in the store (None: there is none) than the checkpoint counts as read: what lies between
    would never come in."""
    commits = _newest(folder / "spark" / "commits")
    if not commits:
        return
    query = str(json.loads((folder / "spark" / "metadata").read_text())["id"])
    if store is None or merged_through(store, query) < int(commits[-1].name):
        raise ConfigError(
            f"The checkpoint {folder} is further than the store {place}, which is new, or another, or an older copy.",
            fix=_ANOTHER,
        )


def free(folder: Path) -> None:
    """PipelineError when another job has the checkpoint now; nothing is made."""
    if (folder / _LOCK).exists():
        _take(folder).release()


@contextmanager
def held(folder: Path, cluster_id: str, topics: Mapping[str, str] | None = None) -> Iterator[None]:
    """The checkpoint's folder, made where it is missing, for this process alone, this cluster and these topics' ids."""
    lock = _take(folder)
    try:
        same_cluster(folder, cluster_id, topics or {})
        examine(folder)
        if cluster_id and not (folder / _CLUSTER).exists():
            _write(folder / _CLUSTER, cluster_id)
        if topics:
            _write(folder / _TOPICS, json.dumps({**_ids(folder), **topics}))
        yield
    finally:
        lock.release()


def _take(folder: Path) -> JobLock:
    try:
        private_files.make_folder(folder)
        return JobLock.take(folder / _LOCK, f"the checkpoint {folder}")
    except OSError as error:
        raise PipelineError(
            f"The checkpoint {folder} cannot be written: {error.strerror}.",
            fix="Check its disk and its owner.",
        ) from error


def _ids(folder: Path) -> dict[str, object]:
    noted = folder / _TOPICS
    return _json(noted.read_bytes(), noted, folder) if noted.exists() else {}


def _write(file: Path, text: str) -> None:
    draft = file.with_suffix(".draft")
    private_files.write(draft, text)
    draft.replace(file)


def _newest(log: Path) -> list[Path]:
    if not log.is_dir():
        return []
    return sorted((file for file in log.iterdir() if file.name.isdigit()), key=lambda file: int(file.name))[
        -_LOOKED_AT:
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
        fix="Move that folder away and start again: the topics are read from their beginning, and what is merged "
        "already is not counted twice.",
    )
