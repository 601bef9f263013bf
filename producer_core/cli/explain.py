"""The `explain` command: print the meaning of an error code and its fix."""

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
    "local": "local: the client rejected the message before sending it",
    "permanent": "permanent: a resend without changes fails again",
    "temporary": "temporary: a resend may succeed",
    "timed_out": "timed out: no response in time",
    "fatal": "fatal: the client is unusable and is recreated",
}
_VERDICTS = {
    "not_sent": "not_sent: the message never left the client; a resend is safe",
    "rejected": "rejected: the broker rejected the message; a resend is safe if it was the only send",
    "possibly_persisted": "possibly_persisted: the broker may have the message; a resend may write it twice",
}


@click.command(
    short_help="Explain an error code and how to fix it.",
    context_settings={"ignore_unknown_options": True},  # librdkafka's own numbers are negative
)
@click.argument("code", required=False)
@click.option("--all", "everything", is_flag=True, help="List every code with its meaning.")
@options.as_json
def explain(code: str | None, everything: bool, as_json: bool) -> None:
    """Explain CODE: a name from librdkafka, the Kafka protocol, kafka-python or Java, or a number.

    \b
      producer-core explain MSG_SIZE_TOO_LARGE
      producer-core explain NOT_LEADER_OR_FOLLOWER
      producer-core explain NotLeaderForPartitionError
      producer-core explain OutOfOrderSequenceException
      producer-core explain 19
      producer-core explain --all
    """
    from producer_core.kafka.classify import bare_name, known_failures, lookup, other_names

    if everything:
        _list(known_failures(), as_json)
        return
    if code is None:
        raise click.UsageError("Missing argument 'CODE'; --all lists every code.")
    if code.startswith("-") and not code[1:].isdecimal():
        raise click.NoSuchOption(code)
    code = bare_name(code)
    if (meaning := _exception(code)) is not None:
        output.emit({"code": code, "meaning": meaning}) if as_json else output.say(
            f"{code}\n{_wrapped('', meaning)}"
        )
        return
    failure = lookup(code)
    if failure.code not in {known.code for known in known_failures()}:
        raise Failed(f"Unknown error code {code}.", "See producer-core explain --all.")
    others = other_names(failure.code)
    if as_json:
        output.emit({**dataclasses.asdict(failure), "also_called": others})
        return
    output.say(f"{failure.code} ({failure.number})")
    output.say(textwrap.fill(failure.meaning, 96, initial_indent="  ", subsequent_indent="  "))
    if others:
        output.say(_wrapped("Also", ", ".join(others)))
    output.say(f"  Kind     {_KINDS.get(failure.kind, failure.kind)}")
    output.say(f"  Verdict  {_VERDICTS.get(failure.verdict, failure.verdict)}")
    output.say(_wrapped("To do", failure.advice))


def _exception(name: str) -> str | None:
    """Return the meaning of an exception class of producer_core or Python; None for a Kafka error code."""
    found = getattr(errors, name, None) or getattr(builtins, name, None)
    if found is BufferError or not (isinstance(found, type) and issubclass(found, Exception)):
        return None  # confluent_kafka raises BufferError for a full queue, which is an error code
    meaning = (found.__doc__ or "").split("\n\n")[0].strip()
    if issubclass(found, errors.ProducerError):
        return f"Raised by producer_core: {meaning} The exception message contains the fix."
    subclasses = [
        item.__name__ for item in vars(errors).values() if isinstance(item, type) and found in item.__bases__
    ]
    raised_as = (
        f" producer_core raises it as {' or '.join(subclasses)}, whose message contains the fix."
        if subclasses
        else ""
    )
    return f"A Python exception, not a Kafka error: {meaning}{raised_as} The traceback shows the function that raised it."


def _wrapped(label: str, text: str) -> str:
    return textwrap.fill(text, 96, initial_indent=f"  {label:8} ", subsequent_indent=" " * 11)


def _list(failures: Sequence[Failure], as_json: bool) -> None:
    if as_json:
        output.emit([dataclasses.asdict(failure) for failure in failures])
        return
    rows = [(failure.code, failure.number or "", failure.kind, failure.meaning) for failure in failures]
    output.table(("code", "number", "kind", "meaning"), rows, right=("number",), shrink=("meaning",))
