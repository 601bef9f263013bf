"""The settings, in words: what each means, its value with a unit, and the command that changes it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from producer_core.dashboard.wording.numbers import count, plural, size

MEANINGS: Mapping[str, str] = {
    "keep_seconds": "Statistics by the second; then they are added up to minutes.",
    "keep_minutes": "Statistics by the minute; then they are added up to hours.",
    "keep_hours": "Statistics by the hour, resolved alerts, ended replays, audits, notices; then they are deleted.",
    "keep_settled": "Dead letters that were replayed, landed or purged; then they are deleted. Archived ones stay until somebody purges them.",
    "keep_ledger": "The ledger of acknowledged sequences, where a producer keeps one here; then it is deleted.",
    "dlq_max_size": "Dead letters that may wait.",
    "dlq_max_bytes": "Bytes of their values.",
    "dlq_max_age": "How long the oldest may wait.",
}
"""What each setting of a store is about."""

KEPT_FOR_GOOD = "Dead letters that wait for a decision, and the audit, are never deleted."
BOUNDS = "Beyond a bound an alert says so; nothing is dropped. A producer may bring a bound of its own where none is set here."
ALWAYS_MASKED = (
    "Always: fields and headers with a secret's name (password, token, authorization, api_key, …), e-mail addresses, card "
    "numbers, bearer and basic credentials, JSON web tokens, keys of well-known services, passwords in URLs."
)


def length(seconds: float) -> str:
    """A time in the largest unit that is whole: «90 days», «36 hours»."""
    for unit, name in ((86_400, "day"), (3600, "hour"), (60, "minute")):
        if seconds >= unit and seconds % unit == 0:
            return plural(int(seconds // unit), name)
    return f"{seconds:,.0f} s"


def setting(name: str, value: float | None) -> str:
    """A value with its unit."""
    if value is None:
        return "no bound"
    if name == "dlq_max_size":
        return count(value)
    return size(value) if name == "dlq_max_bytes" else length(value)


def written(name: str, value: float | None) -> str:
    """A value as the command takes it: 90d, 256MiB."""
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
    """What sets these values, for a shell."""
    given = " ".join(f"{name}={written(name, value)}" for name, value in values.items())
    return f"producer-core store set {given} --store {path}"


def examined(problems: int, warnings: int, checks: int, seconds: float) -> tuple[str, str]:
    """How an examination ended: a tone and a sentence."""
    looked = f"{plural(checks, 'check')} in {seconds:.0f} s"
    if problems:
        return "bad", f"{plural(problems, 'problem')} and {plural(warnings, 'warning')}; {looked}."
    if warnings:
        return "warning", f"No problem and {plural(warnings, 'warning')}; {looked}."
    return "good", f"Everything is well; {looked}."


def examining(checks: int, seconds: float, about: str) -> str:
    """While it goes on."""
    where = f" at {about}" if about else ""
    return f"The doctor looks{where} … {plural(checks, 'check')} done after {seconds:.0f} s. A broker that does not answer takes 10 s."


def alert_rules(rules: int, off: Sequence[str], routes: Sequence[str]) -> str:
    """How many rules are in force and whom they tell."""
    told = (
        f"people are told over {', '.join(routes)}"
        if routes
        else "nobody is told but this dashboard and the shell"
    )
    switched = f" ({', '.join(off)} switched off)" if off else ""
    return f"{plural(rules, 'rule')} in force{switched}; {told}."


def listening(address: str) -> str:
    """Who can reach the page."""
    here = address in ("127.0.0.1", "localhost", "::1", "")
    return "It listens on this machine only." if here else f"It listens on {address}."


def admitted(*, passwords: int, oidc: bool) -> str:
    """Who has to sign in."""
    if oidc:
        return "People sign in with their provider (OIDC)."
    if passwords:
        return f"People sign in by password; {passwords:,} {'has' if passwords == 1 else 'have'} one."
    return "Nobody has to sign in: who uses this machine may act."
