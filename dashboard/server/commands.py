"""The functions of the dashboard that the command line uses, found through an entry point."""

from __future__ import annotations

from producer_core.dashboard.auth.access_rules import loopback, read, refusal
from producer_core.dashboard.auth.password import hashed
from producer_core.dashboard.server.command import command, free_port, names_of

__all__ = ["command", "free_port", "hashed", "loopback", "names_of", "read", "refusal"]
