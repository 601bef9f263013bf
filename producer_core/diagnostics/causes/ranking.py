"""The ranking of findings over time slices: each problem once, ongoing ones first, then by weight."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

from producer_core.diagnostics.causes.rules import RULES, failing, well
from producer_core.diagnostics.causes.values import CauseFinding, CauseInputs, merged

_PAST_PENALTY = 40.0
"""The score that a finding loses once its problem is over."""
_MIN_DURATION = 4.0
"""Seconds that a problem must last to be reported, unless its score reaches _SEVERE."""
_SEVERE = 85.0
_ENDED_AFTER = 10.0
"""Seconds without a new finding after which a problem is over."""
_RECENT = 20.0
"""Seconds without a new finding after which a problem that adds up over time is over."""
LATEST_S = 3.0
"""Seconds of the latest samples, which alone decide about momentary states."""
_MINUTE = 60.0


def diagnose(now: CauseInputs) -> tuple[CauseFinding, ...]:
    """Return the findings of one slice by weight."""
    return _ranked([*_found(now), *failing(now)])


def over_time(
    slices: Sequence[CauseInputs],
    now: float,
    last_minute: Sequence[CauseInputs] = (),
    *,
    last_seconds: Sequence[CauseInputs] = (),
    dead: int | None = None,
) -> tuple[CauseFinding, ...]:
    """Return the findings of all slices, each problem once, with the measurements of the slices that have it.

    Ongoing problems come first; the titles of the others are in the past tense. Short slices reveal short problems,
    which disappear in the mean of a long slice.

    `last_minute` contains short slices of the last minute, which decide what is ongoing; without them the end of
    `slices` decides. `last_seconds` contains slices of one second, which decide whether a broker is connected. `dead` is
    the number of dead letters, where another page counts it too. Without a problem, one finding states that all is
    well, even after earlier problems. Without measurements there are no findings.
    """
    if not slices:
        return ()
    whole = merged(slices) if dead is None else replace(merged(slices), dead=dead)
    problems = [*_lasting(slices), *_failing(slices, whole)]
    longest = max(part.seconds for part in slices)
    if last_minute:
        ongoing = _ongoing(last_minute, last_seconds)
        problems = [*problems, *_only_recent(problems, last_minute)]
        timed = [_timed(found, ongoing, now, exact=longest <= _MINUTE) for found in problems]
    else:
        timed = [_timed_by_slices(found, now, longest) for found in problems]
    if any(found.bad and found.ongoing for found in timed):
        return _ranked(timed)
    if any(found.bad for found in timed):
        return _ranked([*timed, *(well(merged(last_minute), again=True) if last_minute else ())])
    return _ranked([*timed, *well(whole)])


def _ongoing(
    last_minute: Sequence[CauseInputs], last_seconds: Sequence[CauseInputs]
) -> Mapping[str, CauseFinding]:
    """Return the findings of the last minute that its end confirms.

    The latest samples decide about momentary states. For messages that fail, the whole minute counts, because they
    fail one by one.
    """
    sampled = [part for part in last_seconds if part.samples] or [
        part for part in last_minute if part.samples
    ]
    newest = max((part.at + part.seconds for part in sampled), default=0.0)
    latest = [part for part in sampled if part.at + part.seconds > newest - LATEST_S]
    states = {found.key for found in diagnose(merged(latest or last_minute)) if found.state}
    end = max(part.at + part.seconds for part in last_minute)
    recent = [part for part in last_minute if part.at + part.seconds > end - _RECENT]
    confirmed = states | {found.key for found in diagnose(merged(recent)) if not found.state}
    return {
        found.key: found
        for found in diagnose(merged(last_minute))
        if found.key in confirmed or found.key == "failing"
    }


def _only_recent(
    problems: Sequence[CauseFinding], last_minute: Sequence[CauseInputs]
) -> Iterable[CauseFinding]:
    """Return the findings of the last minute that disappear in the mean of a long slice."""
    known = {found.key for found in problems}
    new = (found for found in diagnose(merged(last_minute)) if found.key not in known)
    return (replace(found, partly=True) for found in new)


def _timed(
    found: CauseFinding, ongoing: Mapping[str, CauseFinding], now: float, *, exact: bool
) -> CauseFinding:
    """Return the finding as ongoing or as over. The end of a long slice (not `exact`) is not the end of the problem."""
    if found.key in ongoing:
        return replace(found, until=max(found.until, ongoing[found.key].until))
    ended = found.until if exact else min(found.until, now - (_ENDED_AFTER if found.state else _MINUTE))
    return _over(replace(found, until=max(found.since, ended)))


def _over(found: CauseFinding) -> CauseFinding:
    return replace(found, ongoing=False, title=found.past or found.title, score=found.score - _PAST_PENALTY)


def _found(now: CauseInputs) -> list[CauseFinding]:
    until = now.at + now.seconds
    return [
        replace(found, since=now.at, until=until, lasted=now.seconds) for rule in RULES for found in rule(now)
    ]


def _ranked(found: Iterable[CauseFinding]) -> tuple[CauseFinding, ...]:
    return tuple(sorted(found, key=lambda finding: (not finding.ongoing, -finding.score, finding.key)))


def _lasting(slices: Sequence[CauseInputs]) -> Iterable[CauseFinding]:
    """Return the problems that are severe or last long enough."""
    affected_by: dict[str, list[CauseInputs]] = {}
    worst: dict[str, CauseFinding] = {}
    for part in slices:
        for found in _found(part):
            affected_by.setdefault(found.key, []).append(part)
            worst[found.key] = max(worst.get(found.key, found), found, key=lambda known: known.score)
    for key, affected in affected_by.items():
        if worst[key].score >= _SEVERE or sum(part.seconds for part in affected) >= _MIN_DURATION:
            found = _combined(key, affected, worst[key])
            yield replace(found, partly=len(affected) < len(slices))


def _combined(key: str, affected: Sequence[CauseInputs], worst: CauseFinding) -> CauseFinding:
    """Return the finding with the measurements of all the slices that have the problem."""
    together = merged(affected)
    net = replace(together, seconds=sum(part.seconds for part in affected))
    found = next((finding for finding in _found(net) if finding.key == key), worst)
    until = together.at + together.seconds
    return replace(found, since=together.at, until=until, lasted=net.seconds)


def _failing(slices: Sequence[CauseInputs], whole: CauseInputs) -> Iterable[CauseFinding]:
    """Return the finding about failed messages, as a share of all messages, from the first failed slice to the last."""
    failed = [part for part in slices if part.dead]
    if failed:
        span = merged(failed)
        for found in failing(replace(whole, at=span.at, seconds=span.seconds)):
            yield replace(found, lasted=sum(part.seconds for part in failed))


def _timed_by_slices(found: CauseFinding, now: float, width: float) -> CauseFinding:
    """Return the finding as ongoing or as over. The current slice may have too little data, so the last one counts too."""
    return found if found.until >= now - max(width, _ENDED_AFTER) else _over(found)
