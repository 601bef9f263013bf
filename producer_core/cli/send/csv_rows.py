"""The reader of CSV: records after a header line, with typed columns. A malformed record keeps its bytes."""

from __future__ import annotations

import csv
from collections import deque
from collections.abc import Iterator
from typing import NamedTuple

from producer_core._internal.join_names import join_names
from producer_core.cli.send import column_types
from producer_core.cli.send.input_file import InputError, InputSource, lines
from producer_core.cli.send.rows import InputRow, InputRows, MalformedRow
from producer_core.errors import ConfigError

_LONGEST_FIELD = 16 << 20
_CARRIAGE_RETURN = "a carriage return (CR) inside a field without quotes"
_DELIMITERS = {";": "';'", "\t": r"'\t'", "|": "'|'", ",": ","}
"""The usual delimiters, each quoted for a shell."""


class CsvRows(InputRows):
    """Reads CSV records as objects.

    `types`: "column" reads the whole input once to find the column types, and copies a pipe to disk for that;
    "value" types each field separately as it arrives; "text" keeps every field as text. Unless the user named the
    delimiter (`explicit`), a header with another delimiter is refused.
    """

    def __init__(
        self,
        source: InputSource,
        *,
        skip: int = 0,
        types: str = "column",
        nulls: tuple[str, ...] = (),
        delimiter: str = ",",
        explicit: bool = False,
    ) -> None:
        super().__init__(source, skip=skip)
        if len(delimiter) != 1:
            raise ConfigError(f"The delimiter must be one character, not {delimiter!r}.")
        self._types = types
        self._nulls = frozenset(nulls)
        self._delimiter = delimiter
        self._explicit = explicit
        self._conversions: list[column_types.Convert] | None = None

    def prepare(self) -> None:
        if self._types != "column":
            super().prepare()
        elif self._conversions is None:
            self._read_types()

    def _read_types(self) -> None:
        self.stage = "typing"
        self.source.keep()
        self._conversions = self._conversions_by_column()
        self.source = self.source.reopen(None if self._stopped else self.source.consumed)
        self.stage = "reading"

    def _rows(self) -> Iterator[InputRow | MalformedRow]:
        if self._types == "column" and self._conversions is None:
            self._read_types()
        records = self._records()
        names = self._header(records)
        convert = self._conversions or self._same_for_all(names)
        for record in records:
            if self._stopped:
                return
            if record.last <= self.skip:
                continue
            if record.problem:
                yield MalformedRow(record.last, record.raw, record.problem)
            elif not record.fields:
                self.blank += 1
            else:
                value = {name: to(text) for name, to, text in zip(names, convert, record.fields, strict=True)}
                yield InputRow(record.last, value, value, record.raw)

    def _records(self) -> Iterator[_Record]:
        return _records(_Feed(lines(self.source)), self._delimiter)

    def _header(self, records: Iterator[_Record]) -> tuple[str, ...]:
        header = next(records, None)
        if header is None or not header.fields:
            raise self._no_header(header)
        names = tuple(header.fields)
        if len(names) == 1 and not self._explicit:
            self._check_delimiter(names[0])
        if duplicates := sorted({name for name in names if names.count(name) > 1}):
            raise InputError(
                f"{self.name} has the column {duplicates[0]!r} twice; one column would be lost.",
                fix="Rename one of them.",
            )
        self.columns = names
        note = 'A column has no name in the header; its values are sent as the field "".'
        if "" in names and note not in self.notes:
            self.notes.append(note)
        return names

    def _no_header(self, header: _Record | None) -> InputError:
        if header is not None and b"\r" in header.raw:
            return InputError(
                f"{self.name} has a carriage return (CR) inside its header line; lines must end with LF or CR LF.",
                fix=f"If each line ends with CR only, convert the file: tr '\\r' '\\n' < {self.name}.",
            )
        problem = f": {header.problem}" if header and header.problem else ""
        return InputError(f"{self.name} has no header line with the column names{problem}.")

    def _check_delimiter(self, column: str) -> None:
        other = next((one for one in _DELIMITERS if one in column and one != self._delimiter), None)
        if other is not None:
            raise InputError(
                f"{self.name} has a single column, {column[:60]!r}, which contains another delimiter.",
                fix=f"Use --delimiter {_DELIMITERS[other]}, or --delimiter "
                f"{_DELIMITERS[self._delimiter]} to keep one column.",
            )

    def _same_for_all(self, names: tuple[str, ...]) -> list[column_types.Convert]:
        maker = column_types.as_text if self._types == "text" else column_types.by_value
        return [maker(self._nulls) for _ in names]

    def _conversions_by_column(self) -> list[column_types.Convert]:
        records = self._records()
        names = self._header(records)
        kinds = [0] * len(names)
        memo = column_types.TypeMemo(lambda text: 1 if text in self._nulls else column_types.kind_of(text))
        for record in records:
            if self._stopped:
                break
            if record.fields and not record.problem:
                kinds = [kind | memo[text] for kind, text in zip(kinds, record.fields, strict=True)]
        self._note_marks(names, kinds)
        return [column_types.conversion(kind, self._nulls) for kind in kinds]

    def _note_marks(self, names: tuple[str, ...], kinds: list[int]) -> None:
        marked = [name for name, kind in zip(names, kinds, strict=True) if kind & column_types.MARK]
        typed = dict(zip(names, map(column_types.describe, kinds), strict=True))
        if nulled := [name for name in marked if typed[name] not in ("text", "empty")]:
            self.notes.append(f"NA and similar markers were read as null in {join_names(nulled)}.")
        if kept := [name for name in marked if typed[name] in ("text", "empty")]:
            self.notes.append(
                f"NA and similar markers were kept as text in {join_names(kept)}; --null NA makes them null."
            )


