"""Set aside the damaged bytes of a journal file and report them."""

from __future__ import annotations

import contextlib
import zlib
from collections.abc import Callable
from pathlib import Path

from producer_core._internal import private_files
from producer_core._internal.plural import plural
from producer_core.delivery.journal.frame import FrameDamage, is_torn

NoticeHandler = Callable[[str, str, str], None]
"""A function that receives a notice: kind, severity and text."""


def set_aside(path: Path, damage: FrameDamage, data: bytes, notify: NoticeHandler) -> bool:
    """Copy the damaged bytes to a file of their own and report them once. Return whether they can be cut off."""
    copy = path.with_name(f"{path.stem}-{damage.start}-{zlib.crc32(data):08x}.damaged")
    if copy.exists():
        return True
    saved = _write_copy(copy, data)
    location = f"{plural(len(data), 'byte')} of {path} from byte {damage.start:,}"
    copy_text = f"A copy is kept in {copy.name}." if saved else "The disk had no room for a copy."
    if damage.last and is_torn(data, damage.start):
        notify(
            "journal_torn",
            "warning",
            f"A crash or a power failure interrupted the last write to the journal: {location}. {copy_text}",
        )
    else:
        notify(
            "journal_damaged",
            "critical",
            f"The journal was changed or its disk is failing: {location} cannot be decoded, and the content is "
            f"lost. All other records were recovered. {copy_text}",
        )
    return saved


def _write_copy(copy: Path, data: bytes) -> bool:
    try:
        private_files.write(copy, data)
    except OSError:
        with contextlib.suppress(OSError):
            copy.unlink(missing_ok=True)
        return False
    return True
