"""A failure: what an error code means, whether trying again may help, and whether a resend is safe."""

from __future__ import annotations

import difflib
import hashlib
import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache, lru_cache

from confluent_kafka import KafkaError

from producer_core.errors import ConfigError
from producer_core.events import Kind, Verdict
from producer_core.kafka.error_aliases import ALIASES, NO_ERROR, PARENTS
from producer_core.kafka.error_codes import BEYOND, ELSEWHERE, TABLE

_NOT_OURS = "An answer to a consumer, an administrator or another broker; a producer should never see it."
_UNKNOWN = "producer_core does not know this code."
_LOOK = "Look whether the message landed before you send it again, and report the code."
_ROOM_FOR_ONE = 0.8
"""librdkafka waits at least this share of retry.backoff.ms before a second transmission (its jitter is 20 %)."""


@dataclass(frozen=True, slots=True)
class Failure:
    """One row of the table. `number` is librdkafka's, 0 for our own codes; `error_type` is OpenTelemetry's."""

    code: str
    number: int
    kind: Kind
    verdict: Verdict
    meaning: str
    advice: str
    error_type: str


_DIGITS = 6


def failure_of(error: KafkaError | int | str) -> Failure:
    """The failure behind an error, its number or its librdkafka name. An unknown one is possibly persisted."""
    if isinstance(error, int):
        error = KafkaError(error)
    code = error if isinstance(error, str) else _beyond().get(error.code(), error.name())
    return _table().get(code) or Failure(
        code, 0, "timed_out", "possibly_persisted", _UNKNOWN, _LOOK, "_OTHER"
    )


def lookup(name: str) -> Failure:
    """A failure by librdkafka's name, the protocol's, a kafka-python or Java class name, or its number."""
    text = name.strip()
    if re.fullmatch(r"-?[0-9]+", text):
        if len(text) > _DIGITS:  # beyond a C int, and beyond any code
            raise ConfigError(f"There is no error code {text:.20}.", fix="See producer-core explain --all.")
        return failure_of(int(text))
    code = _codes().get(_plain(text))
    if code is None:
        _refuse_parents(text)
        close = difflib.get_close_matches(_plain(text), _codes(), n=1, cutoff=0.5)
        nearest = f"Did you mean {_codes()[close[0]]}?" if close else "See producer-core explain --all."
        raise ConfigError(f"There is no error code {name!r}.", fix=nearest)
    return _table()[code]


def _refuse_parents(name: str) -> None:
    """Names that people meet, but that stand for no error of their own."""
    if _plain(name) in map(_plain, NO_ERROR):
        raise ConfigError(f"{name} is no error.", fix="There is nothing to do.")
    if _plain(name) in map(_plain, PARENTS):
        raise ConfigError(
            f"{name} is the parent of many errors.",
            fix="Ask for the class of the error itself, for its number, or for the code in its text.",
        )


def other_names(code: str) -> list[str]:
    """What Kafka's protocol, kafka-python and Java call this code, where the spelling alone does not tell."""
    return [name for name, meant in ALIASES.items() if meant == code]


def known_failures() -> list[Failure]:
    """Every row of the table."""
    return list(_table().values())


def retriable_codes(names: Sequence[str]) -> frozenset[str]:
    """The codes behind `RetryConfig.retriable_errors`; an unknown name is a ConfigError."""
    return frozenset(lookup(name).code for name in names)


def judge(
    failure: Failure, *, latency: float | None, retry_backoff: float, assigned: bool = True
) -> tuple[Verdict, str]:
    """Whether a message whose delivery report has this failure may be on the broker, and why we say so.

    `assigned`: the report names a partition (`message.partition()` is not None). A message without one was
    never put into a broker's queue, and librdkafka never takes a partition away again (rd_kafka_msg_partitioner).

    A refusal counts only when the message came back (`latency`, seconds from produce to report) before
    librdkafka could have sent it a second time: a code alone proves nothing, because the library retries
    inside, and an earlier transmission may have been written. All of its retries go through
    rd_kafka_retry_msgq, which waits at least 0.8 x retry.backoff.ms. The same holds for the library's own
    words: a message that waits for its retry while its topic vanishes from the metadata comes back as
    _UNKNOWN_PARTITION although it was written (measured), and a connection's credentials may expire.
    """
    if not assigned or _is_ours(failure):
        return refused_here(failure)
    if failure.kind == "local":
        return (
            "possibly_persisted",
            f"The client gave it up ({failure.code}), but an earlier transmission may have landed.",
        )
    if failure.verdict != "rejected":
        return (
            "possibly_persisted",
            f"{failure.meaning.rstrip('.')} ({failure.code}); the broker may have it.",
        )
    if latency is not None and latency < _ROOM_FOR_ONE * retry_backoff:
        return "rejected", f"The broker refused its only transmission ({failure.code})."
    return (
        "possibly_persisted",
        f"The broker refused it ({failure.code}), but an earlier transmission may have landed.",
    )