class _Record(NamedTuple):
    """A record: its fields or its problem, its bytes without the line end, and the number of its last line."""

    fields: list[str]
    problem: str
    raw: bytes
    last: int


class _Feed:
    """Supplies lines to the CSV reader, remembers those of the current record, and accepts lines back."""

    def __init__(self, source: Iterator[bytes]) -> None:
        self._source = source
        self._returned: deque[bytes] = deque()
        self.record_lines: list[bytes] = []
        self.number = 0
        self.undecodable = False

    def __iter__(self) -> _Feed:
        return self

    def __next__(self) -> str:
        raw = self._returned.popleft() if self._returned else next(self._source)
        self.record_lines.append(raw)
        self.number += 1
        try:
            return raw.decode()
        except UnicodeDecodeError:
            self.undecodable = True
            return raw.decode(errors="surrogateescape")

    def begin(self) -> None:
        self.record_lines.clear()
        self.undecodable = False

    def give_back_all_but_first(self) -> None:
        self.number -= len(self.record_lines) - 1
        self._returned.extendleft(reversed(self.record_lines[1:]))
        del self.record_lines[1:]


def _records(feed: _Feed, delimiter: str) -> Iterator[_Record]:
    """Return the records. A malformed one covers one line only, so that an unclosed quote does not consume the rest."""
    csv.field_size_limit(_LONGEST_FIELD)  # the csv module has one limit per process
    reader = csv.reader(feed, delimiter=delimiter, strict=True)
    width = 0
    while True:
        feed.begin()
        fields: list[str] = []
        problem = ""
        try:
            fields = next(reader)
        except StopIteration:
            return
        except csv.Error as error:
            problem = "not CSV: " + _CARRIAGE_RETURN if "new-line" in str(error) else f"not CSV: {error}"
        if feed.undecodable:
            problem = "not UTF-8 text"
        elif fields and width and len(fields) != width:
            problem = f"{len(fields)} field{'s' * (len(fields) != 1)} where the header has {width}"
        if problem and len(feed.record_lines) > 1:
            feed.give_back_all_but_first()
        width = width or len(fields)
        yield _Record(fields, problem, b"".join(feed.record_lines).rstrip(b"\r\n"), feed.number)
