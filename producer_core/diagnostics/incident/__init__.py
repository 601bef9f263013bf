"""Export a time range of a store to one file, an incident bundle, and open such a file read-only."""

from producer_core.diagnostics.incident.bundle import IncidentBundle, is_bundle
from producer_core.diagnostics.incident.exporter import export_incident
from producer_core.diagnostics.incident.import_dead_letters import import_incident
from producer_core.diagnostics.incident.manifest import BundleManifest
from producer_core.diagnostics.incident.window import IncidentWindow

__all__ = [
    "BundleManifest",
    "IncidentBundle",
    "IncidentWindow",
    "export_incident",
    "import_incident",
    "is_bundle",
]
