"""The store's place: its path, its folder, and the file system below."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

from producer_core._internal import private_files
from producer_core.errors import StoreUnavailable
from producer_core.store import file_errors

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
    """`PRODUCER_CORE_STORE`, else `producer-core/store.duckdb` in the user's state folder."""
    if named := os.environ.get("PRODUCER_CORE_STORE"):
        return Path(named).expanduser()
    state = os.environ.get("XDG_STATE_HOME") or "~/.local/state"
    return Path(state).expanduser() / "producer-core" / "store.duckdb"


def resolve(path: Path | str | None) -> Path:
    """The absolute path of a store; symbolic links are followed, so that two names are one lock."""
    return Path(path).expanduser().resolve() if path else default_path().resolve()


def check_file(path: Path) -> None:
    """Refuse what can be seen to be no file."""
    if path.is_dir():
        raise file_errors.directory(path)
    if path.exists() and not path.is_file():
        raise StoreUnavailable(f"The store path {path} is not a regular file.", fix="Name a file.")
    if has_content(path) and not _is_duckdb(path):
        raise file_errors.not_a_store(path)


def check_writable(path: Path) -> None:
    """Refuse, for a process that must write, a store that is there and that this user may only read."""
    for one in (path, path.parent):
        if one.exists() and not os.access(one, os.W_OK):
            raise file_errors.read_only(path)


def _is_duckdb(path: Path) -> bool:
    """By its first bytes, so that nothing is left beside a file that somebody named by mistake."""
    with path.open("rb") as file:
        return file.read(_MAGIC_AT + len(_MAGIC))[_MAGIC_AT:] == _MAGIC


def has_content(path: Path) -> bool:
    """Whether there is a file with something in it; an empty one counts as not made yet."""
    return path.exists() and path.stat().st_size > 0


def was_emptied(path: Path) -> bool:
    """Return whether an empty file was a store before: the files for its locks are made with the first opening."""
    return path.exists() and path.stat().st_size == 0 and path.with_name(path.name + ".gate").exists()


def make_folder(folder: Path) -> None:
    """The folder of a store, for its owner alone where we make it."""
    if folder.is_dir():
        return
    try:
        private_files.make_folder(folder)
    except OSError as error:
        raise StoreUnavailable(
            f"The folder {folder} for the store cannot be made ({error.strerror}).",
            fix="Make it, or choose another path with --store.",
        ) from error


def clean_draft(path: Path) -> Path:
    """Where a new store is made, with nothing left of an earlier try, nor of a store that was deleted."""
    draft = path.with_name(path.name + ".new")
    for old in (draft, _log_of(draft)):
        old.unlink(missing_ok=True)
    if _log_of(path).exists():
        _log_of(path).replace(path.with_name(path.name + ".wal.orphan"))
    return draft


def publish(draft: Path, path: Path) -> None:
    """Move a finished file to its place, readable for its owner alone."""
    draft.chmod(0o600)
    draft.replace(path)


def publish_whole(draft: Path, path: Path) -> None:
    """Like `publish`, in the place of a file that is there, and only once the new one is on the disk."""
    _sync(draft)
    publish(draft, path)
    private_files.sync_folder(path.parent)


def copy(path: Path, target: Path) -> Path:
    """A copy of a file that nobody writes to now; with its log, if a crash left one."""
    if target.exists():
        raise StoreUnavailable(f"{target} exists already.", fix="Name a new file for the snapshot.")
    check_file(target)
    make_folder(target.parent)
    draft = clean_draft(target)
    try:
        shutil.copyfile(path, draft)
        if _log_of(path).exists():
            shutil.copyfile(_log_of(path), _log_of(target))
            _log_of(target).chmod(0o600)
        _sync(draft)
        publish(draft, target)
    except OSError as error:
        draft.unlink(missing_ok=True)
        raise file_errors.from_system(error, target) from error
    return target


def network_file_system(path: Path) -> str | None:
    """The type of the network file system below, as far as the system tells; locks are unsafe there."""
    try:
        lines = MOUNTS.read_text(errors="replace").splitlines()
    except OSError:
        return None
    mounts = [(fields[1], fields[2]) for line in lines if len(fields := line.split()) > 2]
    below = [(point, kind) for point, kind in mounts if path.is_relative_to(point)]
    kind = max(below, key=lambda mount: len(mount[0]), default=("", ""))[1]
    return kind if kind in _NETWORK else None


def _log_of(path: Path) -> Path:
    return path.with_name(path.name + ".wal")


def _sync(path: Path) -> None:
    with path.open("rb") as file:
        os.fsync(file.fileno())
