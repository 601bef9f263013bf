"""Errors from Spark become one sentence with the cause."""

from __future__ import annotations

import pytest

from producer_core.errors import (
    BrokerError,
    BrokerUnreachable,
    CheckpointDamaged,
    ConfigError,
    MissingTool,
    PipelineError,
    StoreLocked,
)
from producer_core.pipeline.spark_errors import explained, root_cause, spark_error
from tests.fixtures.spark import FromSpark

STACK = """An error occurred while calling o50.load.
: org.apache.spark.SparkException: Job aborted
\tat org.apache.spark.Thing
Caused by: java.util.concurrent.ExecutionException: {cause}
\t... 60 more
Caused by: {cause}
\tat somewhere
"""


@pytest.mark.parametrize(
    ("cause", "kind", "text"),
    [
        ("org.apache.kafka.common.errors.TimeoutException: Timed out waiting for a node assignment. Call: listNodes",
         BrokerUnreachable, "stopped responding"),
        ("org.apache.kafka.common.errors.UnknownTopicOrPartitionException: This server does not host this topic-partition.",
                  BrokerError, "no longer exists"),
        ("org.apache.kafka.clients.consumer.OffsetOutOfRangeException: Fetch position is out of range", BrokerError, "Retention"),
        ("org.apache.kafka.common.errors.TopicAuthorizationException: Not authorized to access topics: [t]", BrokerError,
         "Not authorized to access topics: [t]"),
        ("org.apache.kafka.common.errors.SaslAuthenticationException: Authentication failed: Invalid username", BrokerError,
         "Invalid username"),
        ("java.lang.IllegalStateException: batch 3 doesn't exist", CheckpointDamaged, "Move its folder"),
        ("java.lang.OutOfMemoryError: Java heap space", PipelineError, "--driver-memory"),
        ("java.io.IOException: No space left on device", PipelineError, "history"),
        ("ModuleNotFoundError: No module named 'pyarrow'", MissingTool, "'pyarrow'"),
        ("org.apache.spark.SparkException: Could not parse Master URL: 'lokal'", ConfigError, "lokal"),
        ("java.lang.NoSuchMethodError: 'void org.apache.X.y()'", MissingTool, "--jars"),
        ("org.apache.spark.SparkClassNotFoundException: Failed to find data source: kafka", MissingTool, "connector"),
    ],
)  # fmt: skip
def test_the_last_cause_becomes_the_message(cause, kind, text):
    found = spark_error(RuntimeError(STACK.format(cause=cause)))

    assert type(found) is kind
    assert text in str(found)
    assert "\n" not in str(found)


def test_a_producer_error_that_passed_through_spark_is_returned_unchanged():
    own = StoreLocked()
    outside = RuntimeError("the stream failed")
    outside.__cause__ = own
    assert spark_error(outside) is own


def test_an_unknown_error_is_summarised_by_its_root_cause():
    unknown = RuntimeError(STACK.format(cause="java.lang.Strange: a thing"))
    assert spark_error(unknown) is None
    assert explained(unknown) is None  # not from Spark's packages
    assert root_cause(unknown) == "java.lang.Strange: a thing"


def test_the_message_has_the_error_of_a_spark_call_and_not_the_call():
    assert str(explained(FromSpark())).startswith(
        "Spark failed: java.nio.file.AccessDeniedException: /artifacts. "
    )
