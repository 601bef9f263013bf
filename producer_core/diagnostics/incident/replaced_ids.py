"""Replace names and ids that would reveal contents, by one mapping per export, so that equal ones stay equal.

- The fingerprint of an error is a hash of its text. It stays if all its texts in the bundle have no masked part.
- The id of an alert is a hash of its subject. A masked subject gets the id of its masked form.
- The session and the transactional id of `producer-core send` are hashes of the file, and the session of a dead letter
  fetched from a topic is one of the topic (UUID versions 8 and 5). Random ids of the same form replace them.
- Longer hexadecimal numbers in texts, such as the checksum of a file, are left out.
- Two names with the same masked form stay separate, because they are keys of tables.
"""

from __future__ import annotations

import re
import secrets
import uuid
from collections.abc import Callable, Iterable

from producer_core._internal.masking import mask_text
from producer_core._internal.secret_patterns import HIDDEN
from producer_core.alerts.alert_state import episode_id
from producer_core.kafka.classify import fingerprint

_UUID = r"(?P<uuid>(?<![0-9a-f])[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}(?![0-9a-f]))"
_SEND = r"(?P<send>producer-core-send-[0-9a-f]{24})"
_SHORT = r"(?P<short>(?<![0-9a-f])[0-9a-f]{12}(?![0-9a-f]))"
_LONG = r"(?P<long>(?<![0-9A-Fa-f])[0-9A-Fa-f]{24,}(?![0-9A-Fa-f]))"
_IN_TEXTS = re.compile(f"{_UUID}|{_SEND}|{_SHORT}|{_LONG}")
_HASHES = ("5", "8")
"""The versions of UUIDs that are hashes."""
_NOT_DECIMAL = frozenset("abcdef")


class ReplacedIds:
    """The names and ids of one export. Add everything that may contain ids before the first one is replaced."""

    def __init__(self) -> None:
        self._kept: set[str] = set()
        self._short: dict[str, str] = {}
        self._random: dict[str, str] = {}
        self._names: dict[str, str] = {}
        self._taken: set[str] = set()

    def add_errors(self, errors: Iterable[tuple[str, str, str]]) -> None:
        """Add each fingerprint with its error code and an error text, as often as the bundle has them."""
        for known, code, text in errors:
            harmless = fingerprint(code, text) == known and mask_text(text) == text
            if harmless and known not in self._short:
                self._kept.add(known)
            elif not harmless:
                self._kept.discard(known)
                self.replaced(known)

    def add_alerts(self, alerts: Iterable[tuple[str, str, str, float]]) -> None:
        """Add each alert's id with its rule, subject and start."""
        for known, rule, subject, started_at in alerts:
            if (masked := self.name(subject)) == subject:
                self._kept.add(known)
            else:
                self._short[known] = episode_id(rule, masked, started_at)

    def keep(self, names: Iterable[str]) -> None:
        """Add names that stay, although they may look like fingerprints, as the hosts of containers do."""
        self._kept |= {name for name in names if name not in self._short}

    def replaced(self, short: str) -> str:
        """Return a fingerprint or the id of an alert for the bundle. An unknown one may come from a masked text."""
        return short if short in self._kept else self._short.setdefault(short, secrets.token_hex(6))

    def name(self, text: str) -> str:
        """Return the masked form of a name, which no other name has."""
        if (known := self._names.get(text)) is not None:
            return known
        masked = mask_text(self.in_name(text))
        if masked == text and "*" not in text:
            return text
        name, number = masked, 1
        while name in self._taken:
            number += 1
            name = f"{masked} ({number})"
        self._taken.add(name)
        self._names[text] = name
        return name

    def in_name(self, text: str) -> str:
        """Return an id, or the name of a topic, client or host, with the known ids in it replaced."""
        return _IN_TEXTS.sub(lambda found: found[0] if found["long"] else self._id(found, self._known), text)

    def in_error(self, text: str) -> str:
        """Return an error text with the known ids in it replaced, and without longer hashes."""
        return _IN_TEXTS.sub(lambda found: self._id(found, self._known), text)

    def in_text(self, text: str) -> str:
        """Return another text with all ids in it replaced, and without longer hashes."""
        return _IN_TEXTS.sub(lambda found: self._id(found, self._any), text)

    def _id(self, found: re.Match[str], short: Callable[[str], str]) -> str:
        if found["uuid"]:
            return self._once(found[0], _random_uuid) if found[0][14] in _HASHES else found[0]
        if found["send"]:
            return self._once(found[0], _random_send)
        return short(found[0]) if found["short"] else HIDDEN

    def _once(self, known: str, make: Callable[[str], str]) -> str:
        if known not in self._random:
            self._random[known] = make(known)
        return self._random[known]

    def _known(self, short: str) -> str:
        return self._short.get(short, short)

    def _any(self, short: str) -> str:
        """A decimal number is more likely an amount or a time than an unknown fingerprint."""
        return self.replaced(short) if short in self._short or _NOT_DECIMAL & {*short} else short


def _random_uuid(known: str) -> str:
    """Return a random UUID of the same version."""
    raw = bytearray(secrets.token_bytes(16))
    raw[6] = int(known[14]) << 4 | raw[6] & 0x0F
    raw[8] = 0x80 | raw[8] & 0x3F
    return str(uuid.UUID(bytes=bytes(raw)))


def _random_send(known: str) -> str:
    return f"{known[:-24]}{secrets.token_hex(12)}"
