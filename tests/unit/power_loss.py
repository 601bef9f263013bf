"""Simulate a disk that loses power: record file operations and generate every state that the disk may then have.

The file operations really run and are recorded. The states follow the POSIX rules, which are the weakest guarantee of
any file system. The content of a file at its last sync is durable. A later write, truncation or extension is durable or
not, independently for each sector of 512 bytes and for the size, in any order. A created, moved or deleted name is
durable after the sync of its folder, and may be durable before.
"""

from __future__ import annotations

import itertools
import math
import os
import random
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

SECTOR = 512


class Content(NamedTuple):
    """The bytes of a file: `data`, followed by zeros up to `size`."""

    data: bytes
    size: int

    def written(self, data: bytes, offset: int) -> Content:
        end = offset + len(data)
        return Content(self.data.ljust(offset, b"\0")[:offset] + data + self.data[end:], max(self.size, end))

    def cut(self, size: int) -> Content:
        return Content(self.data[:size], size)

    def sector(self, number: int) -> bytes:
        return self.data[number * SECTOR : (number + 1) * SECTOR].ljust(SECTOR, b"\0")


EMPTY = Content(b"", 0)


class Inode:
    """A folder, or a file with its content at the last sync and after each later change."""

    def __init__(self, content: Content | None) -> None:
        self.versions = [] if content is None else [content]

    def change(self, content: Content) -> None:
        if content != self.versions[-1]:
            self.versions.append(content)

    def choices(self) -> list[list[bytes] | list[int]]:
        """Return the possible bytes of each sector, and last the possible sizes."""
        sectors = -(-max(len(version.data) for version in self.versions) // SECTOR)
        by_sector = [
            _distinct(version.sector(number) for version in self.versions) for number in range(sectors)
        ]
        return [*by_sector, _distinct(version.size for version in self.versions)]


class NameChange(NamedTuple):
    """A change in a folder: `path` is created for `inode`, moved here from `source`, or deleted (no inode)."""

    path: str
    inode: Inode | None
    source: str | None = None

    def apply(self, names: dict[str, Inode]) -> None:
        if self.inode is None:
            names.pop(self.path, None)
            return
        names[self.path] = self.inode
        if self.source is not None and names.get(self.source) is self.inode:
            del names[self.source]


State = dict[str, "Content | None"]
"""The content by path below the root, or None for a folder."""


class Disk:
    """Record the operations on files below `root`. Files that exist at construction are durable."""

    def __init__(self, root: Path, monkeypatch) -> None:
        self.root = root
        self.on_change = lambda: None  # called after each operation, while no other one runs
        self._current: dict[str, Inode] = {".": Inode(None)}
        for path in sorted(root.rglob("*")):
            content = None if path.is_dir() else Content(data := path.read_bytes(), len(data))
            self._current[self._name(path)] = Inode(content)
        self._durable = dict(self._current)
        self._pending: dict[str, list[NameChange]] = {}
        self._handles: dict[int, str] = {}
        self._files: dict[int, Inode] = {}
        self._lock = threading.RLock()
        for name in (
            "open",
            "close",
            "write",
            "pwrite",
            "ftruncate",
            "posix_fallocate",
            "fsync",
            "fdatasync",
        ):
            monkeypatch.setattr(os, name, self._watched(getattr(os, name), getattr(self, f"_{name}")))
        for name in ("mkdir", "replace", "unlink"):
            monkeypatch.setattr(os, name, self._watched(getattr(os, name), getattr(self, f"_{name}")))

    def states(self, rng: random.Random, count: int, exhaustive: int = 32) -> Iterator[State]:
        """Yield the possible states after a power failure now: all of them if few, else `count` random ones."""
        pending = [name for names in self._pending.values() for name in names]
        files = list(
            dict.fromkeys([*self._durable.values(), *(name.inode for name in pending if name.inode)])
        )
        changed = [file for file in files if len(file.versions) > 1]
        choices = [choice for file in changed for choice in file.choices()]
        if 2 ** len(pending) * math.prod(map(len, choices)) <= exhaustive:
            for chosen in itertools.product(*([False, True] for _ in pending), *choices):
                yield self._state(chosen[: len(pending)], chosen[len(pending) :], changed)
            return
        for _ in range(count):
            # the share of unsynced changes that are durable
            written_share = rng.choice((0, 0.1, 0.5, 0.9, 1))
            names = [rng.random() < written_share for _ in pending]
            content = [_choose(choice, written_share, rng) for choice in choices]
            yield self._state(names, content, changed)

    def now(self) -> State:
        """Return the state that the program currently sees."""
        return {path: _latest(inode) for path, inode in self._current.items()}

    def _state(self, applied, chosen, changed) -> State:
        names, content, position = dict(self._durable), {}, 0
        pending = [name for names in self._pending.values() for name in names]
        for name in itertools.compress(pending, applied):
            name.apply(names)
        for file in changed:
            parts = chosen[position : position + len(file.choices())]
            position += len(parts)
            content[file] = Content(b"".join(parts[:-1])[: parts[-1]], parts[-1])
        return {
            path: content.get(inode) or _latest(inode)
            for path, inode in sorted(names.items())
            if all(str(above) in names for above in Path(path).parents)
        }

    # operations of the program; each returns whether the disk may have a new state

    def _watched(self, real, record_change):
        def call(*args, **options):
            with self._lock:
                result = real(*args, **options)
                if record_change(result, *args):
                    self.on_change()
                return result

        return call

    def _name(self, path) -> str:
        return os.path.relpath(path, self.root)

    def _is_below_root(self, path) -> bool:
        return isinstance(path, str | Path) and Path(os.path.abspath(path)).is_relative_to(self.root)

    def _bind(self, name: NameChange) -> bool:
        name.apply(self._current)
        self._pending.setdefault(str(Path(name.path).parent), []).append(name)
        return True

    def _open(self, file, path, flags, *_) -> bool:
        self._files.pop(file, None)
        self._handles.pop(file, None)
        if not self._is_below_root(path):
            return False
        name = self._handles[file] = self._name(path)
        created = name not in self._current
        if created:
            self._bind(NameChange(name, Inode(EMPTY)))
        self._files[file] = self._current[name]
        if flags & os.O_TRUNC:
            self._files[file].change(EMPTY)
        return created

    def _close(self, _, file) -> bool:
        self._files.pop(file, None)
        return False

    def _write(self, written, file, data) -> bool:
        """Record a write to a file opened for appending."""
        return self._change(file, lambda content: content.written(bytes(data)[:written], content.size))

    def _pwrite(self, written, file, data, offset) -> bool:
        return self._change(file, lambda content: content.written(bytes(data)[:written], offset))

    def _ftruncate(self, _, file, size) -> bool:
        return self._change(file, lambda content: content.cut(size))

    def _posix_fallocate(self, _, file, offset, size) -> bool:
        return self._change(file, lambda content: content._replace(size=max(content.size, offset + size)))

    def _change(self, file, changed) -> bool:
        inode = self._files.get(file)
        if inode is not None:
            inode.change(changed(inode.versions[-1]))
        return inode is not None

    def _fsync(self, _, file) -> bool:
        inode = self._files.get(file)
        if inode is None:
            return False
        if inode.versions:
            del inode.versions[:-1]
        else:
            for name in self._pending.pop(self._handles[file], ()):
                name.apply(self._durable)
        return True

    _fdatasync = _fsync

    def _mkdir(self, _, path, *__) -> bool:
        return self._is_below_root(path) and self._bind(NameChange(self._name(path), Inode(None)))

    def _replace(self, _, source, path) -> bool:
        if not self._is_below_root(path):
            return False
        source = self._name(source)
        return self._bind(NameChange(self._name(path), self._current[source], source))

    def _unlink(self, _, path, **__) -> bool:
        return self._is_below_root(path) and self._bind(NameChange(self._name(path), None))


def restore(state: State, root: Path) -> None:
    """Create the files of a state in an empty folder."""
    for path, content in state.items():
        if content is None:
            (root / path).mkdir(exist_ok=True)
        else:
            (root / path).write_bytes(content.data)
            os.truncate(root / path, content.size)


def _latest(inode: Inode) -> Content | None:
    return inode.versions[-1] if inode.versions else None


def _distinct(values):
    return list(dict.fromkeys(values))


def _choose(choice, written_share, rng):
    """Return the latest value with this probability, else a random one."""
    return choice[-1] if rng.random() < written_share else rng.choice(choice)
