"""Import the dead letters of a raw bundle into a store, from which they can be replayed."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from producer_core.diagnostics.incident.bundle import IncidentBundle
from producer_core.diagnostics.incident.manifest import DEAD_LETTERS
from producer_core.dlq import files
from producer_core.errors import TransferError

if TYPE_CHECKING:
    from producer_core.dlq.files.importer import ImportSummary
    from producer_core.store import Store


def import_incident(
    store: Store, source: Path | str, *, who: str, origin: str, dry_run: bool = False
) -> ImportSummary:
    """Import the dead letters of a raw bundle, as `dlq import` does. Raise TransferError for a masked bundle."""
    with IncidentBundle(source) as bundle:
        check_raw(bundle)
        return files.import_(store, bundle.folder / DEAD_LETTERS, who=who, origin=origin, dry_run=dry_run)


def check_raw(bundle: IncidentBundle) -> None:
    """Raise TransferError for a masked bundle."""
    if bundle.manifest.masked:
        raise TransferError(
            f"{bundle.path} is masked, so its dead letters cannot be imported.",
            fix="Export the incident again with --raw.",
        )
