"""Give dead letters of a spill file, whose lines have no application, the application of their producer."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from producer_core.events import DeadLetter
    from producer_core.store import Store


class Application(NamedTuple):
    """The name and the version of an application; empty if unknown."""

    name: str
    version: str


def with_applications(
    store: Store, dead_letters: Iterable[DeadLetter], *, known: Mapping[str, Application]
) -> list[DeadLetter]:
    """Return the dead letters with the applications of their producers, which the store knows if `known` does not."""
    spilled = list(dead_letters)
    unknown = {one.producer_id for one in spilled} - known.keys()
    rows = store.rows("producer_applications", producers=sorted(unknown)) if unknown else []
    found = {row["producer_id"]: Application(row["application"], row["version"]) for row in rows}
    return [_with_application(one, {**found, **known}.get(one.producer_id)) for one in spilled]


def _with_application(dead_letter: DeadLetter, application: Application | None) -> DeadLetter:
    if application is None:
        return dead_letter
    return replace(
        dead_letter,
        application=dead_letter.application or application.name,
        application_version=dead_letter.application_version or application.version,
    )
