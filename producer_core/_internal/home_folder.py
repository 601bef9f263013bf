"""Expand `~`, also where there is no home directory: in a container under an arbitrary user id."""

from __future__ import annotations

from pathlib import Path


def expand_user(path: Path | str) -> Path:
    """Return the path with `~` replaced by the home directory, or by `/` if there is none, as container runtimes set HOME."""
    given = Path(path)
    try:
        return given.expanduser()
    except RuntimeError:
        return Path("/", *given.parts[1:]) if given.parts[0] == "~" else given
