"""Export dead letters to files atomically, and import them without loss."""

from producer_core.dlq.files.exporter import export
from producer_core.dlq.files.importer import ImportSummary, import_, manifest_of
from producer_core.dlq.files.manifest import FORMATS, Format, Manifest
from producer_core.dlq.files.reader import RejectedRecord

__all__ = [
    "FORMATS",
    "Format",
    "ImportSummary",
    "Manifest",
    "RejectedRecord",
    "export",
    "import_",
    "manifest_of",
]
