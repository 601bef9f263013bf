"""Mask the rows of a bundle, so that neither a masked value nor a hash of it remains.

Every text is masked, except words of a fixed set. Keys, values and headers get their displayed form.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import lru_cache
from typing import Any

import orjson

from producer_core._internal.decision_objective import EVERY_TOPIC
from producer_core._internal.decision_objective import SETTING as OBJECTIVES
from producer_core._internal.masking import (
    display_key,
    display_value,
    is_secret_name,
    mask,
    mask_headers,
    mask_text,
)
from producer_core._internal.removed_clusters import SETTING as REMOVED_CLUSTERS
from producer_core._internal.secret_patterns import HIDDEN
from producer_core.diagnostics.incident.replaced_ids import ReplacedIds
from producer_core.diagnostics.incident.table_columns import NO_EFFECT, columns, is_effect
from producer_core.dlq.codec import read_attempts, read_headers, write_attempts, write_headers
from producer_core.dlq.filter import parse_bytes
from producer_core.dlq.revisions.patch import Patch
from producer_core.dlq.revisions.revision_text import displayed_patch
from producer_core.events import Attempt
from producer_core.store.expired_revisions import EMPTY_PATCH

WORDS = frozenset(
    {
        *("state", "verdict", "kind", "severity", "status", "rule", "what", "delivery", "flag"),
        "codec",
    }
)
"""The columns with words of a fixed set, which this product writes."""

UNMASKED = frozenset({"message_id", "operation_id", "audit_id", "request_id", "replaced_id"})
"""The columns with ids of a fixed form. Only ids that are hashes are replaced in them."""

NAMES = frozenset(
    {
        *("producer_id", "cluster_id", "topic", "client_id", "application", "host", "address", "subject"),
        *("code", "name", "route", "application_version", "fixed_in", "old_versions", "back_in"),
    }
)
"""The columns with names, which may contain a long hexadecimal number that is not a hash of a masked value."""

SHORT_IDS = frozenset({"fingerprint", "alert_id"})
"""The columns with hashes of texts or names."""

SELECTIONS = frozenset({"selection"})
"""The columns with the filters that operators chose, as JSON."""

HASHES = frozenset({("replay_requests", "plan_hash"), ("replay_requests", "content_hash")})
"""The columns with hashes of contents."""

IDENTITIES = frozenset({("replay_requests", "identity"), ("replay_requests", "decided_identity")})
"""The columns with all names of a person. One of them is the masked part of an e-mail address."""

FREE_TEXTS = frozenset({("replay_requests", "rule")})
"""The columns with free texts in spite of their name."""

BYTES = frozenset(
    {
        *(("dead_letters", "key"), ("dead_letter_bodies", "value")),
        *(("dead_letter_revisions", "key"), ("dead_letter_revisions", "value")),
    }
)
"""The columns with bytes of messages."""

_TERMS = ("body", "text", "sha256")
"""The parts of a filter that quote contents: the name that makes a value secret is not beside it."""
_KEYS = ("key", "keys")
_SHORT_IDS = ("group", "alert_id")
_NAMES = NAMES | {"cluster_or_unknown", "application_or_unnamed"}
_FINGERPRINT, _SHORT_LENGTH = "fingerprint", 12
_PLACE = ("partition", "landed_partition", "landed_offset")
_CACHED_TEXTS, _LONGEST_CACHED = 50_000, 500

Body = tuple[str, bytes | None, str, int | None, str]
"""A row of `dead_letter_bodies`."""
Mask = Callable[[Any], Any]


class Masks:
    """Masks the rows of one export."""

    def __init__(self, ids: ReplacedIds) -> None:
        self._ids = ids
        self._name = _cached(ids.name)
        self._text = _cached(lambda text: mask_text(ids.in_text(text)))
        self._error = _cached(lambda text: mask_text(ids.in_error(text)))

    def rows(self, table: str, rows: Iterable[Sequence[Any]]) -> Iterator[Sequence[Any]]:
        """Yield the masked rows, which have the values of all columns in order."""
        if table == "dead_letter_bodies":
            yield from (self.body(*row) for row in rows)
            return
        names = [column.name for column in columns()[table]]
        if table == "settings":
            yield from (self._setting(dict(zip(names, row, strict=True))) for row in rows)
            return
        steps = [self._step(table, column.name, column.type) for column in columns()[table]]
        place = [names.index(name) for name in _PLACE] if table == "dead_letters" else []
        key = names.index("key") if place else 0
        for row in rows:
            masked = [
                value if value is None or step is None else step(value)
                for value, step in zip(row, steps, strict=True)
            ]
            if place and masked[key] != row[key]:
                for index in place:  # the partition is a hash of the key, and the offset leads to it
                    masked[index] = None
            yield masked

    def body(
        self, message_id: str, value: bytes | None, headers: str, timestamp_ms: int | None, attempts: str
    ) -> Body:
        """Return a row of `dead_letter_bodies` in its displayed form. Damaged headers or attempts hide the whole row."""
        message_id = self._ids.in_name(message_id)
        try:
            shown = mask_headers(read_headers(headers))
            failed = [
                Attempt(one.failed_at, self._name(one.code), self._error(one.text))
                for one in read_attempts(attempts)
            ]
        except (ValueError, TypeError):
            return message_id, HIDDEN.encode(), "[]", timestamp_ms, "[]"
        named = write_headers(tuple((name, _as_bytes(self._header(name, item))) for name, item in shown))
        return message_id, masked_value(value), named, timestamp_ms, write_attempts(failed)

    def text(self, text: str) -> str:
        """Return a text with its secrets and hashes replaced."""
        return self._text(text)

    def selection(self, text: str) -> str:
        """Return a filter without what it quotes of a key, a value or an error text."""
        try:
            return orjson.dumps(self._part("", orjson.loads(text))).decode()
        except orjson.JSONDecodeError:
            return self._text(text)

    def _step(self, table: str, name: str, type_: str) -> Mask | None:
        """Return the function for the values of a column."""
        place = table, name
        if place in HASHES:
            return lambda value: ""
        if place in FREE_TEXTS:
            return self._text
        if place in IDENTITIES:
            return self._identity
        if place in (("dead_letter_revisions", "patch"), ("dead_letter_revisions", "headers")):
            return self._patch if name == "patch" else self._headers
        if place == ("replay_requests", "effect"):
            return self._effect
        if place == ("dead_letter_revisions", "value"):
            return masked_value
        if name == "key_mark":  # a small hash of the key: all keys could be tried
            return lambda value: None
        if name in SHORT_IDS:
            return self._ids.replaced
        if type_ == "BLOB":
            return masked_key
        if type_ == "VARCHAR[]":
            return lambda names: [self._name(one) for one in names]
        if type_ != "VARCHAR" or name in WORDS:
            return None
        if name in UNMASKED:
            return self._ids.in_name
        if name in SELECTIONS:
            return self.selection
        if name == "error_text":
            return self._error
        return self._name if name in NAMES else self._text

    def _part(self, name: str, item: Any) -> Any:
        """Return a part of a filter with this name."""
        if item is not None and is_secret_name(name):
            return HIDDEN
        if isinstance(item, dict):
            return {self._name(one): self._part(one, value) for one, value in item.items()}
        if isinstance(item, list):
            return [self._part(name, value) for value in item]
        if not isinstance(item, str):
            return mask(item)
        if name in _TERMS:
            return HIDDEN
        if name in _KEYS:
            return masked_key(parse_bytes(item)).decode()
        if name in _SHORT_IDS:
            return self._ids.replaced(item)
        return self._name(item) if name in _NAMES else self._text(item)

    def _setting(self, row: Mapping[str, Any]) -> Sequence[Any]:
        """Return a row of `settings`. Names of topics and clusters in it are those of the other tables."""
        value = row["value"]
        if row["name"] in (OBJECTIVES, REMOVED_CLUSTERS):
            value = self._by_name(value)
        return [*{**row, "value": value}.values()]

    def _by_name(self, text: str) -> str:
        found = _parsed(text)
        if not isinstance(found, dict):
            return "{}"
        return orjson.dumps(
            {
                name if name == EVERY_TOPIC else self._name(name): _numbers(item)
                for name, item in found.items()
            }
        ).decode()

    def _identity(self, text: str) -> str:
        found = _parsed(text)
        name = found.get("text") if isinstance(found, dict) else None
        shown = self._text(name) if isinstance(name, str) else HIDDEN
        return orjson.dumps({"text": shown, "names": [], "persons": [], "groups": []}).decode()

    def _effect(self, text: str) -> str:
        if not is_effect(text):
            return NO_EFFECT
        found = orjson.loads(text)
        shown = {self._name(topic): count for topic, count in found["topics"].items()}
        return orjson.dumps({"topics": shown, "choices": self._part("", found["choices"])}).decode()

    def _patch(self, text: str) -> str:
        """Return a patch whose description is that of the original patch, which is masked."""
        try:
            shown = displayed_patch(Patch.from_json(text))
        except (ValueError, TypeError, KeyError):
            return EMPTY_PATCH
        headers = tuple((name, _as_bytes(self._header(name, item))) for name, item in shown.headers)
        return Patch(
            tuple(shown.operations), headers, shown.unset_headers,
            None if shown.key is None else shown.key.encode(), shown.schema_id,
        ).to_json()  # fmt: skip

    def _headers(self, text: str) -> str:
        try:
            shown = mask_headers(read_headers(text))
        except (ValueError, TypeError):
            return "[]"
        return write_headers(tuple((name, _as_bytes(self._header(name, item))) for name, item in shown))

    def _header(self, name: str, shown: Any) -> Any:
        """Return the displayed value of a header, which may be the id of a message or the fingerprint of an error."""
        if not isinstance(shown, str):
            return shown
        is_fingerprint = name.lower().endswith(_FINGERPRINT) and len(shown) == _SHORT_LENGTH
        return self._ids.replaced(shown) if is_fingerprint else self._ids.in_name(shown)


def short_ids(selection: str) -> Iterator[str]:
    """Yield the fingerprints and ids of alerts in a filter, at any depth."""
    try:
        parts: list[Any] = [orjson.loads(selection)]
    except orjson.JSONDecodeError:
        return
    while parts:
        part = parts.pop()
        if isinstance(part, dict):
            yield from (part[name] for name in _SHORT_IDS if isinstance(part.get(name), str))
            parts += part.values()
        elif isinstance(part, list):
            parts += part


def masked_value(value: bytes | None) -> bytes | None:
    """Return a value in its displayed form."""
    return None if value is None else _as_bytes(display_value(value))


def masked_key(key: bytes) -> bytes:
    """Return a key in its displayed form."""
    return (display_key(key) or "").encode()


def _cached(masked: Callable[[str], str]) -> Callable[[str], str]:
    """Cache short texts, which most rows repeat."""
    short = lru_cache(maxsize=_CACHED_TEXTS)(masked)
    return lambda text: short(text) if len(text) <= _LONGEST_CACHED else masked(text)


def _as_bytes(shown: Any) -> bytes | None:
    """Return bytes that are displayed as `shown`."""
    if shown is None:
        return None
    return shown.encode() if isinstance(shown, str) and not _is_json(shown) else orjson.dumps(shown)


def _parsed(text: str) -> Any:
    try:
        return orjson.loads(text)
    except orjson.JSONDecodeError:
        return None


def _numbers(item: Any) -> Any:
    """Return the numbers of a setting or of a count; nothing else is in them."""
    if isinstance(item, dict):
        return {name: one for name, one in item.items() if name in ("percent", "within") and _is_number(one)}
    return item if _is_number(item) else 0


def _is_number(item: Any) -> bool:
    return isinstance(item, int | float) and not isinstance(item, bool)


def _is_json(text: str) -> bool:
    try:
        orjson.loads(text)
    except orjson.JSONDecodeError:
        return False
    return True
