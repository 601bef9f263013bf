"""The approval policy: the roles of people, and the replays that need a second person.

[roles]
viewer = ["ben"]                        # may look
operator = ["ada", "group:payments"]    # may also replay, clear, silence
approver = ["grace", "group:leads"]     # may also approve requests of other people
admin = ["root"]                        # may also change the settings of the store and prune it
groups_claim = "groups"                 # the claim of the OIDC token that lists the groups

[people]
ada = ["ada@example.com", "alovelace"]  # other names of the same person

[second_person]
replays_above = 1000                    # records; the replays that one person starts within an hour count together
other_cluster = true                    # records of another cluster than the destination
expires_after_hours = 24
"""

from __future__ import annotations

import difflib
import hashlib
import re
import tomllib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from typing import Any, Literal, get_args

from producer_core._internal.identity import Identity, canonical
from producer_core._internal.plural import plural
from producer_core.errors import ConfigError

Role = Literal["viewer", "operator", "approver", "admin"]
"""Each role includes the ones before it."""
ROLES: tuple[Role, ...] = get_args(Role)

GROUP = "group:"
DEFAULT_EXPIRY_HOURS, _MOST_HOURS = 24.0, 31 * 24.0

_TABLES: Mapping[str, tuple[str, ...]] = {
    "roles": (*ROLES, "groups_claim"),
    "second_person": ("replays_above", "other_cluster", "expires_after_hours"),
}


@dataclass(frozen=True)
class ApprovalPolicy:
    """A policy, with the text that it was read from and its SHA-256 digest.

    `roles` maps a role to names, patterns with `*`, and `group:NAME`. Without operators, everyone that no other
    entry names is one. `people` maps each further name of a person to the person. `expires_after` is in seconds.
    """

    source: str
    text: str = field(repr=False)
    roles: Mapping[Role, tuple[str, ...]] = field(default_factory=dict)
    people: Mapping[str, str] = field(default_factory=dict)
    groups_claim: str = "groups"
    replays_above: int | None = None
    other_cluster: bool = False
    expires_after: float = DEFAULT_EXPIRY_HOURS * 3600

    @property
    def digest(self) -> str:
        return hashlib.sha256(self.text.encode()).hexdigest()

    @property
    def summary(self) -> str:
        """The rules in one sentence."""
        rules = []
        if self.replays_above is not None:
            rules.append(f"replays of more than {plural(self.replays_above, 'record')}")
        if self.other_cluster:
            rules.append("replays to another cluster")
        return (
            f"A second person approves {' and '.join(rules)}."
            if rules
            else "No replay needs a second person."
        )

    def role_of(self, identity: Identity) -> Role:
        """Return the role of a person: that of the most specific entry, a name before a group before a pattern.

        Of entries that are equally specific, the highest role counts.
        """
        names = identity.names | {self.people[name] for name in identity.names if name in self.people}
        best = (0, ROLES.index("viewer" if self.roles.get("operator") else "operator"))
        for rank, role in enumerate(ROLES):
            for entry in self.roles.get(role, ()):
                best = max(best, (_specificity(entry, names, identity.groups), rank))
        return ROLES[best[1]]

    def allows(self, identity: Identity, role: Role) -> bool:
        """Return whether a person has at least this role."""
        return ROLES.index(self.role_of(identity)) >= ROLES.index(role)

    def persons(self, names: Iterable[str]) -> frozenset[str]:
        """Return all names of the same person, with those that `people` adds."""
        given = frozenset(names)
        return given | {self.people[name] for name in given if name in self.people}

    def is_same_person(self, one: Identity, other: Identity) -> bool:
        return bool(self.persons(one.persons) & self.persons(other.persons))

    def approvers(self) -> str:
        """Return the entries that may approve, for messages."""
        return ", ".join((*self.roles.get("approver", ()), *self.roles.get("admin", ())))


def parse(text: str, source: str) -> ApprovalPolicy:
    """Return the policy of a TOML text. Raise ConfigError with the mistake, its field and its line."""
    return _Parser(text, source).policy()


def _specificity(entry: str, names: frozenset[str], groups: frozenset[str]) -> int:
    """Return how specifically an entry names a person: 3 by name, 2 by group, 1 by pattern, 0 not at all.

    Entry 0 with the rank of the default role must lose against any match and win against none.
    """
    if entry.startswith(GROUP):
        return 2 if entry.removeprefix(GROUP) in groups else -1
    plain = canonical(entry)
    if "*" in plain:
        return 1 if any(fnmatchcase(name, plain) for name in names) else -1
    return 3 if plain in names else -1


