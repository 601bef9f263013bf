"""Classify errors: what an error code means, whether a retry may help, and whether a resend is safe."""

from __future__ import annotations

import difflib
import hashlib
import re
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from functools import cache, lru_cache

from confluent_kafka import KafkaError

from producer_core.errors import ConfigError
from producer_core.events import Kind, Verdict
from producer_core.kafka.error_aliases import ALIASES, NO_ERROR, PARENTS
from producer_core.kafka.error_codes import NON_PRODUCER_CODES, TABLE, UNNAMED_CODES

_NOT_FOR_PRODUCERS = "For consumers, admin clients or other brokers. A producer should not receive this code."
_UNKNOWN = "producer_core has no description of this code."
_UNKNOWN_ADVICE = "Check whether the message is on the topic before sending it again, and report the code."
_CHECKS_TOPIC = re.compile(r"whether (?:the message|it) is on the topic")
_NEVER_LEFT_ADVICE = (
    "The message never left the client: it is safe to send again. Check bootstrap.servers, the network and the "
    "security settings if no broker was connected."
)
_OF_WHOLE_TOPIC = frozenset({"TOPIC_AUTHORIZATION_FAILED", "TOPIC_EXCEPTION"})
"""Codes that librdkafka gives to every waiting message of a topic (rd_kafka_topic_set_error, rd_kafka_topic_set_notexists),
even to one that waits for its retry after an ambiguous response."""
_BACKOFF_SHARE = 0.8
"""librdkafka waits at least this share of retry.backoff.ms before a second transmission (its jitter is 20%)."""


@dataclass(frozen=True, slots=True)
class Failure:
    """One row of the table. `number` is librdkafka's, 0 for own codes. `error_type` follows OpenTelemetry."""

    code: str
    number: int
    kind: Kind
    verdict: Verdict
    meaning: str
    advice: str
    error_type: str


_MAX_DIGITS = 6
_PRINTED_CODE = re.compile(r"(?:cimpl\.)?KafkaError\{code=([A-Z0-9_]+)")
_SIMILAR = 0.75
"""The least similarity of a suggested name: a typing error is above it, an unrelated word below."""
_QUALIFIED = re.compile(r"(?:[A-Za-z_]\w*[.$])+([A-Za-z_]\w*)(?::.*)?", re.DOTALL)


def failure_of(error: KafkaError | int | str) -> Failure:
    """Return the failure of an error, its number or its librdkafka name. Unknown ones are possibly persisted."""
    if isinstance(error, int):
        error = KafkaError(error)
    code = error if isinstance(error, str) else _unnamed_codes().get(error.code(), error.name())
    return _table().get(code) or Failure(
        code, 0, "timed_out", "possibly_persisted", _UNKNOWN, _UNKNOWN_ADVICE, "_OTHER"
    )


def advice_for(failure: Failure, verdicts: Collection[str]) -> str:
    """Return the advice for messages with these verdicts. A message that was not sent cannot be on its topic."""
    if set(verdicts) == {"not_sent"} and _CHECKS_TOPIC.search(failure.advice):
        return _NEVER_LEFT_ADVICE
    return failure.advice


def lookup(name: str) -> Failure:
    """Return a failure by librdkafka's name, the protocol's, a kafka-python or Java class name, or its number."""
    text = bare_name(name)
    if re.fullmatch(r"-?[0-9]+", text):
        if len(text) > _MAX_DIGITS:  # larger than any code
            raise ConfigError(f"There is no error code {text:.20}.", fix="See producer-core explain --all.")
        return failure_of(int(text))
    code = _codes().get(_normalise_name(text))
    if code is None:
        _reject_non_errors(text)
        matches = difflib.get_close_matches(_normalise_name(text), _codes(), n=1, cutoff=_SIMILAR)
        suggestion = (
            f"Did you mean {_codes()[matches[0]]}?" if matches else "See producer-core explain --all."
        )
        raise ConfigError(f"There is no error code {name!r}.", fix=suggestion)
    return _table()[code]


def bare_name(text: str) -> str:
    """Return the name of an error from its text: the code of `KafkaError{code=…}`, or a class name without its package."""
    text = text.strip()
    if found := _PRINTED_CODE.match(text) or _QUALIFIED.fullmatch(text):
        return found[1]
    return text


def _reject_non_errors(name: str) -> None:
    """Raise ConfigError for names that do not identify an error."""
    if _normalise_name(name) in map(_normalise_name, NO_ERROR):
        raise ConfigError(f"{name} is not an error.", fix="No action needed.")
    if _normalise_name(name) in map(_normalise_name, PARENTS):
        raise ConfigError(
            f"{name} is the base class of many errors.",
            fix="Use the class of the specific error, its number, or the code in its text.",
        )


