"""Create the in-memory DuckDB instance to which a store's file is attached."""

from __future__ import annotations

from pathlib import Path

import duckdb


def create_instance(path: Path) -> duckdb.DuckDBPyConnection:
    """Create an instance that runs a checkpoint only when told to, because each one needs an undo log."""
    instance = duckdb.connect(
        ":memory:",
        config={
            "threads": 1,  # no background threads: cheap to keep, and safe to fork
            "memory_limit": "1GB",
            "temp_directory": str(path.with_name(path.name + ".tmp")),
            "autoinstall_known_extensions": False,
            "autoload_known_extensions": False,
            "checkpoint_threshold": "1TB",
        },
    )
    instance.execute("PRAGMA disable_checkpoint_on_shutdown")
    return instance
