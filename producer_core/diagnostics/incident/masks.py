"""Mask the contents of a bundle, so that neither a masked value nor a hash of it remains.

Every text is masked, except ids and states, which have a fixed form. Keys, values and headers get their displayed form. An
error fingerprint is a hash of an error text: where the text has a masked part, a random number replaces the fingerprint.
"""

from __future__ import annotations

import re
import secrets
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import orjson

from producer_core._internal.masking import (
    display_key,
    display_value,
    is_hidden,
    mask,
    mask_headers,
    mask_text,
)
from producer_core._internal.secret_patterns import HIDDEN
from producer_core.dlq.codec import read_attempts, read_headers, write_attempts, write_headers
from producer_core.events import Attempt
from producer_core.kafka.classify import fingerprint

UNMASKED = frozenset(
    {
        *("message_id", "producer_id", "operation_id", "cluster_id", "audit_id", "fingerprint"),
        *("state", "verdict", "kind", "severity", "status", "rule", "what", "delivery", "flag", "feature"),
    }
)
"""The columns with text that this product writes: ids, and words of a fixed set."""

SELECTIONS = frozenset({"selection"})
"""The columns with the filters that operators chose, as JSON."""

JSON_VALUES = frozenset({("settings", "value")})
"""The columns with any JSON value, which must stay JSON."""

BYTES = frozenset({("dead_letters", "key"), ("dead_letter_bodies", "value")})
"""The columns with bytes of messages."""

_FINGERPRINT = re.compile(r"(?<![0-9a-f])[0-9a-f]{12}(?![0-9a-f])")
_BODY_NAMES, _KEY_NAMES = ("body", "text"), ("key", "keys")

Body = tuple[str, bytes | None, str, int | None, str]
"""A row of `dead_letter_bodies`."""


def form_of(table: str, column: str) -> str:
    """Return the form of the texts in a column: text, selection or json."""
    if column in SELECTIONS:
        return "selection"
    return "json" if (table, column) in JSON_VALUES else "text"


class Fingerprints:
    """Replaces the fingerprints of error texts that have a masked part. Others stay, so that links to groups work."""

    def __init__(self, errors: Iterable[tuple[str, str, str]]) -> None:
        """Take each fingerprint with an error code and an error text of it, as often as the store has them."""
        self._kept: set[str] = set()
        revealing: set[str] = set()
        for known, code, text in errors:
            harmless = fingerprint(code, text) == known and mask_text(text) == text
            (self._kept if harmless else revealing).add(known)
        self._kept -= revealing
        self._replaced = {known: secrets.token_hex(6) for known in sorted(revealing)}

    @property
    def replaced(self) -> Mapping[str, str]:
        return self._replaced

    def known_or_random(self, text: str) -> str:
        """Return a fingerprint for the bundle. One without any dead letter may come from a text with a masked part."""
        return text if text in self._kept else self._replaced.setdefault(text, secrets.token_hex(6))

    def within(self, text: str) -> str:
        """Return a text with the fingerprints in it replaced."""
        return _FINGERPRINT.sub(lambda found: self._replaced.get(found[0], found[0]), text)


def text_masker(fingerprints: Fingerprints) -> Callable[[str], str]:
    """Return the function that masks the texts of a bundle."""
    return lambda text: mask_text(fingerprints.within(text))


def selection_masker(fingerprints: Fingerprints) -> Callable[[str], str]:
    """Return the function that masks the filters of a bundle. A filter may quote a key, a value or an error text."""
    masked_text = text_masker(fingerprints)

    def masked(text: str) -> str:
        try:
            selection = orjson.loads(text)
        except orjson.JSONDecodeError:
            return masked_text(text)
        if not isinstance(selection, dict):
            return orjson.dumps(mask(selection)).decode()
        return orjson.dumps(dict(_parts(selection, fingerprints))).decode()

    return masked


def masked_json(text: str) -> str:
    """Return a JSON value with its texts masked."""
    value = orjson.loads(text)
    shown = mask(value)
    return text if shown == value else orjson.dumps(shown).decode()


def masked_key(key: bytes) -> bytes:
    """Return a key in its displayed form."""
    return (display_key(key) or "").encode()


def masked_body(row: Body) -> Body:
    """Return a row of `dead_letter_bodies` in its displayed form."""
    message_id, value, headers, timestamp_ms, attempts = row
    shown = [(name, _as_bytes(item)) for name, item in mask_headers(read_headers(headers))]
    failed = [
        Attempt(one.failed_at, mask_text(one.code), mask_text(one.text)) for one in read_attempts(attempts)
    ]
    masked = None if value is None else _as_bytes(display_value(value))
    return message_id, masked, write_headers(tuple(shown)), timestamp_ms, write_attempts(failed)


def _parts(selection: Mapping[str, Any], fingerprints: Fingerprints) -> Iterable[tuple[str, Any]]:
    for name, item in selection.items():
        if name == "group" and isinstance(item, str):
            yield name, fingerprints.known_or_random(item)
        elif (name in _KEY_NAMES and is_hidden("keys")) or (name in _BODY_NAMES and is_hidden("values")):
            yield name, HIDDEN
        else:
            yield from mask({name: item}).items()


def _as_bytes(shown: Any) -> bytes | None:
    """Return bytes that are displayed as `shown`."""
    if shown is None:
        return None
    return shown.encode() if isinstance(shown, str) and not _is_json(shown) else orjson.dumps(shown)


def _is_json(text: str) -> bool:
    try:
        orjson.loads(text)
    except orjson.JSONDecodeError:
        return False
    return True
