"""Each action of an operator as the command and the Python code that do the same. One function an action.

A text is empty where no command or no public Python name does the same, or where it would show a value that pages mask.
"""

from __future__ import annotations

import json
import shlex
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any

from producer_core._internal.masking import mask_or_hide
from producer_core.dlq import DeadLetterFilter
from producer_core.dlq.filter import command_options
from producer_core.dlq.revisions.changes import UNCHANGED, FieldChange
from producer_core.dlq.revisions.edit_form import named_change
from producer_core.dlq.revisions.field_path import Path as FieldPath
from producer_core.dlq.revisions.field_path import argument_of
from producer_core.dlq.revisions.plan_revision import EditedDeadLetter
from producer_core.store import Retention

MAX_IDS = 1_000
"""Message ids that a command can hold; a larger selection by hand has no code."""


@dataclass(frozen=True)
class ActionCode:
    """An action as code: `command` for a shell, `python` for a program. Empty where there is none."""

    command: str = ""
    python: str = ""

    def __bool__(self) -> bool:
        return bool(self.command or self.python)

    @property
    def texts(self) -> list[tuple[str, str]]:
        """Return the labels of the menu items that copy it, with what they copy."""
        known = (("Copy as command", self.command), ("Copy as Python", self.python))
        return [(label, text) for label, text in known if text]


NONE = ActionCode()


# dead letters


def replay(store: Path, where: DeadLetterFilter, *, at_once: bool) -> ActionCode:
    """Return the replay of these dead letters. Unless it starts at once, the command asks first and Python only plans it."""
    where = replace(where, state="dead")
    start = ".go()" if at_once else ""
    return _of_selection(store, "dlq replay", where, f"replay(%s){start}", yes=at_once)


def clear(store: Path, where: DeadLetterFilter) -> ActionCode:
    """Return the archiving of these dead letters."""
    return _of_selection(store, "dlq archive", replace(where, state="dead"), "clear(%s)")


def restore(store: Path, where: DeadLetterFilter) -> ActionCode:
    """Return the restoring of archived dead letters. Python has no public name for it."""
    return _of_selection(store, "dlq restore", where)


def undo_clear(store: Path, undo: tuple[DeadLetterFilter, float]) -> ActionCode:
    """Return the undo of one archiving. Python has no public name for it."""
    where, moment = undo
    return _of_selection(store, "dlq restore", where, options=(f"--moment={moment!r}",))


# edits


def edit(
    store: Path, message_id: str, edited: EditedDeadLetter, change: FieldChange, reason: str
) -> ActionCode:
    """Return the edit of one dead letter by its fields. Python edits fields only, so headers and keys need the command."""
    named = named_change(edited, change)
    if named is None or _is_masked(reason):
        return NONE
    options = _edit_options(named)
    command = _shell(store, "dlq edit", f"--message-id={message_id}", *options, f"--reason={reason}", "--yes")
    where = _filter(DeadLetterFilter(ids=(message_id,)))
    return ActionCode(command if options else "", _edit_code(store, edited, named, where, reason))


def undo_edit(store: Path, message_id: str) -> ActionCode:
    """Return the undo of the latest revision of one dead letter."""
    where = DeadLetterFilter(ids=(message_id,), state=None)
    return _of_selection(store, "dlq undo", where, "undo_edits(%s)")


# replays


def go(
    store: Path,
    operation_id: str,
    *,
    newer: str | None = None,
    inconclusive: str | None = None,
    rate: float | None = None,
    canary: int | None = None,
    stop_percent: float | None = None,
) -> ActionCode:
    """Return the start of a replay after its dry run. Python has no argument for the canary and the automatic stop."""
    chosen = {"newer": newer, "inconclusive": inconclusive, "rate": rate}
    limits = {"canary": canary, "stop_percent": stop_percent}
    options = [
        f"--{name.replace('_', '-')}={_word(one)}"
        for name, one in (chosen | limits).items()
        if one is not None
    ]
    arguments = ", ".join(f"{name}={one!r}" for name, one in chosen.items() if one is not None)
    without = any(one is not None for one in limits.values())
    return _of_replay(
        store, operation_id, "go", *options, "--yes", python="" if without else f"go({arguments})"
    )


def pause(store: Path, operation_id: str) -> ActionCode:
    return _of_replay(store, operation_id, "pause", python="pause()")


def resume(store: Path, operation_id: str, *, rate: float | None = None) -> ActionCode:
    options, argument = ((), "") if rate is None else ((f"--rate={_word(rate)}",), f"rate={rate!r}")
    return _of_replay(store, operation_id, "resume", *options, python=f"resume({argument})")


