"""The names of the person who acts, so that one person is recognized on the page, in a notebook and on a command line."""

from __future__ import annotations

import os
import pwd
import unicodedata
from collections.abc import Iterable
from pathlib import Path

import orjson

from producer_core._internal.actor import current_actor

_LOGIN_UID = Path("/proc/self/loginuid")
_NO_LOGIN = 2**32 - 1


class Identity(str):
    """A name for the audit log, with the names and groups that decide what its person may do.

    `names` select a role. `persons` are all names of the same person: two identities with a name in common are the same
    person. All are in canonical form. `account` is the name that the person cannot choose: the signed-in user, or the
    user of the system. `known` is false where anyone could act under the name: on a page without sign-in. Equality and
    hash are those of the text.
    """

    names: frozenset[str]
    persons: frozenset[str]
    groups: frozenset[str]
    account: str
    known: bool

    def __new__(
        cls,
        text: str,
        *,
        names: Iterable[str] | None = None,
        persons: Iterable[str] = (),
        groups: Iterable[str] = (),
        account: str = "",
        known: bool = True,
    ) -> Identity:
        found = super().__new__(cls, text)
        found.names = frozenset(map(canonical, (text,) if names is None else names)) - {""}
        every = {*found.names, canonical(text), *map(canonical, persons)} - {""}
        found.persons = frozenset(form for name in every for form in (name, short(name)))
        found.groups = frozenset(groups)
        found.account = account or text
        found.known = known
        return found

    def to_json(self) -> str:
        kept = {
            "text": str(self),
            "names": sorted(self.names),
            "persons": sorted(self.persons),
            "groups": sorted(self.groups),
            "account": self.account,
        }
        return orjson.dumps(kept).decode()

    @classmethod
    def from_json(cls, text: str) -> Identity:
        kept = orjson.loads(text)
        return cls(
            kept["text"],
            names=kept["names"],
            persons=kept["persons"],
            groups=kept["groups"],
            account=str(kept.get("account") or ""),
        )


def canonical(name: str) -> str:
    """Return the form in which names are compared: NFKC, without case and surrounding white space."""
    return unicodedata.normalize("NFKC", unicodedata.normalize("NFKC", name).casefold()).strip()


def short(name: str) -> str:
    """Return a canonical name without its host or domain: `ada` for `ada@example.com` and for `shop\\ada`.

    Two users of different domains can have the same short name. They then count as one person, who cannot approve.
    """
    user = name.rpartition("\\")[2].partition("@")[0].strip()
    return user or name


def identify(who: str, origin: str) -> Identity:
    """Return the identity of an actor. A name without an identity gets the names of this process's user too.

    The page knows its signed-in user. Every other origin runs as a user of the system, who alone decides the role of a
    command, because `LOGNAME` and `USER` can be set by anyone. A notebook's hub and a Python program know their users.
    """
    if isinstance(who, Identity):
        return who
    if origin == "dashboard":
        return Identity(who)
    user = system_user()
    names = (user,) if origin == "cli" else (who, short(canonical(who)), user)
    return Identity(who, names=names, persons=_other_names(), account=user)


def system_identity(text: str = "") -> Identity:
    """Return the identity of this process's user, as a command that approves needs it.

    Only the system decides its role: `LOGNAME`, `USER` and JUPYTERHUB_USER can be set by anyone. These, the user before
    `sudo`, and the user who logged in are further names of the same person.
    """
    user = system_user()
    return Identity(text or user, names=(user,), persons=_other_names(), account=user)


def system_user() -> str:
    """Return the name of the effective user by its id, whatever the environment says."""
    return _name_of(os.geteuid())


def _other_names() -> tuple[str, ...]:
    found = [current_actor(), _name_of(os.getuid()), os.environ.get("SUDO_USER", ""), _logged_in()]
    return tuple(filter(None, found))


def _logged_in() -> str:
    """Return the user who logged in, which `su` and `sudo` do not change; an empty string if the system does not know."""
    try:
        uid = int(_LOGIN_UID.read_text())
    except (OSError, ValueError):
        return ""
    return "" if uid == _NO_LOGIN else _name_of(uid)


def _name_of(uid: int) -> str:
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return f"uid-{uid}"
