"""Export a time range as a masked incident bundle, as one download. The audit log records it."""

from __future__ import annotations

import shlex
import tempfile
import time
from datetime import UTC, datetime
from pathlib import Path

from producer_core.dashboard.actions.exports import ExportFile
from producer_core.dashboard.actions.result import ORIGIN
from producer_core.diagnostics.doctor import check_locally
from producer_core.diagnostics.incident import IncidentWindow, export_incident
from producer_core.errors import TransferError
from producer_core.store import Store

MAX_STORE = 1 << 30
"""Bytes of the largest store that a download copies. Writers wait during the copy."""
MAX_BYTES = 64 << 20
"""Bytes of the largest download, which the server holds in memory. The command line has no limit."""


def export(store: Store, window: IncidentWindow, *, who: str) -> ExportFile:
    """Return the bundle. Raise TransferError if the store or the bundle is too large.

    The caller has checked that `who` may act when it drew the button, because a download runs outside any session.
    """
    if (size := store.path.stat().st_size) > MAX_STORE:
        raise _too_large(
            f"The store has {size >> 20:,} MiB; a download copies at most {MAX_STORE >> 20:,} MiB."
        )
    with tempfile.TemporaryDirectory(prefix="producer-core-") as folder:
        target = Path(folder) / name(window)
        export_incident(
            store, target, window, who=who, origin=ORIGIN, findings=check_locally(store.path, time.time())
        )
        if (size := target.stat().st_size) > MAX_BYTES:
            raise _too_large(
                f"The bundle has {size >> 20:,} MiB; a download has at most {MAX_BYTES >> 20} MiB."
            )
        return ExportFile(target.name, target.read_bytes(), "")


def name(window: IncidentWindow) -> str:
    """Return the name of the file: the start of the range in UTC."""
    return f"incident-{datetime.fromtimestamp(window.since, UTC):%Y%m%d-%H%M}.zip"


def command(store: Path, window: IncidentWindow) -> str:
    """Return the command that exports the same range."""
    since, until = (
        f"{datetime.fromtimestamp(at, UTC):%Y-%m-%dT%H:%M:%SZ}" for at in (window.since, window.until)
    )
    return shlex.join(
        [
            *("producer-core", "incident", "export", f"--since={since}", f"--until={until}"),
            *(f"--output={name(window)}", f"--store={store}"),
        ]
    )


def _too_large(text: str) -> TransferError:
    return TransferError(text, fix="Use the command below, which has no limit.")
