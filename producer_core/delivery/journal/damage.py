"""Damage: bytes of a journal's file that are no record, kept aside for a person and told."""

from __future__ import annotations

import contextlib
import zlib
from collections.abc import Callable
from pathlib import Path

from producer_core._internal import private_files
from producer_core.delivery.journal.frame import FrameDamage, torn

Say = Callable[[str, str, str], None]


def tell(path: Path, damage: FrameDamage, data: bytes, say: Say) -> bool:
    """Keep the bytes aside and say so, once; whether they are kept, so that they may be cut off."""
    aside = path.with_name(f"{path.stem}-{damage.start}-{zlib.crc32(data):08x}.damaged")
    if aside.exists():
        return True
    kept = _keep(aside, data)
    place = f"{len(data):,} bytes of {path} from byte {damage.start:,}"
    where = f"They are kept in {aside.name}." if kept else "The disk had no room to keep them aside."
    if damage.last and torn(data):
        say(
            "journal_torn",
            "warning",
            f"The last write to the journal had not ended when its process or machine did: {place}. {where}",
        )
    else:
        say(
            "journal_damaged",
            "critical",
            f"The journal was changed or its disk is failing: {place} are no record any more, and what they "
            f"said is lost; everything else was recovered. {where}",
        )
    return kept


def _keep(aside: Path, data: bytes) -> bool:
    try:
        private_files.write(aside, data)
    except OSError:
        with contextlib.suppress(OSError):
            aside.unlink(missing_ok=True)
        return False
    return True
