"""Replace ids that are hashes of contents, by one random mapping per export, so that equal ids stay equal.

- The fingerprint of an error is a hash of its text. It stays if all its texts in the bundle have no masked part.
- The id of an alert is a hash of its subject. A masked subject gets the id of its masked form.
- The session of `producer-core send` (UUID version 8) is a hash of the file, and that of a dead letter fetched from a topic
  (version 5) is one of the topic. A random UUID of the same version replaces it.
- Longer hexadecimal numbers in texts, such as the checksum of a file or a transactional id, are left out.
"""

from __future__ import annotations

import re
import secrets
import uuid
from collections.abc import Iterable

from producer_core._internal.masking import mask_text
from producer_core._internal.secret_patterns import HIDDEN
from producer_core.alerts.alert_state import episode_id
from producer_core.kafka.classify import fingerprint

_SESSION = r"(?<![0-9a-f])[0-9a-f]{8}-[0-9a-f]{4}-[58][0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}(?![0-9a-f])"
_SHORT = r"(?<![0-9a-f])[0-9a-f]{12}(?![0-9a-f])"
_LONG = r"(?<![0-9A-Fa-f])[0-9A-Fa-f]{24,}(?![0-9A-Fa-f])"
_IN_NAMES = re.compile(f"(?P<session>{_SESSION})|(?P<short>{_SHORT})")
_IN_TEXTS = re.compile(f"{_IN_NAMES.pattern}|(?P<long>{_LONG})")


class ReplacedIds:
    """The ids of one export. Add everything that may contain ids before the first one is replaced."""

    def __init__(self) -> None:
        self._kept: set[str] = set()
        self._short: dict[str, str] = {}
        self._sessions: dict[str, str] = {}

    def add_errors(self, errors: Iterable[tuple[str, str, str]]) -> None:
        """Add each fingerprint with an error code and an error text of it, as often as the bundle has them."""
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
            if (masked := mask_text(self.in_name(subject))) == subject:
                self._kept.add(known)
            else:
                self._short[known] = episode_id(rule, masked, started_at)

    def replaced(self, short: str) -> str:
        """Return a fingerprint or the id of an alert for the bundle. An unknown one may come from a masked text."""
        return short if short in self._kept else self._short.setdefault(short, secrets.token_hex(6))

    def in_name(self, text: str) -> str:
        """Return an id, or the name of a topic, client or host, with the ids in it replaced."""
        return _IN_NAMES.sub(self._replace, text)

    def in_text(self, text: str) -> str:
        """Return a text with the ids in it replaced, and without longer hashes."""
        return _IN_TEXTS.sub(self._replace, text)

    def _replace(self, found: re.Match[str]) -> str:
        if found["session"]:
            return self._sessions.setdefault(found[0], _random_session(found[0]))
        return self._short.get(found[0], found[0]) if found["short"] else HIDDEN


def _random_session(session: str) -> str:
    """Return a random UUID of the same version."""
    raw = bytearray(secrets.token_bytes(16))
    raw[6] = int(session[14]) << 4 | raw[6] & 0x0F
    raw[8] = 0x80 | raw[8] & 0x3F
    return str(uuid.UUID(bytes=bytes(raw)))
