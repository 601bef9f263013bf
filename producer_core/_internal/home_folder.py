"""Expand `~`, also where there is no home directory: in a container under an arbitrary user id."""

from __future__ import annotations

import os
from pathlib import Path

from producer_core._internal import private_files
from producer_core.errors import ConfigError


def expand_user(path: Path | str) -> Path:
    """Return the path with `~` replaced by the home directory, or by `/` if there is none, as container runtimes set HOME."""
    given = Path(path)
    try:
        return given.expanduser()
    except RuntimeError:
        return Path("/", *given.parts[1:]) if given.parts[0] == "~" else given


def state_folder() -> Path:
    """Return the folder of this program in the user's state directory: $XDG_STATE_HOME, by default ~/.local/state."""
    return expand_user(os.environ.get("XDG_STATE_HOME") or "~/.local/state") / "producer-core"


def own_state_folder(name: str) -> Path:
    """Create a private folder in that folder. Raise ConfigError if it cannot be used."""
    return own_folder(state_folder() / name, "XDG_STATE_HOME")


def own_folder(folder: Path, variable: str) -> Path:
    """Create a private folder whose place the environment variable selects. Raise ConfigError if it cannot be used."""
    try:
        private_files.own_folder(folder)
    except OSError as error:
        raise ConfigError(
            f"The folder {folder} cannot be used: {error.strerror or error}.",
            fix=f"Set {variable} to a folder that this user can write.",
        ) from error
    return folder
