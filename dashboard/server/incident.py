"""Recognize the store of an incident bundle, which the server and the pages only read."""

from __future__ import annotations

from pathlib import Path

from producer_core._internal import work_folder
from producer_core.errors import ProducerError
from producer_core.store import Store

READ_ONLY = "This is an incident bundle. It is read-only."


def is_incident(path: Path) -> bool:
    """Return whether the store at the path belongs to an incident bundle; False if there is no store yet.

    The store of a bundle is in a work folder, which tells even if the store cannot be opened.
    """
    if path.parent.name.startswith(work_folder.PREFIX):
        return True
    try:
        store = Store.open(path, create=False)
    except ProducerError:
        return False
    try:
        return store.is_incident
    finally:
        store.close()
