"""Mask secrets, card numbers and addresses in values, keys, headers and texts before display.

A field is hidden completely if its name is secret (`password`, `authorization`, `api_key`, …). Elsewhere patterns apply:
e-mail addresses, card numbers (by issuer range and Luhn checksum), bearer and basic credentials, JSON web tokens, the keys
of well-known services, passwords in URLs, and `name=secret` in texts. Bytes that are not text are never shown. Masking
is for display only: masked content cannot be sent again.

One TOML file adds rules. Its path is `PRODUCER_CORE_MASKING`, else `$XDG_CONFIG_HOME/producer-core/masking.toml`. It is
read again after a change:

    names = ["birth_date", "customer*"]     # fields and headers that are hidden completely; * matches any text
    patterns = ['\\bCUST-\\d{6}\\b']        # hidden in any text, in RE2 syntax
    open = ["token_count"]                  # names that look secret and are not
    hide = ["keys"]                         # keys, values, headers: hide all of them

An invalid file raises ConfigError, and nothing is shown until it is fixed. RE2 matches patterns in time linear in the
text, so no pattern can be slow.
"""

from __future__ import annotations

import difflib
import fnmatch
import os
import re
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from functools import cache, lru_cache
from pathlib import Path
from typing import Any

import orjson

from producer_core._internal.error_names import CODES
from producer_core._internal.home_folder import expand_user
from producer_core._internal.plural import plural
from producer_core._internal.secret_patterns import HIDDEN, compatibility_form, hide_secrets
from producer_core.errors import ConfigError

LONGEST = 1 << 20
"""Bytes of the largest value that is shown masked."""

_MAX_DEPTH = 100
_SHORT_NAME = 256
_NAME_MEMBERS = ("name", "key", "field", "header", "Name", "Key")
_VALUE_MEMBERS = ("value", "values", "val", "content", "data")
"""`{"name": "password", "value": …}`: the members that name a value, and those that hold it."""
_HIDABLE = ("keys", "values", "headers")

_SECRET_NAME = re.compile(
    r"pass(?:word|wd|phrase|code)|secret|token|credential|authori[sz]ation|cookie|session_?id|api_?key|private_?key"
    r"|access_?key|signature|(?:^|_)(?:pwd|pin|cvv|cvc|ssn|iban|otp|auth)(?:$|_)|card_?(?:number|no|num)|^pan$|jaas"
)
_WORD_EDGE = re.compile(r"(?<=[a-z0-9])(?=[A-Z])")
# Every repetition below is bounded or has one place to begin, so that matching takes linear time.
_EMAIL = re.compile(
    r"\b([A-Za-z0-9])[A-Za-z0-9._%+-]{0,63}@((?:[A-Za-z0-9-]{1,63}\.){1,8}[A-Za-z]{2,24})(?![A-Za-z])"
)
_CARD = re.compile(r"(?<![\d.])\d(?:[ -]?\d){12,18}(?![\d])")
_ISSUERS = re.compile(
    r"4\d{12}(?:\d{3}){0,2}|5[1-5]\d{14}|2[2-7]\d{14}|3[47]\d{13}|3(?:0[0-5]|[689]\d)\d{11}|35\d{14}|6\d{15,18}"
)
_CONTROLS = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f]")


@dataclass(frozen=True)
class MaskingRules:
    """The rules of the TOML file, which apply in addition to the built-in ones."""

    names: tuple[str, ...] = ()
    patterns: tuple[str, ...] = ()
    open: tuple[str, ...] = ()
    hide: tuple[str, ...] = ()
    path: Path | None = None


def rules_path() -> Path:
    """Return the path of the TOML file with masking rules."""
    if named := os.environ.get("PRODUCER_CORE_MASKING"):
        return expand_user(named)
    return expand_user(os.environ.get("XDG_CONFIG_HOME") or "~/.config") / "producer-core" / "masking.toml"


