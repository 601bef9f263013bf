"""The manifest beside a file of dead letters: what is in it, why, from whom, and how to know that it is whole."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, fields
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Literal, get_args

import orjson

from producer_core.errors import TransferError

Format = Literal["parquet", "jsonl", "csv"]
FORMATS: tuple[Format, ...] = get_args(Format)
FORMAT_VERSION = 1
KIND = "producer-core dead letters"

Progress = Callable[[int, int], None]
_CHUNK = 1 << 20
_SUFFIXES: Mapping[str, Format] = {
    ".parquet": "parquet",
    ".jsonl": "jsonl",
    ".ndjson": "jsonl",
    ".csv": "csv",
}


@dataclass(frozen=True, kw_only=True)
class Manifest:
    """What an export wrote. `filter` is the selection as DeadLetterFilter.to_query() writes it.

    Of `matched` dead letters at the start `rows` are in the file; `changed` of these had changed by the time they were
    read (the file has them as they were then), and `missing` were moved out of the selection or removed before.
    """

    file: str
    format: Format
    masked: bool
    filter: Mapping[str, str]
    matched: int
    rows: int
    changed: int
    missing: int
    by_topic: Mapping[str, int]
    by_verdict: Mapping[str, int]
    by_state: Mapping[str, int]
    size: int
    sha256: str
    product_version: str
    exported_at: float
    exported_by: str
    origin: str
    format_version: int = FORMAT_VERSION

    @property
    def text(self) -> str:
        """What a person should know about the file."""
        dead_letters = "1 dead letter" if self.rows == 1 else f"{self.rows:,} dead letters"
        sentences = [f"Exported {dead_letters} to {self.file}."]
        if self.masked:
            sentences.append(
                "Masked: to look at, never to be imported or replayed."
                if self.format != "csv"
                else "Masked: to look at."
            )
        else:
            sentences.append("Raw: keys, values, headers and error texts are in it unmasked.")
        if self.changed:
            sentences.append(
                f"{self.changed:,} changed since the export began; the file has them as they were when they were read."
            )
        if self.missing:
            sentences.append(
                f"{self.missing:,} that matched when it began are not in it: they were moved or removed before they "
                "were read."
            )
        return " ".join(sentences)

    def to_json(self) -> bytes:
        moment = datetime.fromtimestamp(self.exported_at, UTC).isoformat()
        value = {"kind": KIND, **asdict(self), "exported_at_utc": moment}
        return orjson.dumps(value, option=orjson.OPT_INDENT_2 | orjson.OPT_APPEND_NEWLINE)

    @classmethod
    def from_json(cls, data: bytes, name: str) -> Manifest:
        """TransferError for what is no manifest of ours, or one of a later version."""
        try:
            value: dict[str, Any] = orjson.loads(data)
            kind, version = value["kind"], value["format_version"]
        except (orjson.JSONDecodeError, TypeError, KeyError) as error:
            raise _no_manifest(name) from error
        if kind != KIND or not isinstance(version, int):
            raise _no_manifest(name)
        if version > FORMAT_VERSION:
            raise TransferError(
                f"{name} says format version {version}, and this version of producer-core reads up to {FORMAT_VERSION}.",
                fix="Upgrade producer-core.",
            )
        known = {field.name for field in fields(cls)}
        try:
            found = cls(**{key: item for key, item in value.items() if key in known})
        except TypeError as error:
            raise _no_manifest(name) from error
        numbers = (found.matched, found.rows, found.changed, found.missing, found.size)
        typed = all(type(one) is int for one in numbers) and isinstance(found.masked, bool)
        if found.format not in FORMATS or not typed or not isinstance(found.filter, dict):
            raise _no_manifest(name)
        return found


def manifest_path(file: Path) -> Path:
    """`orders.parquet.manifest.json` beside `orders.parquet`."""
    return file.with_name(f"{file.name}.manifest.json")


def read_manifest(file: Path) -> Manifest | None:
    """The manifest beside the file; None when there is none."""
    path = manifest_path(file)
    try:
        data = path.read_bytes()
    except FileNotFoundError:
        return None
    except OSError as error:
        raise TransferError(f"The manifest {path} cannot be read ({error.strerror}).") from error
    return Manifest.from_json(data, str(path))


def format_of(path: Path, asked: str | None = None) -> Format:
    """The format that was asked for, or that the file's name says."""
    found = next((one for one in FORMATS if one == asked), None) or _SUFFIXES.get(path.suffix.lower())
    if found is None or (asked is not None and asked not in FORMATS):
        raise TransferError(
            f"{asked or path.name!r} is no format of dead letters.",
            fix="Name the file .parquet, .jsonl or .csv, or say --format.",
        )
    return found


def verify(file: Path, manifest: Manifest, progress: Progress | None = None) -> None:
    """TransferError when the file is not, byte for byte, what its manifest says."""
    size = file.stat().st_size
    if size != manifest.size:
        raise _different(file, f"it has {size:,} bytes, and its manifest says {manifest.size:,}")
    digest, done = hashlib.sha256(), 0
    with file.open("rb") as data:
        while chunk := data.read(_CHUNK):
            digest.update(chunk)
            done += len(chunk)
            if progress is not None:
                progress(done, size)
    if digest.hexdigest() != manifest.sha256:
        raise _different(file, "its sha256 is not the one of its manifest")


def _different(file: Path, how: str) -> TransferError:
    return TransferError(
        f"{file} is not the file that was exported: {how}. Nothing was imported.",
        fix="Copy it again; or import what can be read of it with --no-manifest.",
    )


def _no_manifest(name: str) -> TransferError:
    return TransferError(f"{name} is not a manifest of dead letters.", fix="Copy it again from its source.")
