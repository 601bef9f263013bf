"""The modules of the dashboard that the command line uses, found through an entry point."""

from __future__ import annotations

from producer_core.dashboard.auth import access_rules, password
from producer_core.dashboard.server import command

__all__ = ["access_rules", "command", "password"]