def other_names(code: str) -> list[str]:
    """Return the names in Kafka's protocol, kafka-python and Java whose spelling differs from the code."""
    return [name for name, named_code in ALIASES.items() if named_code == code]


def known_failures() -> list[Failure]:
    """Return every row of the table."""
    return list(_table().values())


def retriable_codes(names: Sequence[str]) -> frozenset[str]:
    """Return the codes of `RetryConfig.retriable_errors`. Raise ConfigError for an unknown name."""
    return frozenset(lookup(name).code for name in names)


def judge(
    failure: Failure, *, latency: float | None, retry_backoff: float, assigned: bool = True
) -> tuple[Verdict, str]:
    """Return the verdict on a message whose delivery report has this failure, and the reason.

    `assigned` is true when the report names a partition (`message.partition()` is not None). A message without one was
    never in a broker's queue, and librdkafka never removes an assigned partition (rd_kafka_msg_partitioner).

    The verdict is `rejected` only when the message came back before librdkafka could have sent it a second time, with a
    code that only the response to its own transmission can have.
    `latency` is in seconds from the earliest possible transmission to the report. A code alone proves nothing, because
    the library retries internally, and an earlier transmission may have been written. All its retries go through
    rd_kafka_retry_msgq, which waits at least 0.8 x retry.backoff.ms. The same applies to the library's local codes: a
    message that waits for its retry while its topic disappears from the metadata comes back as _UNKNOWN_PARTITION
    although it was written (measured), and the credentials of a connection may expire.
    """
    if not assigned or _is_own_code(failure):
        return not_sent_verdict(failure)
    if failure.kind == "local":
        return (
            "possibly_persisted",
            f"The client stopped retrying the message ({failure.code}), but an earlier transmission may have been written.",
        )
    if failure.verdict != "rejected":
        return (
            "possibly_persisted",
            f"{failure.meaning.rstrip('.')} ({failure.code}). The broker may have the message.",
        )
    if failure.code in _OF_WHOLE_TOPIC:
        return (
            "possibly_persisted",
            f"The broker rejected the topic ({failure.code}), and the client failed all its waiting messages. An earlier "
            "transmission may have been written.",
        )
    if latency is not None and latency < _BACKOFF_SHARE * retry_backoff:
        return "rejected", f"The broker rejected the message's only transmission ({failure.code})."
    return (
        "possibly_persisted",
        f"The broker rejected the message ({failure.code}), but an earlier transmission may have been written.",
    )


def not_sent_verdict(failure: Failure) -> tuple[Verdict, str]:
    """Return the verdict on a message that never reached a broker's queue, or on invalid input."""
    return "not_sent", f"The message never left the client ({failure.code})."


def _is_own_code(failure: Failure) -> bool:
    """Return whether this is a code of producer_core that no library returns: `malformed`, `held`."""
    return failure.kind == "local" and failure.number == 0


_MAX_TEXT = 4000
"""Characters of an error text that a fingerprint covers. A very long error text has its cause at the beginning."""

