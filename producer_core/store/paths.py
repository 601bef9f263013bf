"""Locate a store's file, check it, and move or copy it."""

from __future__ import annotations

import contextlib
import os
import shutil
from collections.abc import Iterator
from pathlib import Path

from producer_core._internal import private_files
from producer_core._internal.environment_settings import STORE, is_store_disabled
from producer_core._internal.home_folder import expand_user, state_folder
from producer_core.errors import StoreUnavailable
from producer_core.store import file_errors, write_ahead_log
from producer_core.store.undo_log import UndoLog

_MAGIC, _MAGIC_AT = b"DUCK", 8
MOUNTS = Path("/proc/mounts")
_NETWORK = frozenset(
    [
        "nfs",
        "nfs4",
        "cifs",
        "smb3",
        "smbfs",
        "fuse.sshfs",
        "9p",
        "afs",
        "glusterfs",
        "fuse.glusterfs",
        "ceph",
        "lustre",
        "beegfs",
    ]
)


def default_path() -> Path:
    """Return `PRODUCER_CORE_STORE`, else `producer-core/store.duckdb` in the user's state directory.

    With `PRODUCER_CORE_STORE=none` there is no store; spilled dead letters and the state of a send use the directory.
    """
    if (path := os.environ.get(STORE)) and not is_store_disabled(os.environ):
        return expand_user(path)
    return user_path()


def user_path() -> Path:
    """Return the path of the store in the user's state directory."""
    return state_folder() / "store.duckdb"


def resolve(path: Path | str | None) -> Path:
    """Return the absolute path of a store. Symbolic links are resolved, so that two names share one lock.

    Raise StoreUnavailable for the default store if the environment disables it.
    """
    if not path and is_store_disabled(os.environ):
        raise file_errors.disabled()
    resolved = expand_user(path).resolve() if path else default_path().resolve()
    if not resolved.name:
        raise file_errors.directory(resolved)
    return resolved


def check_file(path: Path) -> None:
    """Raise StoreError unless the path is free or holds a regular DuckDB file."""
    if path.is_dir():
        raise file_errors.directory(path)
    if path.exists() and not path.is_file():
        raise StoreUnavailable(
            f"The store path {path} is not a regular file.", fix="Specify the path of a file."
        )
    if has_content(path) and not _is_duckdb(path):
        raise file_errors.not_a_store(path)


def check_writable(path: Path) -> None:
    """Raise StoreUnavailable if this user can only read an existing store, for a process that must write."""
    for one in (path, path.parent):
        if one.exists() and not os.access(one, os.W_OK):
            raise file_errors.read_only(path)


def _is_duckdb(path: Path) -> bool:
    """Check the file's first bytes, so that no lock files are created beside a file that is not a store."""
    with path.open("rb") as file:
        return file.read(_MAGIC_AT + len(_MAGIC))[_MAGIC_AT:] == _MAGIC


def has_content(path: Path) -> bool:
    """Whether the file exists and is not empty. An empty file counts as not created yet."""
    return path.exists() and path.stat().st_size > 0


def was_emptied(path: Path) -> bool:
    """Whether an empty file was a store before: the lock files are created when a store is first opened."""
    return path.exists() and path.stat().st_size == 0 and path.with_name(path.name + ".gate").exists()


def make_folder(folder: Path) -> None:
    """Create the directory of a store, for its owner only."""
    if folder.is_dir():
        return
    try:
        private_files.make_folder(folder)
    except OSError as error:
        raise StoreUnavailable(
            f"The directory {folder} for the store cannot be created ({error.strerror}).",
            fix=f"Create it, or choose another path: {file_errors.CHOOSE_PATH}.",
        ) from error


def clean_draft(path: Path) -> Path:
    """Return the path of a new store's draft, after removing leftovers of earlier attempts and of a deleted store."""
    draft = remove_draft(path)
    if write_ahead_log.path_of(path).exists():
        write_ahead_log.set_aside(path)
    return draft


def remove_draft(path: Path) -> Path:
    """Remove the draft of a store, and the files beside it. Return its path."""
    draft = path.with_name(path.name + ".new")
    for old in (draft, write_ahead_log.path_of(draft), UndoLog(draft).path):
        old.unlink(missing_ok=True)
    return draft


def publish(draft: Path, path: Path) -> None:
    """Move a finished file to its path, readable for its owner only."""
    draft.chmod(0o600)
    draft.replace(path)


def publish_whole(draft: Path, path: Path) -> None:
    """Replace an existing file by the draft, once the draft is durable."""
    private_files.sync_file(draft)
    publish(draft, path)
    private_files.sync_folder(path.parent)


def copy_draft(path: Path, target: Path) -> Path:
    """Copy a file that no process writes now, with its write-ahead log if a crash left one, to a draft of `target`."""
    if target.exists():
        raise StoreUnavailable(f"{target} already exists.", fix="Choose a new path for the snapshot.")
    check_file(target)
    make_folder(target.parent)
    draft = clean_draft(target)
    with _removed_on_error(draft, target):
        shutil.copyfile(path, draft)
        if write_ahead_log.path_of(path).exists():
            shutil.copyfile(write_ahead_log.path_of(path), write_ahead_log.path_of(target))
            write_ahead_log.path_of(target).chmod(0o600)
    return draft


def publish_copy(draft: Path, target: Path) -> Path:
    """Make a copied file durable under its path. This takes long on a slow disk, and needs no lock of the original."""
    with _removed_on_error(draft, target):
        private_files.sync_file(draft)
        publish(draft, target)
    return target


@contextlib.contextmanager
def _removed_on_error(draft: Path, target: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        draft.unlink(missing_ok=True)
        raise file_errors.from_system(error, target) from error


def network_file_system(path: Path) -> str | None:
    """Return the type of the network file system that holds the path, if any. File locks are unsafe on one."""
    try:
        lines = MOUNTS.read_text(errors="replace").splitlines()
    except OSError:
        return None
    mounts = [(fields[1], fields[2]) for line in lines if len(fields := line.split()) > 2]
    mounted = [(point, kind) for point, kind in mounts if path.is_relative_to(point)]
    kind = max(mounted, key=lambda mount: len(mount[0]), default=("", ""))[1]
    return kind if kind in _NETWORK else None
