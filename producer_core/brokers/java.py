"""Find the Java runtime that a real Kafka and Spark need; it is never installed from here."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path

from producer_core.errors import MissingTool

MIN_VERSION = 17  # Kafka 4's servers
_FIX = (
    "Install Java 17 or newer: run apt-get install openjdk-17-jre-headless (Debian, Ubuntu), or install another build, "
    "such as Eclipse Temurin. Then set JAVA_HOME or put java on PATH."
)


@dataclass(frozen=True, slots=True)
class Java:
    program: str
    version: int


def find_java(program_name: str = "Apache Kafka") -> Java:
    """Return the java of JAVA_HOME, else of PATH, if it is version 17 or newer; MissingTool lists the ones found."""
    seen = []
    for program in _candidates():
        version = _version(program)
        if version is not None and version >= MIN_VERSION:
            return Java(program, version)
        seen.append(f"{program} is {'of an unknown version' if version is None else f'version {version}'}")
    found = "; ".join(seen) if seen else "none was found"
    raise MissingTool(f"{program_name} needs Java {MIN_VERSION} or newer; {found}.", fix=_FIX)


def _candidates() -> list[str]:
    home = os.environ.get("JAVA_HOME")
    programs = [str(Path(home) / "bin" / "java")] if home else []
    if on_path := shutil.which("java"):
        programs.append(on_path)
    return [program for program in dict.fromkeys(programs) if Path(program).is_file()]


def _version(program: str) -> int | None:
    try:
        shown = subprocess.run([program, "-version"], capture_output=True, text=True, timeout=30, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return None
    found = re.search(r'version "(?:1\.)?(\d+)', shown.stderr + shown.stdout)
    return int(found[1]) if found else None
