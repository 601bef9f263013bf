"""Read and write the manifest of an exported file: its content, origin and checksum."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, fields
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Literal, get_args

import orjson

from producer_core._internal.plural import plural
from producer_core.errors import TransferError

Format = Literal["parquet", "jsonl", "csv"]
FORMATS: tuple[Format, ...] = get_args(Format)
FORMAT_VERSION = 2
"""2: with revisions. A version without them would replay the original of an edited record."""
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
    """Describes an exported file. `filter` is the result of DeadLetterFilter.to_query().

    At the start `matched` dead letters matched, and `rows` of them are in the file. `changed` of these rows changed
    before they were read; the file has the state at the time of reading. `missing` were deleted or no longer matched.
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
        """Describe the file for the operator."""
        sentences = [f"Exported {plural(self.rows, 'dead letter')} to {self.file}."]
        if self.masked:
            sentences.append(
                "Masked: it cannot be imported or replayed."
                if self.format != "csv"
                else "Masked: secrets are hidden."
            )
        else:
            sentences.append("Raw: keys, values, headers and error texts are unmasked.")
        if self.changed:
            sentences.append(
                f"{self.changed:,} changed during the export; the file has the state at the time of reading."
            )
        if self.missing:
            sentences.append(
                f"{self.missing:,} not in the file: deleted, or changed in state, during the export."
            )
        return " ".join(sentences)

    def to_json(self) -> bytes:
        moment = datetime.fromtimestamp(self.exported_at, UTC).isoformat()
        value = {"kind": KIND, **asdict(self), "exported_at_utc": moment}
        return orjson.dumps(value, option=orjson.OPT_INDENT_2 | orjson.OPT_APPEND_NEWLINE)

    @classmethod
    def from_json(cls, data: bytes, name: str) -> Manifest:
        """Parse a manifest. Raise TransferError for any other file, or for a later format version."""
        try:
            value: dict[str, Any] = orjson.loads(data)
            kind, version = value["kind"], value["format_version"]
        except (orjson.JSONDecodeError, TypeError, KeyError) as error:
            raise _not_a_manifest(name) from error
        if kind != KIND or not isinstance(version, int):
            raise _not_a_manifest(name)
        if version > FORMAT_VERSION:
            raise later_version(name, version, FORMAT_VERSION)
        known = {field.name for field in fields(cls)}
        try:
            manifest = cls(**{key: item for key, item in value.items() if key in known})
        except TypeError as error:
            raise _not_a_manifest(name) from error
        numbers = (manifest.matched, manifest.rows, manifest.changed, manifest.missing, manifest.size)
        valid = all(type(one) is int for one in numbers) and isinstance(manifest.masked, bool)
        valid = valid and isinstance(manifest.filter, dict) and isinstance(manifest.by_topic, dict)
        if manifest.format not in FORMATS or not valid:
            raise _not_a_manifest(name)
        return manifest


def later_version(name: str, version: int, readable: int) -> TransferError:
    """Return the error for a file of a later format version than the last readable one."""
    return TransferError(
        f"{name} has format version {version}; this producer-core reads versions up to {readable}.",
        fix="Upgrade producer-core.",
    )


def manifest_path(file: Path) -> Path:
    """Return the manifest's path, such as `orders.parquet.manifest.json` for `orders.parquet`."""
    return file.with_name(f"{file.name}.manifest.json")


def read_manifest(file: Path) -> Manifest | None:
    """Return the manifest beside the file, or None if there is none."""
    path = manifest_path(file)
    try:
        data = path.read_bytes()
    except FileNotFoundError:
        return None
    except OSError as error:
        raise TransferError(f"The manifest {path} cannot be read ({error.strerror}).") from error
    return Manifest.from_json(data, str(path))


def format_of(path: Path, requested: str | None = None) -> Format:
    """Return the requested format, or the format for the suffix of the file name."""
    found = next((one for one in FORMATS if one == requested), None) or _SUFFIXES.get(path.suffix.lower())
    if found is None or (requested is not None and requested not in FORMATS):
        raise TransferError(
            f"Unknown file format: {requested or path.name!r}.",
            fix="Use the extension .parquet, .jsonl or .csv, or --format.",
        )
    return found


def verify(file: Path, manifest: Manifest, progress: Progress | None = None) -> None:
    """Raise TransferError if the file does not match its manifest byte for byte."""
    size = file.stat().st_size
    if size != manifest.size:
        raise _changed_file(file, f"it has {size:,} bytes instead of {manifest.size:,}")
    digest, done = hashlib.sha256(), 0
    with file.open("rb") as data:
        while chunk := data.read(_CHUNK):
            digest.update(chunk)
            done += len(chunk)
            if progress is not None:
                progress(done, size)
    if digest.hexdigest() != manifest.sha256:
        raise _changed_file(file, "its sha256 differs")


def _changed_file(file: Path, difference: str) -> TransferError:
    return TransferError(
        f"{file} does not match its manifest: {difference}. Nothing was imported.",
        fix="Copy it again, or import the readable rows with --no-manifest.",
    )


def _not_a_manifest(name: str) -> TransferError:
    return TransferError(f"{name} is not a manifest of dead letters.", fix="Copy it again from its source.")
