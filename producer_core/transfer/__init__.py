"""Dead letters in files: written whole or not at all, and taken in again without loss."""

from producer_core.transfer.exporting import export
from producer_core.transfer.importing import Imported, import_, manifest_of
from producer_core.transfer.manifest import FORMATS, Format, Manifest
from producer_core.transfer.reading import Refused

__all__ = ["FORMATS", "Format", "Imported", "Manifest", "Refused", "export", "import_", "manifest_of"]
