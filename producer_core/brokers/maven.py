"""Resolve jars and archives from Maven repositories with jgo and keep them in the user's cache."""

from __future__ import annotations

import hashlib
import os
import shutil
import tarfile
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from producer_core._internal import private_files
from producer_core._internal.file_lock import lock_file
from producer_core._internal.home_folder import expand_user
from producer_core.errors import MissingTool

if TYPE_CHECKING:
    from jgo.maven import MavenContext

RESOLVE_ERRORS = (OSError, RuntimeError, ValueError)
"""Raised by `fetch_jars` when an artifact cannot be resolved; the errors of requests, which jgo uses, are OSErrors."""

_MANIFEST = "jars.txt"
"""Names the jars of a folder, so that a folder from which a cache cleaner removed a file is resolved again."""


def cache_folder() -> Path:
    """Return $XDG_CACHE_HOME/producer-core, by default under ~/.cache."""
    return expand_user(os.environ.get("XDG_CACHE_HOME") or "~/.cache") / "producer-core"


def is_complete(target: Path) -> bool:
    """Return whether the folder holds every jar that was resolved into it."""
    manifest = target / _MANIFEST
    if not manifest.exists():
        return target.is_dir()
    return all((target / name).exists() for name in manifest.read_text().splitlines())


def fetch_jars(
    target: Path,
    *groups: Sequence[str],
    extra: str,
    exclusions: Sequence[str] = (),
    timeout: float = 10.0,
    before: Callable[[], None] = lambda: None,
) -> None:
    """Resolve each group of coordinates with its dependencies and put all jars into the folder `target`.

    Each group is resolved alone; within a group, dependency management applies to all coordinates. `extra` is the
    extra of this package that installs jgo, `timeout` the seconds that a repository may send nothing, and `before` is
    called when the folder must be filled. The folder is complete or absent, even when two processes fetch at the same
    time or one is killed: jars are collected in a temporary folder beside it, which is renamed at the end.
    """
    if is_complete(target):
        return
    private_files.make_folder(target.parent)
    with lock_file(target.with_suffix(".lock")):
        if is_complete(target):
            return
        before()
        with tempfile.TemporaryDirectory(dir=target.parent, prefix=f".{target.name}-") as name:
            collected = Path(name) / "jars"
            collected.mkdir(mode=0o700)
            for number, group in enumerate(groups):
                for jar in _resolve(Path(name), number, group, exclusions, extra=extra, timeout=timeout):
                    shutil.copyfile(jar, collected / jar.name)
            names = sorted(jar.name for jar in collected.iterdir())
            (collected / _MANIFEST).write_text("\n".join(names))
            shutil.rmtree(target, ignore_errors=True)  # incomplete
            collected.rename(target)


def _resolve(
    scratch: Path, number: int, group: Sequence[str], exclusions: Sequence[str], *, extra: str, timeout: float
) -> list[Path]:
    context = _context(scratch, extra=extra, timeout=timeout)
    from jgo.env import EnvironmentBuilder, EnvironmentSpec, LinkStrategy

    builder = EnvironmentBuilder(
        context=context, cache_dir=scratch / f"environment-{number}", link_strategy=LinkStrategy.HARD
    )
    spec = EnvironmentSpec(coordinates=list(group), exclusions=list(exclusions))
    return [Path(jar) for jar in builder.from_spec(spec).all_jars]


@dataclass(frozen=True, slots=True)
class Archive:
    """A tar archive in a Maven repository. `sha256` is the digest of the file that this code was tested with."""

    group: str
    name: str
    version: str
    classifier: str
    packaging: str
    sha256: str


def fetch_archive(
    target: Path,
    archive: Archive,
    *,
    extra: str,
    timeout: float = 30.0,
    before: Callable[[], None] = lambda: None,
) -> None:
    """Unpack an archive into the folder `target`, unless it exists. Raise ValueError if the digest differs.

    The parameters are those of `fetch_jars`, as is the promise: the folder is complete or absent.
    """
    if target.is_dir():
        return
    private_files.make_folder(target.parent)
    with lock_file(target.with_name(f"{target.name}.lock")):
        if target.is_dir():
            return
        before()
        with tempfile.TemporaryDirectory(dir=target.parent, prefix=f".{target.name}-") as name:
            context = _context(Path(name), extra=extra, timeout=timeout)
            component = context.project(archive.group, archive.name).at_version(archive.version)
            file = Path(component.artifact(archive.classifier, archive.packaging).resolve())
            check_digest(file, archive.sha256)
            unpacked = Path(name) / "unpacked"
            unpacked.mkdir(mode=0o700)
            with tarfile.open(file) as opened:
                if hasattr(tarfile, "data_filter"):
                    opened.extractall(unpacked, filter="data")
                else:  # Python 3.11 before 3.11.4; the digest is that of a known archive
                    opened.extractall(unpacked)  # noqa: S202
            unpacked.rename(target)


def check_digest(file: Path, sha256: str) -> None:
    with file.open("rb") as opened:
        found = hashlib.file_digest(opened, "sha256").hexdigest()
    if found != sha256:
        raise ValueError(f"{file.name} has the SHA-256 {found}, not {sha256}")


def _context(scratch: Path, *, extra: str, timeout: float) -> MavenContext:
    try:
        from jgo.maven import MavenContext
    except ImportError as error:
        raise MissingTool(
            "The Python package jgo, which resolves jars, is not installed.",
            fix=f"Install it with: pip install 'producer-core[{extra}]'",
        ) from error
    return MavenContext(repo_cache=scratch / "repository", remote_repos=_repositories(), timeout=timeout)


def _repositories() -> dict[str, str] | None:
    """Return the mirror that DEFAULT_ARTIFACT_REPOSITORY names (Spark's variable); None selects Maven Central."""
    mirror = os.environ.get("DEFAULT_ARTIFACT_REPOSITORY")
    return {"mirror": mirror.rstrip("/")} if mirror else None
