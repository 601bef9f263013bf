"""The ranking: what the rules find in slices of time, each once, what weighs most first."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace

from producer_core.diagnosis.rules import RULES, Rule, failing, well
from producer_core.diagnosis.values import Finding, Numbers

_PAST = 40.0
"""What a finding that is over weighs less."""


def diagnose(now: Numbers) -> tuple[Finding, ...]:
    """What is found in one slice, what weighs most first."""
    return _ranked(_found(now, (*RULES, failing)))


def over_time(slices: Sequence[Numbers], now: float) -> tuple[Finding, ...]:
    """What is found in any slice, each once, as it was when it was worst; what goes on now comes first.

    With numbers and no trouble one finding says that all is well. Without numbers there is none.
    """
    by_key: dict[str, Finding] = {}
    for one in slices:
        for found in _found(one, RULES):
            by_key[found.key] = _worse(by_key.get(found.key), found)
    whole = _messages(slices)
    trouble = [*by_key.values(), *failing(whole)]
    width = max((one.seconds for one in slices), default=0.0)
    timed = [_aged(found, now, width) for found in trouble]
    if any(found.tone in ("bad", "warning") for found in timed):
        return _ranked(timed)
    return _ranked([*timed, *well(whole, slices)])


def _found(now: Numbers, rules: Iterable[Rule]) -> list[Finding]:
    return [replace(found, since=now.at, until=now.at + now.seconds) for rule in rules for found in rule(now)]


def _ranked(found: Iterable[Finding]) -> tuple[Finding, ...]:
    return tuple(sorted(found, key=lambda one: (-one.score, one.key)))


def _worse(known: Finding | None, found: Finding) -> Finding:
    if known is None:
        return found
    worst = max(known, found, key=lambda one: one.score)
    return replace(worst, since=min(known.since, found.since), until=max(known.until, found.until))


def _aged(found: Finding, now: float, width: float) -> Finding:
    """The slice that runs now may have too few numbers yet, so the one before counts as well."""
    ongoing = found.until >= now - width
    return replace(found, ongoing=ongoing, score=found.score - (0.0 if ongoing else _PAST))


def _messages(slices: Sequence[Numbers]) -> Numbers:
    """What became of messages over all slices."""
    causes: dict[tuple[str, str], int] = {}
    for one in slices:
        for topic, code, count in one.causes:
            causes[topic, code] = causes.get((topic, code), 0) + count
    ordered = sorted(causes.items(), key=lambda item: (-item[1], item[0]))
    failed = [one for one in slices if one.dead]
    shown = failed or list(slices)
    begun = min((one.at for one in shown), default=0.0)
    return Numbers(
        at=begun,
        seconds=max((one.at + one.seconds for one in shown), default=0.0) - begun,
        acknowledged=sum(one.acknowledged for one in slices),
        dead=sum(one.dead for one in slices),
        samples=sum(one.samples for one in slices),
        causes=tuple((topic, code, count) for (topic, code), count in ordered),
    )