def rules() -> MaskingRules:
    """Return the current rules. Raise ConfigError if the file is invalid, or missing although it was named."""
    path = rules_path()
    try:
        found = path.stat()
    except OSError as error:
        if os.environ.get("PRODUCER_CORE_MASKING"):
            raise ConfigError(
                f"The masking rules {path} cannot be read ({error.strerror}).",
                fix="Correct the path in PRODUCER_CORE_MASKING, or unset it; until then nothing is shown.",
            ) from error
        return MaskingRules()
    return _load_cached(path, found.st_mtime_ns, found.st_size, found.st_ino)


def load(path: Path) -> MaskingRules:
    """Return the rules of a file. Raise ConfigError with the mistake and its place."""
    try:
        given = tomllib.loads(path.read_text())
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise _invalid(path, f"the file cannot be read as TOML: {error}") from error
    known = [field.name for field in fields(MaskingRules) if field.name != "path"]
    for name, value in given.items():
        if name not in known:
            close = difflib.get_close_matches(name, known, n=1)
            raise _invalid(
                path,
                f"there is no setting {name!r}. {f'Did you mean {close[0]}?' if close else _choices(known)}",
            )
        if not isinstance(value, list) or not all(isinstance(item, str) and item for item in value):
            raise _invalid(path, f"{name} must be a list of strings")
    found = MaskingRules(**{name: tuple(value) for name, value in given.items()}, path=path)
    for part in found.hide:
        if part not in _HIDABLE:
            raise _invalid(path, f"{part!r} cannot be hidden. {_choices(_HIDABLE)}")
    for pattern in found.patterns:
        _check_pattern(path, pattern)
    return found


def is_secret_name(name: str) -> bool:
    """Whether the name of a field or header marks its value as secret; `apiKey`, `api-key` and `API_KEY` are equal."""
    return _is_secret(name, rules())


def mask_text(text: str) -> str:
    """Return a text with everything that looks secret replaced."""
    return _mask_text(text, rules())


def mask_or_hide(text: str) -> str:
    """Return masked text for alerts, notices and logs; while the rules are invalid, hide all of it."""
    try:
        return mask_text(text)
    except ConfigError as error:
        return f"(hidden: {error})"


def mask(value: Any) -> Any:
    """Return a JSON value with secrets replaced, by field name and by pattern. Its shape is kept."""
    return _mask(value, rules(), 0)


def display_value(data: bytes | None, *, reveal: bool = False) -> Any:
    """Return a value for display: JSON as JSON, text as text, masked.

    For other bytes, and for values longer than LONGEST, only the size is shown. Revealed bytes are hexadecimal.
    """
    if data is None:
        return None
    if reveal:
        return _read(data, f"0x{data.hex()}")
    active = rules()
    if "values" in active.hide:
        return f"{plural(len(data), 'byte')}, hidden"
    return _masked_value(data, active)


def display_decoded(value: Any, *, reveal: bool = False) -> Any:
    """Return a decoded value for display: masked like JSON, its bytes as text, and other bytes by their size.

    Revealed bytes that are not text are hexadecimal.
    """
    plain = _without_bytes(value, reveal)
    return plain if reveal else _mask(plain, rules(), 0)


def is_hidden(part: str) -> bool:
    """Whether the rules hide all `keys`, `values` or `headers`."""
    return part in rules().hide


def display_key(key: bytes | None, *, reveal: bool = False) -> str | None:
    """Return a key for display, as text. Revealed bytes that are not text are hexadecimal."""
    if key is None:
        return None
    if not reveal and "keys" in rules().hide:
        return HIDDEN
    if key[:1] in b"{[" and key:
        value = _read(key, None) if reveal else _masked_value(key, rules())
        if value is not None:
            return value if isinstance(value, str) else orjson.dumps(value).decode()
    text = _as_text(key)
    if text is None:
        return f"0x{key.hex()}" if reveal else _size_text(key)
    return text if reveal else mask_text(text)


def mask_headers(headers: Sequence[tuple[str, bytes | None]], *, reveal: bool = False) -> list[list[Any]]:
    """Return headers as lists of name and text, in their order. Secrets are masked by name and by pattern."""
    if reveal:
        return [[name, display_value(value, reveal=True)] for name, value in headers]
    active = rules()
    return [[_mask_text(name, active), _header(name, value, active)] for name, value in headers]


# implementation


