"""The file of the approval policy, read again after each change.

Its path is `PRODUCER_CORE_POLICY`, else `$XDG_CONFIG_HOME/producer-core/policy.toml`.
"""

from __future__ import annotations

import os
from functools import lru_cache
from pathlib import Path

from producer_core._internal.home_folder import expand_user
from producer_core.errors import ConfigError
from producer_core.roles.policy import ApprovalPolicy, parse

VARIABLE = "PRODUCER_CORE_POLICY"


def policy_path() -> Path:
    """Return the absolute path of the policy file of this process."""
    if named := os.environ.get(VARIABLE):
        return expand_user(named).absolute()
    folder = expand_user(os.environ.get("XDG_CONFIG_HOME") or "~/.config")
    return (folder / "producer-core" / "policy.toml").absolute()


def read_policy() -> ApprovalPolicy | None:
    """Return the policy of the file; None without a file. Raise ConfigError if it is invalid or cannot be read.

    A file that the variable names must exist: a policy that disappeared admits nothing.
    """
    path = policy_path()
    try:
        found = path.stat()
        return _read_cached(path, found.st_mtime_ns, found.st_size, found.st_ino)
    except (FileNotFoundError, NotADirectoryError) as error:
        if os.environ.get(VARIABLE):
            raise _unreadable(path, error) from error
        return None
    except (OSError, UnicodeDecodeError) as error:
        raise _unreadable(path, error) from error


def _unreadable(path: Path, error: Exception) -> ConfigError:
    reason = getattr(error, "strerror", None) or "it is not UTF-8 text"
    return ConfigError(
        f"The approval policy {path} cannot be read ({reason}), so no replay can be started.",
        fix=f"Restore the file and let this user read it, or correct the path in {VARIABLE}.",
    )


@lru_cache(maxsize=4)
def _read_cached(path: Path, *stamp: int) -> ApprovalPolicy:
    return parse(path.read_text(encoding="utf-8"), str(path))