class _Parser:
    def __init__(self, text: str, source: str) -> None:
        self._text = text
        self._source = source

    def policy(self) -> ApprovalPolicy:
        try:
            given = tomllib.loads(self._text)
        except tomllib.TOMLDecodeError as error:
            raise ConfigError(
                f"The approval policy {self._source} is not valid TOML: {error}.", fix=_FIX
            ) from error
        self._check_names(given, ("roles", "people", "second_person"), "")
        for table in given:
            if not isinstance(given[table], dict):
                raise self._invalid("", table, "must be a table")
        roles, second = given.get("roles", {}), given.get("second_person", {})
        self._check_names(roles, _TABLES["roles"], "roles")
        self._check_names(second, _TABLES["second_person"], "second_person")
        found = ApprovalPolicy(
            self._source,
            self._text,
            roles={role: self._names(roles, "roles", role) for role in ROLES if role in roles},
            people=self._people(given.get("people", {})),
            groups_claim=self._claim(roles),
            replays_above=self._count(second),
            other_cluster=self._flag(second),
            expires_after=3600 * self._hours(second),
        )
        asks = found.replays_above is not None or found.other_cluster
        if asks and not found.approvers():
            raise self._invalid("roles", "approver", "has no name, so no request could ever be approved")
        return found

    def _check_names(self, given: Mapping[str, Any], known: Sequence[str], table: str) -> None:
        for name in given:
            if name not in known:
                close = difflib.get_close_matches(name, known, n=1)
                hint = f"did you mean {close[0]}?" if close else f"there are {', '.join(known)}"
                raise self._invalid(table, name, f"is unknown: {hint}")

    def _names(self, table: Mapping[str, Any], name: str, key: str) -> tuple[str, ...]:
        value = table[key]
        if not isinstance(value, list) or not all(isinstance(item, str) and item.strip() for item in value):
            raise self._invalid(name, key, 'must be a list of names, such as ["ada", "group:leads"]')
        return tuple(value)

    def _people(self, table: Mapping[str, Any]) -> dict[str, str]:
        found: dict[str, str] = {}
        for person in table:
            for name in (person, *self._names(table, "people", person)):
                alias = canonical(name)
                if found.setdefault(alias, canonical(person)) != canonical(person):
                    raise self._invalid("people", person, f"and {found[alias]} share the name {name!r}")
        return found

    def _claim(self, roles: Mapping[str, Any]) -> str:
        claim = roles.get("groups_claim", "groups")
        if not isinstance(claim, str) or not claim:
            raise self._invalid("roles", "groups_claim", "must be the name of a claim")
        return claim

    def _count(self, second: Mapping[str, Any]) -> int | None:
        value = second.get("replays_above")
        if value is not None and (isinstance(value, bool) or not isinstance(value, int) or value < 0):
            raise self._invalid("second_person", "replays_above", "must be a number of records, 0 or more")
        return value

    def _flag(self, second: Mapping[str, Any]) -> bool:
        value = second.get("other_cluster", False)
        if not isinstance(value, bool):
            raise self._invalid("second_person", "other_cluster", "must be true or false")
        return value

    def _hours(self, second: Mapping[str, Any]) -> float:
        value = second.get("expires_after_hours", DEFAULT_EXPIRY_HOURS)
        if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value <= _MOST_HOURS:
            raise self._invalid(
                "second_person",
                "expires_after_hours",
                f"must be a number of hours, {_MOST_HOURS:.0f} at most",
            )
        return float(value)

    def _invalid(self, table: str, key: str, problem: str) -> ConfigError:
        line = self._line_of(table, key)
        where = f"{self._source}, line {line}" if line else self._source
        return ConfigError(f"{where}: {f'{table}.{key}' if table else key} {problem}.", fix=_FIX)

    def _line_of(self, table: str, key: str) -> int:
        """Return the number of the line that sets the key, or else the one that begins its table; 0 if neither is found."""
        current, begins = "", 0
        for number, line in enumerate(self._text.splitlines(), start=1):
            if header := _HEADER.match(line):
                current = header[1].strip("\"'")
                begins = number if current == (table or key) else begins
            found = _KEY.match(line)
            if found is not None and current == table and found[1] == key:
                return number
        return begins


_HEADER = re.compile(r"\s*\[+\s*([^\]]+?)\s*\]+")
_KEY = re.compile(r"""\s*["']?([^"'=\[\s]+)["']?\s*=""")
_FIX = "Correct the file; until then no replay can be started."
