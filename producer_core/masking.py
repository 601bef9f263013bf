"""The mask over what people should not see: secrets, cards and addresses inside values and texts.

A field is masked whole when its name says that it is secret (`password`, `authorization`, `api_key`, …).
Anywhere else the patterns count: e-mail addresses, card numbers (by their issuers' ranges and the Luhn sum),
bearer and basic credentials, JSON web tokens, the keys of well-known services, `name=secret` in texts.
Masking is for looking only: what is masked cannot be sent again.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import orjson

HIDDEN = "***"

_SECRET_NAME = re.compile(
    r"pass(?:word|wd|phrase|code)|secret|token|credential|authori[sz]ation|cookie|session_?id|api_?key|private_?key"
    r"|access_?key|signature|(?:^|_)(?:pwd|pin|cvv|cvc|ssn|iban|otp|auth)(?:$|_)|card_?(?:number|no|num)|^pan$|jaas"
)
_WORD_EDGE = re.compile(r"(?<=[a-z0-9])(?=[A-Z])")
_EMAIL = re.compile(r"\b([A-Za-z0-9])[A-Za-z0-9._%+-]*@((?:[A-Za-z0-9-]+\.)+[A-Za-z]{2,})")
_CARD = re.compile(r"(?<![\d.])\d(?:[ -]?\d){12,18}(?![\d])")
_ISSUERS = re.compile(
    r"4\d{12}(?:\d{3}){0,2}|5[1-5]\d{14}|2[2-7]\d{14}|3[47]\d{13}|3(?:0[0-5]|[689]\d)\d{11}|35\d{14}|6\d{15,18}"
)
_CREDENTIAL = re.compile(r"\b(bearer|basic|digest)\s+[A-Za-z0-9+/=._~-]{6,}", re.I)
_TOKENS = re.compile(
    r"\beyJ[A-Za-z0-9_-]{5,}\.[A-Za-z0-9_-]+\.[A-Za-z0-9_-]*"  # JSON web tokens
    r"|\b(?:AKIA|ASIA)[A-Z0-9]{16}\b|\bgh[pousr]_[A-Za-z0-9]{20,}|\bxox[abeprs]-[A-Za-z0-9-]{10,}"
    r"|\b(?:sk|rk|pk)_(?:live|test)_[A-Za-z0-9]{8,}|-----BEGIN [A-Z ]*PRIVATE KEY-----[\s\S]*?(?:-----END [A-Z ]*-----|$)"
)
_ASSIGNED = re.compile(
    r"(?P<name>[\"']?[\w.-]*(?:password|passwd|secret|token|api[_-]?key|credential)[\w.-]*[\"']?\s*[=:]\s*)"
    r"(?:\"[^\"]*\"|'[^']*'|[^\s,;&}]+)",
    re.I,
)


def is_secret_name(name: str) -> bool:
    """Whether a field's or header's name says that its value is a secret; `apiKey`, `api-key` and `API_KEY` alike."""
    plain = _WORD_EDGE.sub("_", name).lower().replace("-", "_").replace(".", "_").replace(" ", "_")
    return _SECRET_NAME.search(plain) is not None


def mask_text(text: str) -> str:
    """A text with what looks secret replaced."""
    text = _TOKENS.sub(HIDDEN, text)
    text = _CREDENTIAL.sub(lambda found: f"{found[1]} {HIDDEN}", text)
    text = _ASSIGNED.sub(lambda found: found["name"] + HIDDEN, text)
    text = _EMAIL.sub(lambda found: f"{found[1]}{HIDDEN}@{found[2]}", text)
    return _CARD.sub(_mask_card, text)


def mask(value: Any) -> Any:
    """A JSON value with what is secret replaced, by field name and by pattern; its shape is kept."""
    if isinstance(value, Mapping):
        return {name: _mask_field(name, item) for name, item in value.items()}
    if isinstance(value, list | tuple):
        return [mask(item) for item in value]
    if isinstance(value, str):
        return mask_text(value)
    if isinstance(value, int) and not isinstance(value, bool) and value > 10**12:
        masked = mask_text(str(value))
        return value if masked == str(value) else masked
    return value


def shown(data: bytes | None, *, reveal: bool = False, mask_with: Callable[[Any], Any] = mask) -> Any:
    """Bytes as a person may look at them: JSON as JSON, text as text, anything else in hexadecimal; masked."""
    if data is None:
        return None
    keep = mask_with if not reveal else (lambda value: value)
    try:
        return keep(orjson.loads(data))
    except orjson.JSONDecodeError:
        pass
    try:
        return keep(data.decode())
    except UnicodeDecodeError:
        return f"0x{data.hex()}" if reveal else f"{len(data):,} bytes that are not text"


def mask_headers(headers: Sequence[tuple[str, bytes | None]], *, reveal: bool = False) -> list[list[Any]]:
    """Headers as name and text, in their order; secret by name or by pattern are masked."""
    return [
        [name, HIDDEN if _hides(name, value, reveal) else shown(value, reveal=reveal)]
        for name, value in headers
    ]


def _hides(name: str, value: bytes | None, reveal: bool) -> bool:
    return not reveal and value is not None and is_secret_name(name)


def _mask_field(name: Any, item: Any) -> Any:
    if item is None or isinstance(item, bool) or not is_secret_name(str(name)):
        return mask(item)
    return HIDDEN


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
