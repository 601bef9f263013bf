"""Describe the machine of a benchmark, without its host name."""

from __future__ import annotations

import os
import platform
from pathlib import Path


def hardware() -> str:
    """Return the cores, the CPU model, the operating system and the Python version."""
    info = Path("/proc/cpuinfo")
    lines = info.read_text().splitlines() if info.exists() else []
    models = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    chip = models[0] if models else platform.processor() or platform.machine()
    return f"{os.cpu_count()} cores ({chip}), {platform.system()}, Python {platform.python_version()}"
