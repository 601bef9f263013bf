"""Opens an input and chooses its reader: JSON lines, CSV or Parquet."""

from __future__ import annotations

from pathlib import Path
from typing import Literal, get_args

from producer_core.cli.send.csv_rows import CsvRows
from producer_core.cli.send.input_file import InputError, InputSource, open_source
from producer_core.cli.send.json_rows import JsonRows
from producer_core.cli.send.parquet_rows import ParquetRows
from producer_core.cli.send.rows import InputRow, InputRows, MalformedRow
from producer_core.errors import ConfigError, ProducerError

Format = Literal["jsonl", "csv", "parquet"]
Types = Literal["column", "value", "text"]
FORMATS: tuple[str, ...] = get_args(Format)
TYPES: tuple[str, ...] = get_args(Types)

__all__ = [
    "FORMATS",
    "TYPES",
    "Format",
    "InputError",
    "InputRow",
    "InputRows",
    "MalformedRow",
    "Types",
    "open_rows",
]

_EXTENSIONS: dict[str, Format] = {
    ".jsonl": "jsonl",
    ".ndjson": "jsonl",
    ".json": "jsonl",
    ".csv": "csv",
    ".tsv": "csv",
    ".parquet": "parquet",
    ".pq": "parquet",
}


def open_rows(
    path: Path | str | None,
    *,
    format: Format | None = None,
    skip: int = 0,
    types: Types = "column",
    nulls: tuple[str, ...] = (),
    delimiter: str | None = None,
) -> InputRows:
    """Open the rows of `path`, or of standard input for None. Decompress gzip, and a zip archive of one file, while reading.

    The format is `format`, otherwise Parquet where the first bytes are its magic number, otherwise that of the file
    name's extension (for .gz and .zip, of the file inside). Standard input is JSON lines by default. `skip` leaves
    out the rows that end at or before that line (Parquet: row). `types`, `nulls` and `delimiter` are for CSV, see
    `column_types`.
    """
    source = open_source(path)
    try:
        return _rows(source, format, skip, types, nulls, delimiter)
    except ProducerError:
        source.close()
        raise


def _rows(
    source: InputSource,
    format: Format | None,
    skip: int,
    types: Types,
    nulls: tuple[str, ...],
    delimiter: str | None,
) -> InputRows:
    chosen = format or _format_of(source)
    if chosen == "parquet":
        return ParquetRows(source, skip=skip)
    if chosen == "csv":
        usual = "\t" if _extension(source.inner_name) == ".tsv" else ","
        separator = "\t" if delimiter == r"\t" else delimiter or usual
        return CsvRows(
            source, skip=skip, types=types, nulls=nulls, delimiter=separator, explicit=delimiter is not None
        )
    return JsonRows(source, skip=skip, explicit=format is not None)


def _format_of(source: InputSource) -> Format:
    if source.peek(4) == b"PAR1":
        return "parquet"
    extension = _extension(source.inner_name)
    if extension in (".gz", ".zip") and not source.is_compressed:
        raise InputError(
            f"{source.name} has the extension {extension}, but its content is not compressed that way.",
            fix="Fetch the file again, or rename it if it is not compressed.",
        )
    found = _EXTENSIONS.get(extension)
    if found is None and source.path is not None and source.path.is_file():
        raise ConfigError(
            f"The format cannot be determined from the file name {source.name}.",
            fix=f"Use --format {'|'.join(FORMATS)}.",
        )
    return found or "jsonl"


def _extension(name: str) -> str:
    return Path(name).suffix.lower()