def cancel(store: Path, operation_id: str) -> ActionCode:
    return _of_replay(store, operation_id, "cancel", "--yes", python="cancel()")


# requests


def approve(store: Path, request_id: str, *, reason: str = "") -> ActionCode:
    options, argument = ((f"--reason={reason}",), f", reason={reason!r}") if reason else ((), "")
    python = _python(store, f"approve({request_id!r}{argument})")
    return _unless_masked(
        ActionCode(_shell(store, "dlq approve", *options, "--yes", about=[request_id]), python), reason
    )


def refuse(store: Path, request_id: str, *, reason: str) -> ActionCode:
    """Return the refusal of a request; none without a reason, which it requires."""
    if not reason.strip():
        return NONE
    python = _python(store, f"refuse({request_id!r}, reason={reason!r})")
    return _unless_masked(
        ActionCode(_shell(store, "dlq refuse", f"--reason={reason}", about=[request_id]), python), reason
    )


def withdraw(store: Path, request_id: str) -> ActionCode:
    """Return the withdrawal of the own request. Python has no public name for it."""
    return ActionCode(_shell(store, "dlq withdraw", about=[request_id]))


# causes, objectives, the retention and alerts, for which Python has no public name


def resolve(store: Path, group: str, *, fixed_in: str = "", note: str = "") -> ActionCode:
    given = {"in": fixed_in.strip(), "note": note.strip()}
    options = [f"--{name}={text}" for name, text in given.items() if text]
    return _unless_masked(ActionCode(_shell(store, "dlq resolve", *options, about=[group])), *given.values())


def reopen(store: Path, group: str) -> ActionCode:
    return ActionCode(_shell(store, "dlq reopen", about=[group]))


def set_objective(store: Path, topic: str, percent: float, within: float) -> ActionCode:
    about = [topic, f"{_word(percent)}%", f"{_word(within)}s"]
    return ActionCode(_shell(store, "dlq objective set", about=about)) if topic else NONE


def remove_objective(store: Path, topic: str) -> ActionCode:
    return ActionCode(_shell(store, "dlq objective unset", about=[topic])) if topic else NONE


def change_retention(store: Path, changes: Mapping[str, float]) -> ActionCode:
    """Return the change of retention times, in seconds. A default value is named as such, so that it stays the default."""
    default = Retention()
    about = [
        f"{name}={'default' if value == getattr(default, name) else f'{_word(value)}s'}"
        for name, value in changes.items()
    ]
    return ActionCode(_shell(store, "store set", about=about)) if about else NONE


def acknowledge(store: Path, alert_ids: Sequence[str]) -> ActionCode:
    """Return the acknowledgement of alerts: one command each."""
    return ActionCode("\n".join(_shell(store, "alerts ack", about=[one]) for one in alert_ids))


def silence(store: Path, rule: str, subject: str, seconds: float, why: str) -> ActionCode:
    given = {"subject": subject, "why": why.strip()}
    options = [f"--for={_word(seconds)}s", *(f"--{name}={text}" for name, text in given.items() if text)]
    return _unless_masked(ActionCode(_shell(store, "alerts silence", *options, about=[rule])), why)


def unsilence(store: Path, rule: str, subject: str) -> ActionCode:
    options = [f"--subject={subject}"] if subject else []
    return ActionCode(_shell(store, "alerts unsilence", *options, about=[rule]))


# the texts


def _of_selection(
    store: Path,
    verb: str,
    where: DeadLetterFilter,
    act: str = "",
    *,
    yes: bool = True,
    options: Sequence[str] = (),
) -> ActionCode:
    """Return the code of an action on a selection. `act` is the method of the monitor, with %s for the filter."""
    if len(where.ids) > MAX_IDS or _is_masked(where.key or "", where.body or "", where.text or ""):
        return NONE
    command = ""
    if where.application_or_unnamed is None:  # it has no option; the commands select the state themselves
        selection = command_options(replace(where, state="dead"))
        command = _shell(store, verb, *selection, *options, *(["--yes"] if yes else []))
    return ActionCode(command, _python(store, act.replace("%s", _filter(where))) if act else "")


def _of_replay(store: Path, operation_id: str, verb: str, *options: str, python: str) -> ActionCode:
    command = _shell(store, f"replay {verb}", *options, about=[operation_id])
    if not python:
        return ActionCode(command)
    found = f"next(one for one in Monitor({str(store)!r}).replays() if one.operation_id == {operation_id!r})"
    return ActionCode(command, f"from producer_core import Monitor\n\nreplay = {found}\nreplay.{python}\n")


