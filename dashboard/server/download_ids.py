"""Let the download buttons of a live page work at any moment."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Any


def keep_download_ids() -> None:
    """Let a download button keep its id when the page draws it again. A second call does nothing.

    Streamlit gives the button a new id in each run and forgets the one before. A live page runs every second, so a click
    before the browser has the new id would fail with "Failed to generate file for download".
    """
    from streamlit.runtime.media_file_manager import MediaFileManager

    add = MediaFileManager.add_deferred
    if not hasattr(add, "__wrapped__"):
        MediaFileManager.add_deferred = _with_earlier_id(add)


def _with_earlier_id(add: Callable[..., str]) -> Callable[..., str]:
    @wraps(add)
    def add_deferred(
        manager: Any, content: Any, mimetype: str | None, coordinates: str, *more: Any, **named: Any
    ) -> str:
        new = add(manager, content, mimetype, coordinates, *more, **named)
        with manager._lock:
            entries = manager._deferred_callables
            added = entries[new]
            session = added["session_id"]
            own = manager._deferred_ids_by_session[session]
            earlier = [one for one in own if one != new and _is_same_button(entries.get(one), added)]
            if not earlier:
                return new
            kept: str = earlier[0]
            entries[kept] = entries.pop(new)
            own.discard(new)
            manager._files_by_session_and_coord[session][coordinates] = kept
        return kept

    return add_deferred


def _is_same_button(entry: Any, added: Any) -> bool:
    return bool(entry and entry["element_id"] and entry["element_id"] == added["element_id"])
