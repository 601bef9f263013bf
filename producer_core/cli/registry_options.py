"""The options of commands that use a schema registry without a producer."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import click

from producer_core.cli import options

F = TypeVar("F", bound=Callable[..., Any])


def registry_options(command: F) -> F:
    """Add `--schema-registry`, `--config` and `--config-file`, for `chosen_registry`."""
    for option in (
        click.option(
            "--config-file",
            type=click.Path(path_type=Path),
            help="File with settings of the registry's client.",
        ),
        click.option(
            "--config",
            "-X",
            "settings",
            type=options.SettingType(),
            multiple=True,
            help="Setting of the registry's client; repeatable.",
        ),
        click.option("--schema-registry", "url", metavar="URL", help="Address of the schema registry."),
    ):
        command = option(command)
    return command


def chosen_registry(
    url: str | None, settings: tuple[tuple[str, str], ...], config_file: Path | None
) -> dict[str, Any]:
    """Return the settings of the options that begin with `schema.registry.`. An option takes precedence over the file."""
    _, chosen = options.client_settings(None, settings, config_file)
    found = {name.replace("_", "."): value for name, value in chosen.items()}
    if url is not None:
        found["schema.registry.url"] = url
    return {name: value for name, value in found.items() if name.startswith("schema.registry.")}
