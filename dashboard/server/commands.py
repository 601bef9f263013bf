"""List the modules of the dashboard that the command line loads through the entry point `commands`."""

from __future__ import annotations

from producer_core.dashboard.auth import access_rules, password
from producer_core.dashboard.server import command

__all__ = ["access_rules", "command", "password"]
