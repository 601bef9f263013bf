"""The store of a command that writes to it: made where there is none, and that is said."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from producer_core.cli import output

if TYPE_CHECKING:
    from producer_core.store import Store


def opened(path: Path | None) -> Store:
    """The store at `path`; a new one is told on standard error, for a mistyped path would make one, too."""
    from producer_core.store import Store
    from producer_core.store.paths import has_content, resolve

    place = resolve(path)
    there = has_content(place)
    store = Store.open(place)
    if not there:
        output.say(f"Created the store {place}.", err=True)
    return store
