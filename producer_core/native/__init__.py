"""The optional native core, written in C."""

from __future__ import annotations

from typing import Literal

Core = Literal["python", "native"]
"""The part that sends plain messages: Python, or a C library that does not hold Python's lock."""
