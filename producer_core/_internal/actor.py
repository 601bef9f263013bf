"""The person: whose name an act carries into the audit."""

from __future__ import annotations

import getpass
import os

NOTEBOOK = "notebook"
"""Where acts of a notebook come from, in the audit."""


def current_actor() -> str:
    """The name in JupyterHub, where everybody may be the same user of the system; else that user's."""
    try:
        return os.environ.get("JUPYTERHUB_USER") or getpass.getuser()
    except (KeyError, OSError):
        return str(os.getuid())
