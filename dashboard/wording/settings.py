"""Texts of the settings page: the meaning of each setting, its value with a unit, and the command that changes it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from producer_core._internal.plural import plural
from producer_core.dashboard.wording.numbers import count, size
from producer_core.dlq.limits import EXPLANATION

MEANINGS: Mapping[str, str] = {
    "keep_seconds": "Statistics per second; then aggregated to minutes.",
    "keep_minutes": "Statistics per minute; then aggregated to hours.",
    "keep_hours": "Statistics per hour, resolved alerts, finished replays, audits and notices; then deleted.",
    "keep_settled": "Replayed, found and purged dead letters; then deleted. Archived ones are kept until purged.",
    "keep_ledger": "Ledger of acknowledged sequences, if a producer keeps one here. Deleted afterwards.",
    "dlq_max_size": "Pending dead letters.",
    "dlq_max_bytes": "Total size of the values of pending dead letters.",
    "dlq_max_age": "Age of the oldest pending dead letter.",
}
"""The meaning of each setting of a store."""

NO_POLICY = "No replay needs a second person: there is no approval policy."
NEVER_DELETED = "Pending dead letters and the audit log are never deleted."
LIMITS_NOTE = f"{EXPLANATION} Producers may set limits that are not set here."
COMMAND_NOTE = "To change limits and retention from a shell; the change is audited. “default” resets a setting, “none” removes a limit:"
ALWAYS_MASKED = (
    "Always masked: fields and headers whose names indicate a secret (password, token, authorization, api_key, …), "
    "email addresses, card numbers, bearer and basic credentials, JSON Web Tokens, API keys of well-known services, "
    "passwords in URLs."
)


def length(seconds: float) -> str:
    """Return a duration in the largest whole unit, such as "90 days" or "36 hours"."""
    for unit, name in ((86_400, "day"), (3600, "hour"), (60, "minute")):
        if seconds >= unit and seconds % unit == 0:
            return plural(int(seconds // unit), name)
    return f"{seconds:,.0f} s"


def setting(name: str, value: float | None) -> str:
    """Return a value with its unit."""
    if value is None:
        return "no limit"
    if name == "dlq_max_size":
        return count(value)
    return size(value) if name == "dlq_max_bytes" else length(value)


def written(name: str, value: float | None) -> str:
    """Return a value as the command takes it, such as 90d or 256MiB."""
    if value is None:
        return "none"
    if name == "dlq_max_size":
        return f"{value:.0f}"
    units = ((1 << 30, "GiB"), (1 << 20, "MiB"), (1 << 10, "KiB")) if name == "dlq_max_bytes" else (
        (86_400, "d"), (3600, "h"), (60, "m"), (1, "s")
    )  # fmt: skip
    return next(
        (f"{value / unit:.0f}{sign}" for unit, sign in units if value >= unit and value % unit == 0),
        f"{value:.0f}",
    )


def command(values: Mapping[str, float | None], path: str) -> str:
    """Return the shell command that sets these values."""
    given = " ".join(f"{name}={written(name, value)}" for name, value in values.items())
    return f"producer-core store set {given} --store {path}"


def doctor_result(problems: int, warnings: int, checks: int, seconds: float) -> tuple[str, str]:
    """Return a tone and the result of a doctor run."""
    checked = f"{plural(checks, 'check')} in {seconds:.0f} s"
    if problems:
        return "bad", f"{plural(problems, 'problem')} and {plural(warnings, 'warning')}; {checked}."
    if warnings:
        return "warning", f"No problems, {plural(warnings, 'warning')}; {checked}."
    return "good", f"No problems found; {checked}."


def doctor_progress(checks: int, seconds: float, about: str) -> str:
    """Return the progress of a doctor run."""
    target = f" {about}" if about else ""
    return f"Checking{target} … {plural(checks, 'check')} done after {seconds:.0f} s. An unresponsive broker times out after 10 s."


def alert_rules(rules: int, off: Sequence[str], routes: Sequence[str]) -> str:
    """Return the number of active rules and the notification routes."""
    notified = (
        f"notifications via {', '.join(routes)}"
        if routes
        else "no notifications outside this dashboard and the CLI"
    )
    disabled = f" ({', '.join(off)} disabled)" if off else ""
    return f"{plural(rules, 'rule')} active{disabled}; {notified}."


def listen_address(address: str) -> str:
    """Return the addresses that the server accepts connections on."""
    local = address in ("127.0.0.1", "localhost", "::1", "")
    return "This machine only." if local else f"Listening on {address}."


def sign_in_policy(*, passwords: int, oidc: bool) -> str:
    """Return how users sign in."""
    if oidc:
        return "OpenID Connect (OIDC) required."
    if passwords:
        return f"Password required; {plural(passwords, 'user')} configured."
    return "No sign-in required. Any local user can make changes."


# a change of the retention

UNITS: Mapping[str, float] = {"days": 86_400.0, "hours": 3600.0, "minutes": 60.0, "seconds": 1.0}
"""The units of a retention time in the form, in seconds."""

TAKES_EFFECT = (
    "Nothing is deleted by this click. Each running producer applies the retention once a minute. Without a running "
    "producer, the next one does, or producer-core store prune."
)

_AGGREGATED: Mapping[str, str] = {"keep_seconds": "minutes", "keep_minutes": "hours"}
_DELETED: Mapping[str, str] = {
    "keep_hours": "Statistics, resolved alerts, finished replays, audits and notices",
    "keep_settled": "Replayed, found and purged dead letters",
    "keep_ledger": "Ledger entries of acknowledged sequences",
}


def in_unit(seconds: float) -> tuple[float, str]:
    """Return a duration as a number and the largest unit in which it is whole, such as 90 and "days"."""
    unit = next((name for name, size in UNITS.items() if seconds >= size and seconds % size == 0), "seconds")
    return seconds / UNITS[unit], unit


def retention_change(name: str, before: float, after: float) -> str:
    """Return what a new retention time changes; for a shorter one, what cannot be restored."""
    change = f"{name}: {length(before)} → {length(after)}."
    if after > before:
        return f"{change} Data that was removed earlier is not restored."
    if coarse := _AGGREGATED.get(name):
        return (
            f"{change} Statistics older than {length(after)} are aggregated to {coarse}. "
            "The finer values cannot be restored."
        )
    return f"{change} {_DELETED[name]} older than {length(after)} are deleted. This cannot be undone."


def retention_changed(changes: Mapping[str, float]) -> str:
    """Return the result of a change."""
    listed = ", ".join(f"{name} is {length(value)}" for name, value in changes.items())
    return f"Retention changed: {listed}. Running producers apply it within a minute."
