"""Read Avro from bytes of unknown origin, with limits on depth and on the number of parts.

fastavro's readers have no limits: a few bytes can name an array of 2^60 nulls, or nest records until the stack overflows.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Mapping
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import Any

from producer_core.kafka.schemas.avro_fit import AvroSchema
from producer_core.kafka.schemas.read_limits import NotReadable, ReadBudget, finite

_MAX_DECIMAL_BYTES = 512
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def read_avro(data: bytes, schema: AvroSchema, named: Mapping[str, AvroSchema]) -> Any:
    """Return the value: bytes as bytes, decimals and times as text, everything else as JSON has it.

    `schema` is one that fastavro parsed, and `named` has its records, enums and fixed types by full name. Raise
    NotReadable for bytes that do not fit, including bytes after the end of the value.
    """
    reader = _Reader(data, named)
    value = reader.read(schema, 0)
    if reader.at != len(data):
        raise NotReadable(f"{len(data) - reader.at:,} bytes remain after its end")
    return value


class _Reader:
    def __init__(self, data: bytes, named: Mapping[str, AvroSchema]) -> None:
        self._data, self._named = data, named
        self.at = 0
        self._budget = ReadBudget()

    def read(self, schema: AvroSchema, depth: int) -> Any:
        self._budget.part(depth)
        if isinstance(schema, list):
            return self.read(_item(schema, self._long(), "branch"), depth + 1)
        if isinstance(schema, str):
            return self._leaf(schema, schema, depth)
        kind = schema["type"]
        if not isinstance(kind, str):  # a type inside a type
            return self.read(kind, depth + 1)
        match kind:
            case "record" | "error":
                name = self._budget.name
                return {
                    name(field["name"]): self.read(field["type"], depth + 1) for field in schema["fields"]
                }
            case "array":
                return self._blocks(lambda: self.read(schema["items"], depth + 1))
            case "map":
                return dict(self._blocks(lambda: (self._text(), self.read(schema["values"], depth + 1))))
            case "enum":
                return self._budget.name(_item(schema["symbols"], self._long(), "symbol"))
            case "fixed":
                return self._logical(self._take(schema["size"]), schema)
        return self._logical(self._leaf(kind, schema, depth), schema)

    def _logical(self, value: Any, schema: dict[str, Any]) -> Any:
        found = _logical(value, schema)
        # A scale makes one byte a thousand digits.
        return self._budget.text(found) if isinstance(found, str) and not isinstance(value, str) else found

    def _leaf(self, kind: str, schema: AvroSchema, depth: int) -> Any:
        match kind:
            case "null":
                return None
            case "boolean":
                return self._boolean()
            case "int" | "long":
                return self._long()
            case "float":
                return finite(struct.unpack("<f", self._take(4))[0])
            case "double":
                return finite(struct.unpack("<d", self._take(8))[0])
            case "bytes":
                return self._take(self._long())
            case "string":
                return self._text()
        if kind in self._named:
            return self.read(self._named[kind], depth + 1)
        raise NotReadable("its schema has a type that Avro does not have")

    def _blocks(self, read_one: Callable[[], Any]) -> list[Any]:
        """Read the items of an array or map. A negative count is followed by the size of the block in bytes."""
        items: list[Any] = []
        while count := self._long():
            if count < 0:
                count, _ = -count, self._long()
            for _ in range(count):  # `read` limits the number of parts
                items.append(read_one())
        return items

    def _boolean(self) -> bool:
        match self._take(1):
            case b"\0":
                return False
            case b"\1":
                return True
        raise NotReadable("a boolean is neither 0 nor 1")

    def _text(self) -> str:
        try:
            return self._take(self._long()).decode()
        except UnicodeDecodeError:
            raise NotReadable("a string is not UTF-8") from None

    def _long(self) -> int:
        value = 0
        for shift in range(0, 70, 7):
            byte = self._take(1)[0]
            value |= (byte & 0x7F) << shift
            if byte < 0x80 and value < 1 << 64:
                return (value >> 1) ^ -(value & 1)
        raise NotReadable("a number is longer than 64 bits")

    def _take(self, size: int) -> bytes:
        end = self.at + size
        if size < 0 or end > len(self._data):
            raise NotReadable("it ends too early")
        found = self._data[self.at : end]
        self.at = end
        return found


def _item(choices: list[Any], index: int, name: str) -> Any:
    if not 0 <= index < len(choices):
        raise NotReadable(f"it has a {name} that its schema does not have")
    return choices[index]


def _logical(value: Any, schema: dict[str, Any]) -> Any:
    """Return a value with a logical type as text; the plain value if the type is unknown or the value out of range."""
    logical = schema.get("logicalType")
    bases, convert = _LOGICAL.get(logical if isinstance(logical, str) else "", ((), None))
    if convert is None or schema["type"] not in bases:
        return value
    try:
        return convert(value, schema)
    except (ArithmeticError, TypeError, ValueError):
        return value


def _decimal(value: bytes, schema: dict[str, Any]) -> str:
    if len(value) > _MAX_DECIMAL_BYTES:
        raise ValueError
    number = int.from_bytes(value, "big", signed=True)
    digits = tuple(map(int, str(abs(number))))
    scale = int(schema.get("scale") or 0)
    if not 0 <= scale <= 1_000:
        raise ValueError
    return format(Decimal((number < 0, digits, -scale)), "f")


def _moment(per_second: int, *, local: bool = False) -> Callable[[int, dict[str, Any]], str]:
    def convert(value: int, schema: dict[str, Any]) -> str:
        at = _EPOCH + timedelta(microseconds=value * 1_000_000 // per_second)
        return (at.replace(tzinfo=None) if local else at).isoformat()

    return convert


def _time(per_second: int) -> Callable[[int, dict[str, Any]], str]:
    def convert(value: int, schema: dict[str, Any]) -> str:
        if not 0 <= value < 86_400 * per_second:
            raise ValueError
        return (datetime.min + timedelta(microseconds=value * 1_000_000 // per_second)).time().isoformat()

    return convert


def _date(value: int, schema: dict[str, Any]) -> str:
    return (date(1970, 1, 1) + timedelta(days=value)).isoformat()


_LOGICAL: Mapping[str, tuple[tuple[str, ...], Callable[[Any, dict[str, Any]], str]]] = {
    "decimal": (("bytes", "fixed"), _decimal),
    "date": (("int",), _date),
    "time-millis": (("int",), _time(1_000)),
    "time-micros": (("long",), _time(1_000_000)),
    "timestamp-millis": (("long",), _moment(1_000)),
    "timestamp-micros": (("long",), _moment(1_000_000)),
    "timestamp-nanos": (("long",), _moment(1_000_000_000)),
    "local-timestamp-millis": (("long",), _moment(1_000, local=True)),
    "local-timestamp-micros": (("long",), _moment(1_000_000, local=True)),
    "local-timestamp-nanos": (("long",), _moment(1_000_000_000, local=True)),
}
"""By logical type, the types that may have it, and the conversion: `value * 1_000` of a text would repeat it."""