def _shell(store: Path, verb: str, *options: str, about: Sequence[str] = ()) -> str:
    """Return the command, quoted for a shell; empty for a text that no shell can pass."""
    where = f"--store={store}"
    dashed = any(one.startswith("-") for one in about)
    words = [*options, where, "--", *about] if dashed else [*about, *options, where]
    return "" if any("\0" in one for one in words) else shlex.join(["producer-core", *verb.split(), *words])


def _python(store: Path, act: str, definition: str = "") -> str:
    names = "DeadLetterFilter, Monitor" if "DeadLetterFilter(" in act else "Monitor"
    return f"from producer_core import {names}\n\n{definition}Monitor({str(store)!r}).{act}\n"


def _filter(where: DeadLetterFilter) -> str:
    """Return the filter as code, without defaults."""
    chosen = [
        f"{field.name}={value!r}"
        for field in fields(where)
        if (value := getattr(where, field.name)) != field.default
    ]
    return f"DeadLetterFilter({', '.join(chosen)})"


def _word(value: float | str) -> str:
    """Return a number as an operator writes it, without `.0`."""
    return repr(int(value)) if isinstance(value, float) and value.is_integer() else f"{value}"


def _is_masked(*texts: str) -> bool:
    """Return whether a page would mask one of the texts."""
    return any(mask_or_hide(text) != text for text in texts)


def _unless_masked(code: ActionCode, *texts: str) -> ActionCode:
    return NONE if _is_masked(*texts) else code


# the texts of an edit


def _edit_options(change: FieldChange) -> list[str]:
    """Return the options of `dlq edit`; none if one cannot be written."""
    names = [argument_of(path) for path in (*(path for path, _ in change.set), *change.unset)]
    headers = [(name, value) for name, value in change.set_headers if value is not None and _is_header(name)]
    if None in names or len(headers) < len(change.set_headers) or change.key == b"":
        return []
    options = [f"--set={argument_of(path)}={_json(value)}" for path, value in change.set]
    options += [f"--unset={argument_of(path)}" for path in change.unset]
    options += [] if change.value is UNCHANGED else [f"--value={_json(change.value)}"]
    options += [f"--set-header={name}={value.decode()}" for name, value in headers]
    options += [f"--unset-header={name}" for name in change.unset_headers]
    options += [] if change.key is None else [f"--set-key={change.key.decode()}"]
    return options


def _is_header(name: str) -> bool:
    return bool(name) and name == name.strip() and "=" not in name


def _json(value: Any) -> str:
    return json.dumps(value, ensure_ascii=_has_surrogates(value))


def _has_surrogates(value: Any) -> bool:
    try:
        json.dumps(value, ensure_ascii=False).encode()
    except UnicodeEncodeError:
        return True
    return False


def _edit_code(store: Path, edited: EditedDeadLetter, change: FieldChange, where: str, reason: str) -> str:
    if change.set_headers or change.unset_headers or change.key is not None or not edited.now.has_fields:
        return ""
    if (
        not change.unset
        and change.value is UNCHANGED
        and None not in (names := [argument_of(one) for one, _ in change.set])
    ):
        values = ", ".join(f"{name!r}: {value!r}" for name, (_, value) in zip(names, change.set, strict=True))
        return _python(store, f"edit({{{values}}}, {where}).go({reason!r})")
    body = "".join(f"    {line}\n" for line in _statements(edited.now.view, change))
    return _python(store, f"edit(change, {where}).go({reason!r})", f"def change(value):\n{body}\n")


def _statements(view: Any, change: FieldChange) -> Iterator[str]:
    """Yield the lines of a function that makes the change; `view` says which parts of the value are lists."""
    if change.value is not UNCHANGED:
        yield f"return {change.value!r}"
        return
    for path, value in change.set:
        holder, place = _place(view, path)
        grows = isinstance(place, int) and place >= len(holder)
        yield (
            f"{_access(view, path[:-1])}.append({value!r})" if grows else f"{_access(view, path)} = {value!r}"
        )
    for path in change.unset:
        yield f"del {_access(view, path)}"
    yield "return value"


def _place(view: Any, path: FieldPath) -> tuple[Any, str | int]:
    """Return the object or list that has the last step of a path, and the step as its key or index."""
    for step in path[:-1]:
        view = view[int(step)] if isinstance(view, list) else view[step]
    return view, int(path[-1]) if isinstance(view, list) else path[-1]


def _access(view: Any, path: FieldPath) -> str:
    steps = [_place(view, path[: number + 1])[1] for number in range(len(path))]
    return "value" + "".join(f"[{step!r}]" for step in steps)
