"""A selection of dead letters, as one value that lists, counts, replays and clears the same ones."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import MISSING, dataclass, fields
from typing import Any

from producer_core.dlq.by_id import among
from producer_core.errors import ConfigError
from producer_core.events import DeadLetter

STATES = ("dead", "replaying", "replayed", "landed", "archived", "purged")
_ANY = "any"
_COLUMNS = {
    "topic": "topic",
    "group": "fingerprint",
    "code": "code",
    "verdict": "verdict",
    "state": "state",
    "message_id": "message_id",
    "cluster_id": "cluster_id",
    "producer_id": "producer_id",
}


@dataclass(frozen=True)
class DeadLetterFilter:
    """Every field restricts; one that is left out does not. «All» is what this matches now.

    `group` is a fingerprint, `since` and `until` bound when a letter last died ([since, until), seconds
    since 1970), `key` is text compared whole, `text` is looked for in the error text, without regard to
    case. `state` None means any state; the default selects those that wait for a decision.
    """

    topic: str | None = None
    group: str | None = None
    code: str | None = None
    verdict: str | None = None
    state: str | None = "dead"
    since: float | None = None
    until: float | None = None
    key: str | None = None
    message_id: str | None = None
    text: str | None = None
    cluster_id: str | None = None
    producer_id: str | None = None
    ids: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if self.state is not None and self.state not in STATES:
            raise ConfigError(
                f"There is no state {self.state!r}.", fix=f"Use one of {', '.join(STATES)}, or any."
            )

    def to_query(self) -> dict[str, str]:
        """As the parameters of a URL or of a command; what is at its default is left out."""
        query: dict[str, str] = {}
        for field in fields(self):
            value = getattr(self, field.name)
            if value != field.default or field.default is MISSING:
                query[field.name] = _as_text(value)
        return query

    @classmethod
    def from_query(cls, mapping: Mapping[str, str]) -> DeadLetterFilter:
        """What `to_query` wrote; other parameters of the URL are not ours and are left alone."""
        given = {field.name: mapping[field.name] for field in fields(cls) if mapping.get(field.name)}
        return cls(**{name: _from_text(name, text) for name, text in given.items()})

    def where(self) -> tuple[str, list[Any]]:
        """An SQL condition over `dead_letters`, and its parameters in order."""
        tests = [
            (f"{column} = ?", value)
            for name, column in _COLUMNS.items()
            if (value := getattr(self, name)) is not None
        ]
        tests += [("failed_at >= ?", self.since)] if self.since is not None else []
        tests += [("failed_at < ?", self.until)] if self.until is not None else []
        tests += [("key = ?", self.key.encode())] if self.key is not None else []
        tests += [("contains(lower(error_text), lower(?))", self.text)] if self.text is not None else []
        condition, parameters = (
            " AND ".join(test for test, _ in tests) or "true",
            [value for _, value in tests],
        )
        if self.ids:
            chosen, ids = among(self.ids)
            condition, parameters = f"{condition} AND {chosen}", [*parameters, *ids]
        return condition, parameters

    def matches(self, letter: DeadLetter) -> bool:
        """The same question as `where`, of a letter in memory."""
        return (
            all(
                getattr(letter, column) == value
                for name, column in _COLUMNS.items()
                if (value := getattr(self, name)) is not None
            )
            and (self.since is None or letter.failed_at >= self.since)
            and (self.until is None or letter.failed_at < self.until)
            and (self.key is None or letter.key == self.key.encode())
            and (self.text is None or self.text.lower() in letter.error_text.lower())
            and (not self.ids or letter.message_id in self.ids)
        )


def _as_text(value: Any) -> str:
    if value is None:
        return _ANY
    return ",".join(value) if isinstance(value, tuple) else str(value)


def _from_text(name: str, text: str) -> Any:
    if name in ("since", "until"):
        return _number(name, text)
    if name == "ids":
        return tuple(filter(None, text.split(",")))
    return None if name == "state" and text == _ANY else text


def _number(name: str, text: str) -> float:
    try:
        return float(text)
    except ValueError as error:
        raise ConfigError(f"{name}={text!r} is not a time.", fix="Give seconds since 1970.") from error
