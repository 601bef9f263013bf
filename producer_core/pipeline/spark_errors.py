"""Turn an error from Spark into one sentence; its stack trace has sixty lines, and the last "Caused by:" is the
cause."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import NamedTuple

from producer_core.errors import (
    BrokerError,
    BrokerUnreachable,
    CheckpointDamaged,
    ConfigError,
    MissingTool,
    PipelineError,
    ProducerError,
)

_LONGEST = 300


class _Known(NamedTuple):
    pattern: re.Pattern[str]
    error: Callable[..., ProducerError]
    what: str
    fix: str


def _known(pattern: str, error: Callable[..., ProducerError], what: str, fix: str) -> _Known:
    return _Known(re.compile(pattern, re.S), error, what, fix)


_TABLE = (
    _known(
        r"Could not parse Master URL: '?([^'\n]*)", ConfigError, "{0!r} is not a Spark master.",
        "Write local[2,4], spark://host:7077, local-cluster[2,1,1024], yarn or k8s://….",
    ),
    _known(
        r"All masters are unresponsive", PipelineError, "No Spark master responds.",
        "Check the address in --master and that the master is running.",
    ),
    _known(
        r"JAVA_GATEWAY_EXITED|Java gateway process exited", MissingTool, "Spark's Java process exited at startup.",
        "Use --verbose to see why; often --driver-memory exceeds the available memory.",
    ),
    _known(
        r"Failed to find data source: kafka|ClassNotFoundException: org\.apache\.(?:spark\.sql\.)?kafka", MissingTool,
        "Spark has no Kafka connector.",
        "Omit --jars, or list all jars; under spark-submit add --packages "
        "org.apache.spark:spark-sql-kafka-0-10_2.13:<the version of PySpark>.",
    ),
    _known(
        r"(?:NoSuchMethodError|NoClassDefFoundError|AbstractMethodError|IncompatibleClassChangeError): ([^\n]*)",
        MissingTool, "Spark's Kafka connector does not match this Spark: {0}.",
        "Use the connector version that matches PySpark, and provide all jars with --jars.",
    ),
    _known(
        r"ModuleNotFoundError: No module named '([^']*)'", MissingTool,
        "Spark's Python workers have no module {0!r}.",
        "Point PYSPARK_PYTHON at a Python with producer-core[spark] on every worker, or submit it with --py-files.",
    ),
    _known(
        r"PYTHON_VERSION_MISMATCH|Python in worker has different version", MissingTool,
        "Spark's Python workers run a different version of Python than the driver.",
        "Point PYSPARK_PYTHON at the same version on every worker.",
    ),
    _known(
        r"Timed out waiting for a node assignment|Failed to construct kafka|DisconnectException|"
        r"TimeoutException: (?:Timeout of \d+ms expired before|Failed to update metadata)",
        BrokerUnreachable, "The brokers stopped responding while Spark was reading.",
        "Check that they are running and that every worker can reach their advertised addresses.",
    ),
    _known(
        r"UnknownTopicOrPartitionException", BrokerError, "A topic no longer exists.",
        "Check whether it was deleted or re-created while the job ran.",
    ),
    _known(
        r"OffsetOutOfRangeException|Some data may have been lost|"
        r"Partition [^\n]* offset was changed from|fewer partitions|were deleted",
        BrokerError, "Offsets that the job needs are no longer on the topic.",
        "Retention removed them, or the topic was re-created: start at its earliest offset.",
    ),
    _known(
        r"(?:Topic|Group|Cluster|TransactionalId)AuthorizationException: ([^\n]*)", BrokerError,
        "Spark is not authorized: {0}.", "Grant READ on the topics (and WRITE where the job sends).",
    ),
    _known(
        r"(?:Sasl|Ssl)AuthenticationException: ([^\n]*)|SSLHandshakeException: ([^\n]*)", BrokerError,
        "The brokers reject Spark's connection: {0}.", "Check the credentials and certificates (--config, --config-file).",
    ),
    _known(
        r"MALFORMED_LOG_FILE|Malformed log file|Incomplete log file|UnsupportedLogVersion|LogVersion|"
        r"batch \d+ doesn't exist|Unexpected end-of-input|JsonParseException|"
        r"Error reading streaming (?:metadata|state)|Offsets committed out of order",
        CheckpointDamaged, "The checkpoint is damaged.",
        "Move its folder aside and start again: merged batches are identified by producer and number and are not "
        "counted twice.",
    ),
    _known(
        r"OutOfMemoryError: ([^\n]*)|GC overhead limit", PipelineError, "Spark ran out of memory.",
        "Increase its memory with --driver-memory, for example 2g.",
    ),
    _known(
        r"No space left on device", PipelineError, "A disk is full.",
        "Free up disk space where the job writes: its store, checkpoint, history or findings, or Spark's own files "
        "(SPARK_LOCAL_DIRS names another disk for these).",
    ),
    _known(
        r"Python worker (?:exited|crashed)|ExecutorLostFailure|Lost executor|worker lost", PipelineError,
        "Spark lost its workers too often.", "Use --verbose to see the log; workers often run out of memory.",
    ),
    _known(
        r"SparkContext was shut down|stopped SparkContext|Connection refused.*py4j|Answer from Java side is empty",
        PipelineError, "Spark's Java process exited.", "Use --verbose to see its log; it may have run out of memory.",
    ),
)  # fmt: skip


def spark_error(error: BaseException) -> ProducerError | None:
    """Return a typed error with its fix for an error from Spark, py4j or a worker; None for an unknown one.

    A ProducerError that passed through Spark (out of `foreachBatch`) is returned as it is.
    """
    for link in _links(error):
        if isinstance(link, ProducerError):
            return link
    text = "\n".join(_text(link) for link in _links(error))
    for cause in (_root(text), text):
        for known in _TABLE:
            if found := known.pattern.search(cause):
                groups = [_short(group) for group in found.groups() if group] or ["no reason given"]
                return known.error(known.what.format(*groups), fix=known.fix)
    return None


def explained(error: BaseException) -> ProducerError | None:
    """Return `spark_error`, or the root of an unknown error in one line; None when it does not come from Spark."""
    if (known := spark_error(error)) is not None:
        return known
    if not type(error).__module__.startswith(("py4j", "pyspark")):
        return None
    return PipelineError(f"Spark failed: {root_cause(error)}.", fix="See the full error with --verbose.")


def root_cause(error: BaseException) -> str:
    """Return the root of an unknown error in one line."""
    return _short(_root("\n".join(_text(link) for link in _links(error)))) or type(error).__name__


def _links(error: BaseException) -> list[BaseException]:
    """Return the error and its chain of causes, whichever attribute holds them."""
    found: list[BaseException] = []
    link: BaseException | None = error
    while link is not None and link not in found:
        found.append(link)
        link = link.__cause__ or getattr(link, "_cause", None)
    return found


def _text(error: BaseException) -> str:
    """Return all text of an error; only its type when the JVM that holds the text has ended."""
    try:
        return f"{error}\n{getattr(error, '_stackTrace', '') or ''}"
    except Exception:  # noqa: BLE001  py4j asks the JVM for the text, which may have ended
        return type(error).__name__


def _root(text: str) -> str:
    """Return the last "Caused by:" line, else the error after the colon of py4j's second line, else the first line."""
    causes = re.findall(r"^Caused by: (.*)$", text, re.M) or re.findall(r"^: (.*)$", text, re.M)
    lines = [line for line in text.splitlines() if line.strip()]
    return str(causes[-1]) if causes else (lines[0] if lines else "")


def _short(text: str) -> str:
    return text.strip().rstrip(".")[:_LONGEST]
