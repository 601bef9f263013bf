"""Import the dead letters of a raw bundle into a store, from which they can be replayed."""

from __future__ import annotations

from typing import TYPE_CHECKING

from producer_core.dlq import files
from producer_core.errors import TransferError

if TYPE_CHECKING:
    from producer_core.diagnostics.incident.bundle import IncidentBundle
    from producer_core.dlq.files.importer import ImportSummary
    from producer_core.dlq.files.manifest import Manifest
    from producer_core.store import Store


def import_incident(
    store: Store, bundle: IncidentBundle, *, who: str, origin: str, dry_run: bool = False
) -> ImportSummary:
    """Import the dead letters of a raw bundle, as `dlq import` does. Raise TransferError for a masked bundle."""
    return files.import_(store, bundle.dead_letters, who=who, origin=origin, dry_run=dry_run)


def describe(bundle: IncidentBundle) -> Manifest:
    """Return the manifest of the dead letters that an import reads. Raise TransferError for a masked bundle."""
    found = files.manifest_of(bundle.dead_letters)
    if found is None:  # the bundle always has one
        raise TransferError(f"{bundle.path} has no manifest of its dead letters.")
    return found