def _header(name: str, value: bytes | None, active: MaskingRules) -> Any:
    if value is None:
        return None
    if "headers" in active.hide or _is_secret(name, active):
        return HIDDEN
    return _masked_value(value, active)


def _masked_value(data: bytes, active: MaskingRules) -> Any:
    if len(data) > LONGEST:
        return f"{len(data):,} bytes, too long to be shown masked"
    return _mask(_read(data, _size_text(data)), active, 0)


def _read(data: bytes, otherwise: Any) -> Any:
    """Return JSON, or text that a terminal can show; `otherwise` for other bytes."""
    try:
        return orjson.loads(data)
    except orjson.JSONDecodeError:
        text = _as_text(data)
        return otherwise if text is None else text


def _as_text(data: bytes) -> str | None:
    try:
        text = data.decode()
    except UnicodeDecodeError:
        return None
    return None if _CONTROLS.search(text) else text


def _without_bytes(value: Any, reveal: bool) -> Any:
    if isinstance(value, dict):
        return {name: _without_bytes(item, reveal) for name, item in value.items()}
    if isinstance(value, list):
        return [_without_bytes(item, reveal) for item in value]
    if not isinstance(value, bytes):
        return value
    text = _as_text(value)
    if text is None:
        return f"0x{value.hex()}" if reveal else _size_text(value)
    return text


def _size_text(data: bytes) -> str:
    return f"{plural(len(data), 'byte that is', 'bytes that are')} not text"


def _mask(value: Any, active: MaskingRules, depth: int) -> Any:
    if depth > _MAX_DEPTH:
        return HIDDEN
    if isinstance(value, Mapping):
        return _mask_object(value, active, depth)
    if isinstance(value, list | tuple):
        return _mask_list(value, active, depth)
    if isinstance(value, str):
        return _mask_text(value, active)
    if isinstance(value, int | float) and not isinstance(value, bool):
        text = str(int(value)) if isinstance(value, float) and value.is_integer() else str(value)
        masked = _mask_text(text, active)
        return value if masked == text else masked
    return value


def _mask_list(value: Sequence[Any], active: MaskingRules, depth: int) -> list[Any]:
    """Mask a list. A pair of a secret name and its value, as headers are written, keeps only the name."""
    if len(value) == 2 and isinstance(value[0], str) and _is_secret(value[0], active):
        return [value[0], HIDDEN]
    return [_mask(item, active, depth + 1) for item in value]


def _mask_object(value: Mapping[Any, Any], active: MaskingRules, depth: int) -> dict[str, Any]:
    """Mask an object. Names can contain an address too; two names with the same masked form stay separate."""
    result: dict[str, Any] = {}
    repeated: dict[str, int] = {}
    named = any(_is_secret(value[name], active) for name in _NAME_MEMBERS if isinstance(value.get(name), str))
    for name, item in value.items():
        secret, masked = _masked_name(str(name), active)
        secret = secret or (named and str(name).lower() in _VALUE_MEMBERS)
        hidden = item is not None and not isinstance(item, bool) and secret
        if masked in result:
            masked = _another_name(masked, result, repeated)
        result[masked] = HIDDEN if hidden else _mask(item, active, depth + 1)
    return result


def _masked_name(name: str, active: MaskingRules) -> tuple[bool, str]:
    """Return whether a name is secret, and its masked form. The records of a list have the same short names."""
    if len(name) > _SHORT_NAME:
        return _is_secret(name, active), _mask_text(name, active)
    return _masked_short_name(name, active)


@lru_cache(maxsize=1_000)
def _masked_short_name(name: str, active: MaskingRules) -> tuple[bool, str]:
    return _is_secret(name, active), _mask_text(name, active)


def _another_name(masked: str, taken: Mapping[str, Any], repeated: dict[str, int]) -> str:
    """Return a name that is free: the masked form with a number, counted by masked form."""
    while True:
        repeated[masked] = number = repeated.get(masked, 1) + 1
        if (name := f"{masked} ({number})") not in taken:
            return name


