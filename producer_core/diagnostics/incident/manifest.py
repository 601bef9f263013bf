"""Read and write the manifest of an incident bundle: its range, origin, and the size and checksum of each file."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from typing import Any

import orjson

from producer_core.diagnostics.incident.rows import ROWS
from producer_core.diagnostics.incident.window import IncidentWindow
from producer_core.dlq.files.manifest import later_version
from producer_core.errors import TransferError

KIND = "producer-core incident"
FORMAT_VERSION = 1
MANIFEST, PAGE = "manifest.json", "index.html"
DOCTOR, SETTINGS = "doctor.json", "settings.json"
DEAD_LETTERS = "dead_letters.parquet"
DEAD_LETTERS_MANIFEST = f"{DEAD_LETTERS}.manifest.json"
REQUIRED = (DOCTOR, SETTINGS, PAGE)
RAW_ONLY = (DEAD_LETTERS, DEAD_LETTERS_MANIFEST)
"""The files with which the dead letters of a raw bundle are imported."""
TABLES = {table: f"tables/{table}.jsonl" for table in ROWS}
"""The file of each table that has rows."""

MAX_FILE, MAX_BYTES, MAX_ROWS = (2 << 30) - 1, 4 << 30, 20_000_000
"""The bytes of one file, and the bytes and rows of all files together, without compression."""

_LATEST = 253_402_300_799.0
"""The last second of the year 9999."""
_LONGEST_TEXT = 1000


@dataclass(frozen=True, kw_only=True)
class BundledFile:
    """A file of the bundle with its size in bytes."""

    size: int
    sha256: str


@dataclass(frozen=True, kw_only=True)
class BundleManifest:
    """Describes a bundle. Times are seconds since 1970. `counts` are the rows of the tables that have any.

    `masking` is the path of the file with the masking rules, or says that only the built-in ones applied; it is empty for
    a raw bundle.
    """

    since: float
    until: float
    masked: bool
    masking: str
    counts: Mapping[str, int]
    files: Mapping[str, BundledFile]
    product_version: str
    created_at: float
    created_by: str
    origin: str
    format_version: int = FORMAT_VERSION

    def to_json(self) -> bytes:
        moments = {
            f"{name}_utc": datetime.fromtimestamp(getattr(self, name), UTC).isoformat()
            for name in ("since", "until", "created_at")
        }
        value = {"kind": KIND, **asdict(self), **moments}
        return orjson.dumps(value, option=orjson.OPT_INDENT_2 | orjson.OPT_APPEND_NEWLINE)

    @classmethod
    def from_json(cls, data: bytes, name: str) -> BundleManifest:
        """Parse a manifest. Raise TransferError for any other file, and for a later format version."""
        try:
            value: dict[str, Any] = orjson.loads(data)
            kind, version = value["kind"], value["format_version"]
        except (orjson.JSONDecodeError, TypeError, KeyError) as error:
            raise not_a_bundle(name) from error
        if kind != KIND or type(version) is not int or version < 1:
            raise not_a_bundle(name)
        if version > FORMAT_VERSION:
            raise later_version(name, version, FORMAT_VERSION)
        try:
            return _parsed(value)
        except (TypeError, KeyError, ValueError, AttributeError, TransferError) as error:
            raise not_a_bundle(name) from error


def not_a_bundle(name: str) -> TransferError:
    return TransferError(
        f"{name} is not an incident bundle, or is damaged.", fix="Copy it again from its source."
    )


def _parsed(value: Mapping[str, Any]) -> BundleManifest:
    window = IncidentWindow(_time(value["since"]), _time(value["until"]))
    if type(value["masked"]) is not bool:
        raise ValueError("masked")
    return BundleManifest(
        since=window.since,
        until=window.until,
        masked=value["masked"],
        masking=_text(value["masking"]),
        counts={_text(name): _whole(number) for name, number in value["counts"].items()},
        files={
            _text(name): BundledFile(size=_whole(one["size"]), sha256=_text(one["sha256"]))
            for name, one in value["files"].items()
        },
        product_version=_text(value["product_version"]),
        created_at=_time(value["created_at"]),
        created_by=_text(value["created_by"]),
        origin=_text(value["origin"]),
        format_version=value["format_version"],
    )


def _time(value: Any) -> float:
    if type(value) not in (int, float) or not math.isfinite(value) or not 0 <= value <= _LATEST:
        raise ValueError(f"not a time: {value!r:.40}")
    return float(value)


def _whole(value: Any) -> int:
    if type(value) is not int or value < 0:
        raise ValueError(f"not a number: {value!r:.40}")
    return value


def _text(value: Any) -> str:
    if not isinstance(value, str) or len(value) > _LONGEST_TEXT:
        raise ValueError(f"not a text: {value!r:.40}")
    return value
