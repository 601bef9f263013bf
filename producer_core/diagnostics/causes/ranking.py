"""The ranking: what the rules find in slices of time, each once, what holds now first, then what weighs most."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

from producer_core.diagnostics.causes.rules import RULES, failing, well
from producer_core.diagnostics.causes.values import CauseFinding, CauseInputs, merged

_PAST = 40.0
"""What a finding that is over weighs less."""
_LASTS = 4.0
"""Seconds that something must have lasted to be worth a word, unless it weighs _GRAVE."""
_GRAVE = 85.0
_JUST_NOW = 10.0
"""Seconds after which what was not found again is over."""
_RECENT = 20.0
"""Seconds without it after which what adds up is over."""
_LOOKS = 3.0
"""Seconds of the last looks, which say how things stand: what was found before them is over, however often it was."""
_MINUTE = 60.0


def diagnose(now: CauseInputs) -> tuple[CauseFinding, ...]:
    """What is found in one slice, what weighs most first."""
    return _ranked([*_found(now), *failing(now)])


def over_time(
    slices: Sequence[CauseInputs],
    now: float,
    lately: Sequence[CauseInputs] = (),
    *,
    looks: Sequence[CauseInputs] = (),
    dead: int | None = None,
) -> tuple[CauseFinding, ...]:
    """What is found in any slice, each once, with the numbers of the slices that it was found in; what goes on now
    comes first, and what is over is said in the past. Short slices find short trouble, which would drown in the mean of
    a long one.

    `lately` are short slices of the last minute, which say what holds now; without them the end of `slices` says it.
    `looks` are the last seconds one by one: whether a broker is there now. `dead` is how many messages died, where others
    count it too. With numbers and no trouble one finding says that all is well, also where it was not before. Without numbers there
    is none.
    """
    if not slices:
        return ()
    whole = merged(slices) if dead is None else replace(merged(slices), dead=dead)
    trouble = [*_lasting(slices), *_failing(slices, whole)]
    if lately:
        holding, known = _holding(lately, looks), max(one.seconds for one in slices) <= _MINUTE
        timed = [_held(found, holding, now, exact=known) for found in _with_new(trouble, lately)]
    else:
        timed = [_aged(found, now, max(one.seconds for one in slices)) for found in trouble]
    if any(found.bad and found.ongoing for found in timed):
        return _ranked(timed)
    if any(found.bad for found in timed):
        return _ranked([*timed, *(well(merged(lately), again=True) if lately else ())])
    return _ranked([*timed, *well(whole)])


def _holding(lately: Sequence[CauseInputs], looks: Sequence[CauseInputs]) -> Mapping[str, CauseFinding]:
    """What is found in the last minute and its end shows too; of how things stand what the last looks say. Messages that
    die come one by one, so of these the whole minute counts."""
    heard = [one for one in looks if one.samples] or [one for one in lately if one.samples]
    newest = max((one.at + one.seconds for one in heard), default=0.0)
    latest = [one for one in heard if one.at + one.seconds > newest - _LOOKS]
    states = {found.key for found in diagnose(merged(latest or lately)) if found.state}
    ended = max(one.at + one.seconds for one in lately)
    recent = [one for one in lately if one.at + one.seconds > ended - _RECENT]
    still = states | {found.key for found in diagnose(merged(recent)) if not found.state}
    found = diagnose(merged(lately))
    return {one.key: one for one in found if one.key in still or one.key == "failing"}


def _with_new(trouble: Sequence[CauseFinding], lately: Sequence[CauseInputs]) -> Iterable[CauseFinding]:
    """And what only the last minute shows: in a long slice it may drown."""
    known = {found.key for found in trouble}
    new = (found for found in diagnose(merged(lately)) if found.key not in known)
    return (*trouble, *(replace(found, partly=True) for found in new))


def _held(
    found: CauseFinding, holding: Mapping[str, CauseFinding], now: float, *, exact: bool
) -> CauseFinding:
    """As it stands now. Of what is over a long slice (not `exact`) does not say until when it was: not until now."""
    if found.key in holding:
        return replace(found, until=max(found.until, holding[found.key].until))
    ended = found.until if exact else min(found.until, now - (_JUST_NOW if found.state else _MINUTE))
    return _over(replace(found, until=max(found.since, ended)))


def _over(found: CauseFinding) -> CauseFinding:
    return replace(found, ongoing=False, title=found.past or found.title, score=found.score - _PAST)


def _found(now: CauseInputs) -> list[CauseFinding]:
    until = now.at + now.seconds
    return [
        replace(found, since=now.at, until=until, lasted=now.seconds) for rule in RULES for found in rule(now)
    ]


def _ranked(found: Iterable[CauseFinding]) -> tuple[CauseFinding, ...]:
    return tuple(sorted(found, key=lambda one: (not one.ongoing, -one.score, one.key)))


def _lasting(slices: Sequence[CauseInputs]) -> Iterable[CauseFinding]:
    where: dict[str, list[CauseInputs]] = {}
    worst: dict[str, CauseFinding] = {}
    for one in slices:
        for found in _found(one):
            where.setdefault(found.key, []).append(one)
            worst[found.key] = max(worst.get(found.key, found), found, key=lambda known: known.score)
    for key, affected in where.items():
        if worst[key].score >= _GRAVE or sum(one.seconds for one in affected) >= _LASTS:
            found = _as_a_whole(key, affected, worst[key])
            yield replace(found, partly=len(affected) < len(slices))


def _as_a_whole(key: str, affected: Sequence[CauseInputs], worst: CauseFinding) -> CauseFinding:
    """The finding again, with the numbers of all the slices in which it was found."""
    together = merged(affected)
    exactly = replace(together, seconds=sum(one.seconds for one in affected))
    found = next((one for one in _found(exactly) if one.key == key), worst)
    until = together.at + together.seconds
    return replace(found, since=together.at, until=until, lasted=exactly.seconds)


def _failing(slices: Sequence[CauseInputs], whole: CauseInputs) -> Iterable[CauseFinding]:
    """Of all messages of the range, as the overview counts them, and from the first that failed to the last."""
    failed = [one for one in slices if one.dead]
    if failed:
        span = merged(failed)
        for found in failing(replace(whole, at=span.at, seconds=span.seconds)):
            yield replace(found, lasted=sum(one.seconds for one in failed))


def _aged(found: CauseFinding, now: float, width: float) -> CauseFinding:
    """The slice that runs now may have too few numbers yet, so the one before counts as well."""
    return found if found.until >= now - max(width, _JUST_NOW) else _over(found)