_NODE = r"(?:/(?:\d+|bootstrap)\b)?"
_PORT = r"(?::\d+)?" + _NODE
_HOST = r"[a-z0-9](?:[a-z0-9-]{0,61}[a-z0-9])?"
_TOP_LEVEL_DOMAINS = (
    "com|net|org|io|cloud|dev|eu|de|uk|us|local|internal|svc|lan|corp|intra|home|example|test"
)
_NOT_A_HOST = (
    r"(?!(?:line|column|col|char|row|code|error|errno|status|offset|partition|id|at|pos|size|epoch|version):)"
)
_REPLACEMENTS = tuple(
    (re.compile(pattern, re.IGNORECASE), replacement)
    for pattern, replacement in (
        (r"\b[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}(?:-\d+)?\b", "<id>"),
        (r"\b\d{4}-\d\d-\d\d[t ]\d\d:\d\d(?::\d\d)?(?:[.,]\d+)?(?:z|[+-]\d\d:?\d\d)?", "<time>"),
        (r"\b[a-z][a-z0-9+_-]*://[^\s,;'\")\]]*[^\s,;:.'\")\]]", "<address>"),
        (r"\b(?:[0-9a-f]{2}[:-]){5}[0-9a-f]{2}\b(?![:-])", "<id>"),
        (r"(?:\bipv[46]#)?\[[0-9a-f:.%a-z]*:[0-9a-f:.%a-z]*\]" + _PORT, "<address>"),
        (r"(?:\bipv[46]#)?(?<![\w.])(?:\d{1,3}\.){3}\d{1,3}(?![\w.]\d)" + _PORT, "<address>"),
        (r"(?<![\w:.])(?:[0-9a-f]{1,4}:){7}[0-9a-f]{1,4}(?:%\w+)?(?!\w|:\w|::)", "<address>"),
        (r"(?<![\w:.])(?:[0-9a-f]{1,4}(?::[0-9a-f]{1,4}){0,6}::(?:[0-9a-f]{1,4}(?::[0-9a-f]{1,4}){0,6}(?:%\w+)?)?"
         r"|::[0-9a-f]{1,4}(?::[0-9a-f]{1,4}){0,6})(?!\w|:\w|::)", "<address>"),
        (rf"(?<![\w.-]){_HOST}(?:\.{_HOST})+:\d+\b{_NODE}", "<address>"),
        (rf"(?<![\w.-]){_HOST}(?:\.{_HOST}){{0,8}}\.(?:{_TOP_LEVEL_DOMAINS})(?![\w-]|\.\w){_NODE}", "<address>"),
        (rf"(?<![\w.-])(?:localhost{_PORT}|{_NOT_A_HOST}{_HOST}:\d{{4,5}}(?!\d| ?ms\b|\.\d){_NODE})", "<address>"),
        (r"\b0x[0-9a-f]+\b", "<number>"),
        (r"\b(?=[a-f]*\d)(?=\d*[a-f])[0-9a-f]{8,}\b|\b(?=\d*[a-f])[0-9a-f]{12,}\b", "<id>"),
        (r"\b(?=[a-z]*\d)(?=\d*[a-z])[0-9a-z]{20,}\b", "<id>"),
        (r"(?:(?<=[\s(=,:\[])[-+](?=\d))?\d+(?:[.,]\d+)*", "<number>"),
        (r"\s+", " "),
    )
)  # fmt: skip
_QUOTED = re.compile(
    r"""(?<!\w)(?:b?'([^'\s]{1,300})'|b?"([^"\s]{1,300})"|`([^`\s]{1,300})`|«([^»]{1,300})»)(?!\w)"""
)
_TYPE = re.compile(r"(?:[\w$]+\.)*[A-Z]\w*(?:Error|Exception|Timeout|Refused|Failure|Warning)")


def fingerprint(code: str, text: str) -> str:
    """Return the id of a group of errors with one cause: 12 hex digits of the code and the normalized text."""
    return _fingerprint(code, text[:_MAX_TEXT])


@lru_cache(maxsize=512)
def _fingerprint(code: str, text: str) -> str:
    return hashlib.sha256(f"{code}\0{normalise(text)}".encode(errors="replace")).hexdigest()[:12]


def normalise(text: str) -> str:
    """Remove the variable parts of an error text: ids, numbers, hosts, addresses and quoted names.

    Exception types and error codes stay, quoted or not. Names without quotes stay, because they look like other words.
    """
    text = _QUOTED.sub(_replace_name, text[:_MAX_TEXT])
    for pattern, replacement in _REPLACEMENTS:
        text = pattern.sub(replacement, text)
    return text.strip().lower()


def _replace_name(found: re.Match[str]) -> str:
    """Return `<name>` for a quoted name. Quoted symbols, exception types and error codes describe the error and stay."""
    name = next(filter(None, found.groups()))
    keep = not any(map(str.isalnum, name)) or _TYPE.fullmatch(name) or name in _table()
    return found[0] if keep else "<name>"


@cache
def _table() -> dict[str, Failure]:
    rows = [
        Failure(code, _number(code), kind, verdict, meaning, advice, code)
        for code, kind, verdict, meaning, advice in TABLE
    ]
    others = [
        Failure(
            code, _number(code), "permanent", "possibly_persisted", _NOT_FOR_PRODUCERS, _UNKNOWN_ADVICE, code
        )
        for code in (*NON_PRODUCER_CODES, *UNNAMED_CODES)
    ]
    return {failure.code: failure for failure in (*rows, *others)}


@cache
def _codes() -> dict[str, str]:
    """Map every spelling of a code, normalized, to the code."""
    return {
        _normalise_name(name): code for name, code in (*ALIASES.items(), *((code, code) for code in _table()))
    }


def _normalise_name(name: str) -> str:
    """Return one spelling for `NotLeaderForPartitionError`, `ERR__MSG_TIMED_OUT` and `NOT_LEADER_FOR_PARTITION`."""
    for prefix in ("RD_KAFKA_RESP_ERR_", "ERR_"):
        name = name.removeprefix(prefix)
    if name.upper() != name:
        name = re.sub(r"(?:Error|Exception)$", "", name)
    local = "_" if name.startswith("_") else ""
    return local + name.replace("_", "").lower()


def _number(code: str) -> int:
    return int(getattr(KafkaError, code, UNNAMED_CODES.get(code, 0)))


@cache
def _unnamed_codes() -> dict[int, str]:
    """Map the numbers of codes without a librdkafka name to their codes."""

    return {number: code for code, number in UNNAMED_CODES.items()}
