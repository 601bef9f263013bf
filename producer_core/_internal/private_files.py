"""Private files and folders: readable and writable by their owner only, whatever the umask is."""

from __future__ import annotations

import os
from pathlib import Path

FOLDER, FILE = 0o700, 0o600


def make_folder(folder: Path) -> list[Path]:
    """Make a folder and its missing parents, each with 0700 (`Path.mkdir` makes the parents with the umask).

    Folders that exist keep their mode: they may be shared on purpose. Return those that were made.
    """
    missing = [one for one in (*reversed(folder.parents), folder) if not one.is_dir()]
    for one in missing:
        one.mkdir(mode=FOLDER, exist_ok=True)
    return missing


def sync_folder(folder: Path) -> None:
    """Make the names of new and deleted files durable."""
    handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def own_folder(folder: Path) -> None:
    """Make a folder that only this program uses, and take the rights of others away where it exists.

    OSError where the folder belongs to another user, for then its code is not ours to execute.
    """
    make_folder(folder)
    if folder.stat().st_mode & 0o077:
        folder.chmod(FOLDER)


def write(path: Path, data: bytes | str) -> None:
    """Write a new file, or replace the content of an old one, with 0600."""
    raw = data.encode() if isinstance(data, str) else data
    handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, FILE)
    with os.fdopen(handle, "wb") as file:
        os.fchmod(handle, FILE)
        file.write(raw)
