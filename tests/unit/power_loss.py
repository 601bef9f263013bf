"""A disk that loses its power: what a program did to its files, and every state in which the disk may then be.

The file operations run for real and are written down on the way. A state follows the rules that POSIX gives and no file
system is weaker than: what a file had at its last sync is there; a later write, cut or extension is there or not, each
sector of 512 bytes and the size by itself, in any order; a name that was made, moved or deleted counts after the sync
of its folder, and may count before it.
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
    """The bytes of a file: `data`, and zeros up to `size`."""

    data: bytes
    size: int

    def written(self, data: bytes, at: int) -> Content:
        end = at + len(data)
        return Content(self.data.ljust(at, b"\0")[:at] + data + self.data[end:], max(self.size, end))

    def cut(self, size: int) -> Content:
        return Content(self.data[:size], size)

    def sector(self, number: int) -> bytes:
        return self.data[number * SECTOR : (number + 1) * SECTOR].ljust(SECTOR, b"\0")


EMPTY = Content(b"", 0)


class Inode:
    """A file, with the content of its last sync and every one since, or a folder."""

    def __init__(self, content: Content | None) -> None:
        self.versions = [] if content is None else [content]

    def change(self, content: Content) -> None:
        if content != self.versions[-1]:
            self.versions.append(content)

    def choices(self) -> list[list[bytes] | list[int]]:
        """For each sector the bytes that it may have, and last the sizes."""
        sectors = -(-max(len(version.data) for version in self.versions) // SECTOR)
        found = [_distinct(version.sector(number) for version in self.versions) for number in range(sectors)]
        return [*found, _distinct(version.size for version in self.versions)]


class Name(NamedTuple):
    """An operation on a folder: `path` is made (for `inode`), moved here from `source`, or deleted (no inode)."""

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
"""Paths below the root with their content, None for a folder."""


class Disk:
    """Watches the files below `root`, from its making on; what is there already is durable."""

    def __init__(self, root: Path, monkeypatch) -> None:
        self.root = root
        self.on_change = lambda: None  # called after each operation, with none under way
        self._names: dict[str, Inode] = {".": Inode(None)}
        for path in sorted(root.rglob("*")):
            content = None if path.is_dir() else Content(data := path.read_bytes(), len(data))
            self._names[self._name(path)] = Inode(content)
        self._durable = dict(self._names)
        self._pending: dict[str, list[Name]] = {}
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
        """What the disk may hold if the power fails now: all when those are few, else so many at random."""
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
            late = rng.choice((0, 0.1, 0.5, 0.9, 1))  # how much of what was not synced is there
            names = [rng.random() < late for _ in pending]
            content = [_one_of(choice, late, rng) for choice in choices]
            yield self._state(names, content, changed)

    def now(self) -> State:
        """What the program sees."""
        return {path: _latest(inode) for path, inode in self._names.items()}

    def _state(self, kept, chosen, changed) -> State:
        names, content, at = dict(self._durable), {}, 0
        pending = [name for names in self._pending.values() for name in names]
        for name in itertools.compress(pending, kept):
            name.apply(names)
        for file in changed:
            parts = chosen[at : at + len(file.choices())]
            at += len(parts)
            content[file] = Content(b"".join(parts[:-1])[: parts[-1]], parts[-1])
        return {
            path: content.get(inode) or _latest(inode)
            for path, inode in sorted(names.items())
            if all(str(above) in names for above in Path(path).parents)
        }

    # what the program does; each says whether the disk may have a new state then

    def _watched(self, real, note):
        def call(*args, **options):
            with self._lock:
                result = real(*args, **options)
                if note(result, *args):
                    self.on_change()
                return result

        return call

    def _name(self, path) -> str:
        return os.path.relpath(path, self.root)

    def _is_ours(self, path) -> bool:
        return isinstance(path, str | Path) and Path(os.path.abspath(path)).is_relative_to(self.root)

    def _bind(self, name: Name) -> bool:
        name.apply(self._names)
        self._pending.setdefault(str(Path(name.path).parent), []).append(name)
        return True

    def _open(self, file, path, flags, *_) -> bool:
        self._files.pop(file, None)
        self._handles.pop(file, None)
        if not self._is_ours(path):
            return False
        name = self._handles[file] = self._name(path)
        made = name not in self._names
        if made:
            self._bind(Name(name, Inode(EMPTY)))
        self._files[file] = self._names[name]
        if flags & os.O_TRUNC:
            self._files[file].change(EMPTY)
        return made

    def _close(self, _, file) -> bool:
        self._files.pop(file, None)
        return False

    def _write(self, written, file, data) -> bool:
        """Into a file that is opened for appending."""
        return self._change(file, lambda content: content.written(bytes(data)[:written], content.size))

    def _pwrite(self, written, file, data, at) -> bool:
        return self._change(file, lambda content: content.written(bytes(data)[:written], at))

    def _ftruncate(self, _, file, size) -> bool:
        return self._change(file, lambda content: content.cut(size))

    def _posix_fallocate(self, _, file, at, size) -> bool:
        return self._change(file, lambda content: content._replace(size=max(content.size, at + size)))

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
        return self._is_ours(path) and self._bind(Name(self._name(path), Inode(None)))

    def _replace(self, _, source, path) -> bool:
        if not self._is_ours(path):
            return False
        source = self._name(source)
        return self._bind(Name(self._name(path), self._names[source], source))

    def _unlink(self, _, path, **__) -> bool:
        return self._is_ours(path) and self._bind(Name(self._name(path), None))


def restore(state: State, root: Path) -> None:
    """Make the files of a state in an empty folder."""
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


def _one_of(choice, late, rng):
    """The latest one with this probability, else any."""
    return choice[-1] if rng.random() < late else rng.choice(choice)
