"""Read and write JSON so that the numbers that an edit does not change keep their exact digits."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

_MAX_DIGITS = 1_000


class NotJson(ValueError):
    """The bytes are not JSON that can be edited. The text has no content of the value."""


@dataclass(frozen=True, slots=True)
class NumberText:
    """A number as the original has it: `1.10`, or more digits than a float can hold."""

    text: str

    @property
    def number(self) -> int | float:
        return float(self.text) if {*".eE"} & {*self.text} else int(self.text)


def parse(data: bytes) -> Any:
    """Return a JSON document whose numbers are NumberText. Raise NotJson."""
    try:
        return json.loads(
            data.decode(),
            parse_float=_number,
            parse_int=_number,
            parse_constant=_reject_constant,
            object_pairs_hook=_object,
        )
    except NotJson:
        raise
    except UnicodeDecodeError:
        raise NotJson("it is not UTF-8") from None
    except RecursionError:
        raise NotJson("it is nested too deeply") from None
    except ValueError:
        raise NotJson("it is not JSON") from None


def natural(document: Any) -> Any:
    """Return a copy with numbers of Python."""
    if isinstance(document, dict):
        return {name: natural(item) for name, item in document.items()}
    if isinstance(document, list):
        return [natural(item) for item in document]
    return document.number if isinstance(document, NumberText) else document


def write(document: Any) -> bytes:
    """Return compact JSON in UTF-8. Raise NotJson for a value that JSON does not have, such as NaN."""
    parts: list[str] = []
    try:
        _write(document, parts)
    except RecursionError:
        raise NotJson("it is nested too deeply") from None
    return "".join(parts).encode()


def _write(document: Any, parts: list[str]) -> None:
    if isinstance(document, NumberText):
        parts.append(document.text)
    elif isinstance(document, dict):
        parts.append("{")
        for number, (name, item) in enumerate(document.items()):
            if not isinstance(name, str):
                raise NotJson("the name of a field is not text")
            parts.append(f"{',' if number else ''}{_leaf(name)}:")
            _write(item, parts)
        parts.append("}")
    elif isinstance(document, list | tuple):
        parts.append("[")
        for number, item in enumerate(document):
            parts.append("," if number else "")
            _write(item, parts)
        parts.append("]")
    else:
        parts.append(_leaf(document))


def _leaf(value: Any) -> str:
    try:
        text = json.dumps(value, ensure_ascii=False, allow_nan=False)
    except (TypeError, ValueError):
        raise NotJson(f"JSON has no {type(value).__name__} such as this one") from None
    try:
        text.encode()
    except UnicodeEncodeError:  # half of a surrogate pair, which JSON can only have as an escape
        return json.dumps(value)
    return text


def _number(text: str) -> NumberText:
    if len(text) > _MAX_DIGITS:
        raise NotJson(f"it has a number of more than {_MAX_DIGITS:,} characters")
    return NumberText(text)


def _reject_constant(text: str) -> Any:
    raise NotJson(f"{text} is not JSON")


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        raise NotJson("a field appears twice")
    return found
