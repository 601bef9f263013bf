"""Opens the store for a command that writes to it, and creates it where there is none."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from producer_core.cli import output

if TYPE_CHECKING:
    from producer_core.store import Store


def opened(path: Path | None) -> Store:
    """Open the store at `path`. Report a new one on standard error, because a mistyped path creates one too."""
    from producer_core.store import Store
    from producer_core.store.paths import has_content, resolve

    file = resolve(path)
    existed = has_content(file)
    store = Store.open(file)
    if not existed:
        output.say(f"Created the store {file}.", err=True)
    return store
