"""Resolve jars from Maven repositories with jgo and keep them in the user's cache."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path

from producer_core._internal import private_files
from producer_core._internal.file_lock import lock_file
from producer_core.errors import MissingTool

RESOLVE_ERRORS = (OSError, RuntimeError, ValueError)
"""Raised by `fetch_jars` when an artifact cannot be resolved; the errors of requests, which jgo uses, are OSErrors."""

_MANIFEST = "jars.txt"
"""Names the jars of a folder, so that a folder from which a cache cleaner removed a file is resolved again."""


def cache_folder() -> Path:
    """Return $XDG_CACHE_HOME/producer-core, by default under ~/.cache."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "producer-core"


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
    try:
        from jgo.env import EnvironmentBuilder, EnvironmentSpec, LinkStrategy
        from jgo.maven import MavenContext
    except ImportError as error:
        raise MissingTool(
            "The Python package jgo, which resolves jars, is not installed.",
            fix=f"Install it with: pip install 'producer-core[{extra}]'",
        ) from error
    context = MavenContext(repo_cache=scratch / "repository", remote_repos=_repositories(), timeout=timeout)
    builder = EnvironmentBuilder(
        context=context, cache_dir=scratch / f"environment-{number}", link_strategy=LinkStrategy.HARD
    )
    spec = EnvironmentSpec(coordinates=list(group), exclusions=list(exclusions))
    return [Path(jar) for jar in builder.from_spec(spec).all_jars]


def _repositories() -> dict[str, str] | None:
    """Return the mirror that DEFAULT_ARTIFACT_REPOSITORY names (Spark's variable); None selects Maven Central."""
    mirror = os.environ.get("DEFAULT_ARTIFACT_REPOSITORY")
    return {"mirror": mirror.rstrip("/")} if mirror else None
