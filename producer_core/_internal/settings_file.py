"""Read client settings from a file."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import orjson

from producer_core.errors import ConfigError


def read_settings(path: Path) -> dict[str, Any]:
    """Return the settings in a file: one JSON object, or `name=value` lines with # comments."""
    text = _decoded(path, _content(path))
    if text.lstrip().startswith("{"):
        try:
            found = orjson.loads(text)
        except orjson.JSONDecodeError as error:
            raise ConfigError(f"{path} is not JSON: {error}.") from error
        return dict(found)
    pairs: dict[str, Any] = {}
    for number, line in enumerate(text.splitlines(), start=1):
        if not line.strip() or line.strip()[0] in "#!":
            continue
        name, equals, value = line.partition("=")
        if not equals:
            raise ConfigError(f"Line {number} of {path} is not name=value.", fix="For example, acks=all.")
        pairs[name.strip()] = value.strip()
    return pairs


def _decoded(path: Path, content: bytes) -> str:
    """Return the text without the byte order mark that some editors write."""
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        number = content[: error.start].count(b"\n") + 1
        raise ConfigError(f"Line {number} of {path} is not UTF-8.", fix="Save the file as UTF-8.") from error


def _content(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except FileNotFoundError as error:
        raise ConfigError(
            f"The file {path} does not exist.", fix="Check the path of the settings file."
        ) from error
    except IsADirectoryError as error:
        raise ConfigError(f"{path} is a directory.", fix="Specify the path of a file.") from error
    except OSError as error:
        raise ConfigError(f"{path} cannot be read: {error.strerror or error}.") from error
