"""The `explain` command: a row of the failures table."""

from __future__ import annotations

import builtins
import dataclasses
import textwrap
from collections.abc import Sequence
from typing import TYPE_CHECKING

import click

from producer_core import errors
from producer_core.cli import options, output
from producer_core.cli.lazy_group import Failed

if TYPE_CHECKING:
    from producer_core.kafka.classify import Failure

_KINDS = {
    "local": "local: the client refused it, nothing left this machine",
    "permanent": "permanent: sending it again unchanged fails again",
    "temporary": "temporary: sending it again may succeed",
    "timed_out": "timed out: nobody answered in time",
    "fatal": "fatal: the client broke and is made anew",
}
_VERDICTS = {
    "not_sent": "not_sent: it never left us, a resend is safe",
    "rejected": "rejected: the broker refused it, a resend is safe (where the timing proves it)",
    "possibly_persisted": "possibly_persisted: the broker may have it, a resend may write it twice",
}


@click.command(short_help="What an error code means and what to do about it.")
@click.argument("code", required=False)
@click.option("--all", "everything", is_flag=True, help="Every code, each with its meaning.")
@options.as_json
def explain(code: str | None, everything: bool, as_json: bool) -> None:
    """What CODE means, by the name in librdkafka, Kafka's protocol, kafka-python or Java, or by its number.

    \b
      producer-core explain MSG_SIZE_TOO_LARGE
      producer-core explain NOT_LEADER_OR_FOLLOWER
      producer-core explain NotLeaderForPartitionError
      producer-core explain OutOfOrderSequenceException
      producer-core explain 19
      producer-core explain --all
    """
    from producer_core.kafka.classify import known_failures, lookup, other_names

    if everything:
        _list(known_failures(), as_json)
        return
    if code is None:
        raise click.UsageError("Missing argument 'CODE'; --all lists every code.")
    if (told := _exception(code)) is not None:
        output.emit({"code": code, "meaning": told}) if as_json else output.say(
            f"{code}\n{_filled('', told)}"
        )
        return
    failure = lookup(code)
    if failure.code not in {known.code for known in known_failures()}:
        raise Failed(f"There is no error code {code}.", "See producer-core explain --all.")
    others = other_names(failure.code)
    if as_json:
        output.emit({**dataclasses.asdict(failure), "also_called": others})
        return
    output.say(f"{failure.code} ({failure.number})")
    output.say(textwrap.fill(failure.meaning, 96, initial_indent="  ", subsequent_indent="  "))
    if others:
        output.say(_filled("Also", ", ".join(others)))
    output.say(f"  Kind     {_KINDS.get(failure.kind, failure.kind)}")
    output.say(f"  Verdict  {_VERDICTS.get(failure.verdict, failure.verdict)}")
    output.say(_filled("To do", failure.advice))


def _exception(name: str) -> str | None:
    """What a class of ours or of Python's means; None for a code of Kafka's."""
    found = getattr(errors, name, None) or getattr(builtins, name, None)
    if not (isinstance(found, type) and issubclass(found, Exception)):
        return None
    meaning = (found.__doc__ or "").split("\n\n")[0].strip()
    if issubclass(found, errors.ProducerError):
        return f"Raised by producer_core: {meaning} The message of the exception says what to do."
    children = [
        one.__name__ for one in vars(errors).values() if isinstance(one, type) and found in one.__bases__
    ]
    ours = (
        f" producer_core raises it as {' or '.join(children)}, whose message says what to do."
        if children
        else ""
    )
    return f"An exception of Python's, no error of Kafka's: {meaning}{ours} A function of yours that raised it is in the traceback."


def _filled(word: str, text: str) -> str:
    return textwrap.fill(text, 96, initial_indent=f"  {word:8} ", subsequent_indent=" " * 11)


def _list(failures: Sequence[Failure], as_json: bool) -> None:
    if as_json:
        output.emit([dataclasses.asdict(failure) for failure in failures])
        return
    rows = [(failure.code, failure.number or "", failure.kind, failure.meaning) for failure in failures]
    output.table(("code", "number", "kind", "meaning"), rows, right=("number",), shrink=("meaning",))