def refused_here(failure: Failure) -> tuple[Verdict, str]:
    """The verdict on what never reached a broker's queue: produce() raised, or it was no message at all."""
    return "not_sent", f"It never left the client ({failure.code})."


def _is_ours(failure: Failure) -> bool:
    """A code that no library gives: `malformed`, `held`."""
    return failure.kind == "local" and failure.number == 0


_LONGEST_TEXT = 4000
"""Characters of an error text that a fingerprint reads: an error that quotes ten megabytes has its cause in front."""

_NODE = r"(?:/(?:\d+|bootstrap)\b)?"
_PORT = r"(?::\d+)?" + _NODE
_HOST = r"[a-z0-9](?:[a-z0-9-]{0,61}[a-z0-9])?"
_ENDINGS = "com|net|org|io|cloud|dev|eu|de|uk|us|local|internal|svc|lan|corp|intra|home|example|test"
_NO_HOST = (
    r"(?!(?:line|column|col|char|row|code|error|errno|status|offset|partition|id|at|pos|size|epoch|version):)"
)
_VARIABLE = tuple(
    (re.compile(pattern, re.IGNORECASE), word)
    for pattern, word in (
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
        (rf"(?<![\w.-]){_HOST}(?:\.{_HOST}){{0,8}}\.(?:{_ENDINGS})(?![\w-]|\.\w){_NODE}", "<address>"),
        (rf"(?<![\w.-])(?:localhost{_PORT}|{_NO_HOST}{_HOST}:\d{{4,5}}(?!\d| ?ms\b|\.\d){_NODE})", "<address>"),
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
    """What groups errors of one cause: 12 hex digits of the code and the normalised text."""
    return _fingerprint(code, text[:_LONGEST_TEXT])


@lru_cache(maxsize=512)
def _fingerprint(code: str, text: str) -> str:
    return hashlib.sha256(f"{code}\0{normalise(text)}".encode(errors="replace")).hexdigest()[:12]


def normalise(text: str) -> str:
    """An error text without what differs from case to case: ids, numbers, hosts, addresses and quoted names.

    Exception types and error codes stay, quoted or not. A name without quotes stays: nothing tells it from a word.
    """
    text = _QUOTED.sub(_without_name, text[:_LONGEST_TEXT])
    for pattern, word in _VARIABLE:
        text = pattern.sub(word, text)
    return text.strip().lower()


def _without_name(found: re.Match[str]) -> str:
    """`<name>` for a quoted name; a quoted sign, exception type or error code says what went wrong and stays."""
    name = next(filter(None, found.groups()))
    keeps = not any(map(str.isalnum, name)) or _TYPE.fullmatch(name) or name in _table()
    return found[0] if keeps else "<name>"


@cache
def _table() -> dict[str, Failure]:
    rows = [
        Failure(code, _number(code), kind, verdict, meaning, advice, code)
        for code, kind, verdict, meaning, advice in TABLE
    ]
    others = [
        Failure(code, _number(code), "permanent", "possibly_persisted", _NOT_OURS, _LOOK, code)
        for code in (*ELSEWHERE, *BEYOND)
    ]
    return {failure.code: failure for failure in (*rows, *others)}


@cache
def _codes() -> dict[str, str]:
    """Every way to write a code, in plain letters, to the code."""
    return {_plain(name): code for name, code in (*ALIASES.items(), *((code, code) for code in _table()))}


def _plain(name: str) -> str:
    """`NotLeaderForPartitionError`, `ERR__MSG_TIMED_OUT` and `NOT_LEADER_FOR_PARTITION` in one spelling."""
    for prefix in ("RD_KAFKA_RESP_ERR_", "ERR_"):
        name = name.removeprefix(prefix)
    if name.upper() != name:
        name = re.sub(r"(?:Error|Exception)$", "", name)
    local = "_" if name.startswith("_") else ""
    return local + name.replace("_", "").lower()


def _number(code: str) -> int:
    return int(getattr(KafkaError, code, BEYOND.get(code, 0)))


@cache
def _beyond() -> dict[int, str]:
    """The codes by number that the library has no name for."""
    return {number: code for code, number in BEYOND.items()}