def _mask_text(text: str, active: MaskingRules) -> str:
    text = _json_inside(text, active) or hide_secrets(text, lambda name: _is_secret(name, active))
    text = _EMAIL.sub(lambda found: f"{found[1]}{HIDDEN}@{found[2]}", text)
    text = _CARD.sub(_mask_card, text)
    return _replace(_combined_pattern(active), text) if active.patterns or active.names else text


def _json_inside(text: str, active: MaskingRules) -> str | None:
    """Mask a text that is itself a JSON object or list. Return None for any other text."""
    if text[:1] not in "{[" or len(text) < 2:
        return None
    try:
        value = orjson.loads(text)
    except orjson.JSONDecodeError:
        return None
    masked = _mask(value, active, 1)
    return text if masked == value else orjson.dumps(masked).decode()


def _mask_card(found: re.Match[str]) -> str:
    digits = re.sub(r"\D", "", found[0])
    if not _ISSUERS.fullmatch(digits) or not _luhn(digits):
        return found[0]
    return f"{'*' * (len(digits) - 4)}{digits[-4:]}"


def _luhn(digits: str) -> bool:
    doubled = [
        int(digit) * (1 + odd) for digit, odd in zip(reversed(digits), [0, 1] * len(digits), strict=False)
    ]
    return sum(number - 9 * (number > 9) for number in doubled) % 10 == 0


def _is_secret(name: str, active: MaskingRules) -> bool:
    forms = [_plain(one) for one in _spellings(name)]
    if any(_matches(plain, active.open) for plain in forms):
        return False
    looks_secret = name not in CODES and any(_SECRET_NAME.search(plain) for plain in forms)
    return looks_secret or any(_matches(plain, active.names) for plain in forms)


def _spellings(name: str) -> tuple[str, ...]:
    """Return a name, and for an extension of Protobuf such as `[shop.pin]` also `shop.pin` and `pin`."""
    if not (name.startswith("[") and name.endswith("]")):
        return (name,)
    inside = name[1:-1]
    return name, inside, inside.rpartition(".")[2]


def _matches(plain: str, names: Sequence[str]) -> bool:
    return any(fnmatch.fnmatchcase(plain, _plain(name)) for name in names)


def _plain(name: str) -> str:
    return re.sub(r"[-. ]", "_", _WORD_EDGE.sub("_", compatibility_form(name)).lower())


# rules file


@lru_cache(maxsize=4)
def _load_cached(path: Path, *stamp: int) -> MaskingRules:
    return load(path)


@cache
def _combined_pattern(active: MaskingRules) -> str:
    """Return all patterns, and the secret names with their assigned values, as one RE2 pattern."""
    assigned = [
        rf"(?i:{_name_pattern(name)}[\"']?\s*[=:]\s*(?:\"[^\"]*\"?|'[^']*'?|[^\s,;&}}<]+))"
        for name in active.names
    ]
    return "|".join([*(f"(?:{pattern})" for pattern in active.patterns), *assigned])


def _name_pattern(name: str) -> str:
    """Return a pattern that matches `birth_date`, birthDate, birth-date and birth.date alike; `*` matches any word."""
    wildcards = {"_": "[_. -]?", "*": r"[\w.-]*"}
    return "".join(wildcards.get(character, re.escape(character)) for character in _plain(name))


def _replace(pattern: str, text: str, by: str = HIDDEN) -> str:
    from pyarrow import compute

    clean = text.encode("utf-8", "replace").decode()
    return str(compute.replace_substring_regex(clean, pattern, by).as_py())


def _check_pattern(path: Path, pattern: str) -> None:
    from pyarrow import ArrowInvalid

    try:
        empty = any(
            _replace(pattern, text, "") == text != _replace(pattern, text) for text in ("", "a b", "1\u2402")
        )
    except ArrowInvalid as error:
        raise _invalid(path, f"the pattern {pattern!r} is not valid RE2: {error}") from error
    if empty:
        raise _invalid(path, f"the pattern {pattern!r} matches the empty string, so it would hide nothing")


def _invalid(path: Path, problem: str) -> ConfigError:
    return ConfigError(
        f"The masking rules {path}: {problem.rstrip('.')}.",
        fix="Nothing is shown until the file is corrected.",
    )


def _choices(names: Sequence[str]) -> str:
    return f"Use one of {', '.join(names)}."
