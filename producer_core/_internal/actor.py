"""Identify the person whose action the audit log records."""

from __future__ import annotations

import getpass
import os

NOTEBOOK = "notebook"
"""The origin of notebook actions in the audit log."""


def current_actor() -> str:
    """Return the JupyterHub user, because all of its users may share one system user; else the system user."""
    try:
        return os.environ.get("JUPYTERHUB_USER") or getpass.getuser()
    except (KeyError, OSError):
        return str(os.getuid())
