"""Create files and directories that only their owner can read and write, whatever the umask."""

from __future__ import annotations

import os
from pathlib import Path

FOLDER, FILE = 0o700, 0o600


def make_folder(folder: Path) -> list[Path]:
    """Create a directory and its missing parents with mode 0700, and return the new ones.

    `Path.mkdir` would create the parents with the umask. Existing directories keep their mode: they may be shared on
    purpose.
    """
    missing = [one for one in (*reversed(folder.parents), folder) if not one.is_dir()]
    for one in missing:
        one.mkdir(mode=FOLDER, exist_ok=True)
    return missing


def sync_file(path: Path) -> None:
    """Make the content of a file durable."""
    with path.open("rb") as file:
        os.fsync(file.fileno())


def sync_folder(folder: Path) -> None:
    """Make the creation and deletion of files in a directory durable."""
    handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def own_folder(folder: Path) -> None:
    """Create a directory for this program only. Remove other users' permissions if it exists.

    Raise OSError if the directory belongs to another user, whose code must not be executed.
    """
    make_folder(folder)
    if folder.stat().st_mode & 0o077:
        folder.chmod(FOLDER)


def write(path: Path, data: bytes | str) -> None:
    """Write a new file, or replace the content of an existing one, with mode 0600."""
    raw = data.encode() if isinstance(data, str) else data
    handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, FILE)
    with os.fdopen(handle, "wb") as file:
        os.fchmod(handle, FILE)
        file.write(raw)
