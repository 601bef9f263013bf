"""The options that several commands share, and their types."""

from __future__ import annotations

import getpass
import math
import os
import re
import socket
import sys
import time
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, TypeVar

import click

from producer_core._internal.argument_settings import pop_argument_settings, without_arguments
from producer_core._internal.rate_settings import check_rate_text
from producer_core._internal.settings_file import read_settings
from producer_core.cli.lazy_group import Failed
from producer_core.errors import ConfigError

F = TypeVar("F", bound=Callable[..., Any])

_UNITS = {"s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0, "w": 604800.0}
_DURATION = re.compile(r"(\d+(?:\.\d+)?)\s*([smhdw])")
_LONGEST = 100 * 365 * 86400.0
_CLOCK = re.compile(r"(\d{1,2}):(\d{2})(?::(\d{2}))?Z?")

ROWS, NO_ROWS = click.IntRange(1, 10**9), click.IntRange(0, 10**9)
"""The types of row counts, without and with zero. No store has more rows than their maximum."""


class DurationType(click.ParamType[float]):
    """A duration such as `15m`, `2h` or `1d12h`, in seconds; `positive` refuses zero."""

    name = "duration"

    def __init__(self, *, positive: bool = False) -> None:
        self._positive = positive

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        if isinstance(value, float):
            return value
        text = str(value).strip()
        parts = _DURATION.findall(text)
        if not parts or _DURATION.sub("", text).strip():
            self.fail(f"{value!r} is not a duration; write, for example, 30s, 15m, 2h or 7d.", param, ctx)
        seconds = sum(float(number) * _UNITS[unit] for number, unit in parts)
        if seconds > _LONGEST:
            self.fail(f"{value!r:.40} is longer than 100 years.", param, ctx)
        if self._positive and not seconds:
            self.fail(f"{value!r} must be above 0, for example 15m or 2h.", param, ctx)
        return seconds


class RateType(click.FloatRange):
    """A number of messages per second, above 0 and finite."""

    def __init__(self) -> None:
        super().__init__(min=0, min_open=True)

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        rate: float = super().convert(value, param, ctx)
        if not math.isfinite(rate):  # float() accepts nan and inf
            self.fail(f"{value!r} is not a number above 0, for example 500.", param, ctx)
        return rate


class TimestampType(click.ParamType[float]):
    """A time as ISO 8601, as `@` and seconds since 1970, as a duration before now, or as the last `02:10` (UTC)."""

    name = "time"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        if isinstance(value, float):
            return value
        if str(value).startswith("@"):
            return self._seconds(str(value), param, ctx)
        if found := _CLOCK.fullmatch(str(value).strip()):
            return self._last(found, param, ctx)
        try:
            moment = datetime.fromisoformat(str(value))
        except ValueError:
            pass
        else:
            return (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp()
        try:
            return max(0.0, time.time() - DurationType().convert(value, param, ctx))
        except click.BadParameter:
            self.fail(
                f"{value!r} is not a time; write 15m or 2h (before now), or 2026-01-31T12:00 (UTC).",
                param,
                ctx,
            )

    def _last(self, found: re.Match[str], param: click.Parameter | None, ctx: click.Context | None) -> float:
        """Return the last time, up to now, at which a clock in UTC showed this."""
        hour, minute, second = int(found[1]), int(found[2]), int(found[3] or 0)
        if hour > 23 or minute > 59 or second > 59:
            self.fail(f"{found[0]!r} is not a time of the day.", param, ctx)
        now = time.time()
        today = now // 86_400 * 86_400 + hour * 3600 + minute * 60 + second
        return today if today <= now else today - 86_400

    def _seconds(self, text: str, param: click.Parameter | None, ctx: click.Context | None) -> float:
        try:
            return float(text[1:])
        except ValueError:
            self.fail(f"{text!r} is not a time; write @ followed by seconds since 1970.", param, ctx)


class SettingType(click.ParamType[tuple[str, str]]):
    """A pair `name=value`."""

    name = "name=value"

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> tuple[str, str]:
        if isinstance(value, tuple):
            return value
        name, equals, text = str(value).partition("=")
        if not equals or not name.strip():
            self.fail(f"{value!r} is not name=value.", param, ctx)
        return name.strip(), text


as_json = click.option("--json", "as_json", is_flag=True, help="Print JSON.")
application = click.option("--application", help='Select by application; "" selects those without a name.')
cluster = click.option("--cluster", help="Select by cluster id.")
yes = click.option("--yes", "-y", is_flag=True, help="Do not ask for confirmation.")


def store_option(command: F) -> F:
    """Add `--store PATH` as `store_path`."""
    return click.option(
        "--store",
        "store_path",
        type=click.Path(path_type=Path),
        metavar="PATH",
        help="Store file; default: $PRODUCER_CORE_STORE, or in the state folder.",
    )(command)


def client_options(command: F, *, brokers: str = "Kafka brokers; default: localhost:9092.") -> F:
    """Add `--bootstrap-servers` (with this help), `--config` and `--config-file`, for `client_settings`."""
    for option in (
        click.option(
            "--config-file",
            type=click.Path(path_type=Path),
            help="File of client settings: Java properties or JSON.",
        ),
        click.option(
            "--config",
            "-X",
            "settings",
            type=SettingType(),
            multiple=True,
            help="Client setting; repeatable.",
        ),
        click.option(
            "--bootstrap-servers",
            "-b",
            "servers",
            envvar="PRODUCER_CORE_BOOTSTRAP_SERVERS",
            metavar="HOST:PORT,...",
            help=brokers,
        ),
    ):
        command = option(command)
    return command


def client_settings(
    servers: str | None, settings: tuple[tuple[str, str], ...], config_file: Path | None
) -> tuple[str, dict[str, Any]]:
    """Return the broker addresses and the settings of the client. An option takes precedence over the file.

    The file may be a producer's: its arguments of the producer, such as `circuit_breaker`, are left out.
    """
    from producer_core.config import pop_servers

    if servers is not None and not servers.strip():
        raise ConfigError(
            "--bootstrap-servers is empty.",
            fix="Specify a broker, or omit the option for localhost:9092. Check for an empty variable.",
        )
    for name, value in settings:
        _check_rate_option(name, value)
    chosen = {**(without_arguments(read_settings(config_file)) if config_file else {}), **dict(settings)}
    inside = pop_servers(chosen)
    return servers or inside or "localhost:9092", chosen


def producer_arguments(config_file: Path | None) -> dict[str, Any]:
    """Return the arguments of a producer that a file of settings contains, which `client_settings` leaves out."""
    return pop_argument_settings(dict(read_settings(config_file))) if config_file else {}


def _check_rate_option(name: str, value: str) -> None:
    try:
        check_rate_text(name.replace(".", "_"), value)
    except ConfigError as error:
        raise ConfigError(f"-X {name} is not valid: {error.what}", fix=error.fix) from error


def current_user() -> str:
    """Return the operator for the audit log, as user@host."""
    try:
        user = getpass.getuser()
    except (KeyError, OSError):
        user = f"uid {os.getuid()}"
    return f"{user}@{socket.gethostname()}"


def confirm(question: str, yes: bool) -> None:
    """Return if `--yes` was given or the operator confirms; raise Failed otherwise."""
    if yes:
        return
    if not sys.stdin.isatty():
        raise Failed(question, "Standard input is not a terminal; use --yes to confirm. Nothing was changed.")
    if not click.confirm(question):
        raise Failed("Nothing was changed.")
