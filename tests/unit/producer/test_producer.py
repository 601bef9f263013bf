"""The public API: `__all__` is complete and documented, and importing it is cheap."""

from __future__ import annotations

import inspect
import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

import producer_core
from producer_core.errors import ConfigError
from producer_core.testing import InMemoryTransport
from tests.support import ROOT

CONTRACT = [
    "ECommerceDataGenerator",
    "KafkaDataProducer",
    "DataGenerationOrchestrator",
    "ReliableKafkaProducer",
    "default_alert_handler",
    "TemporalPatterns",
    "GeographicPatterns",
    "FraudPatterns",
    "SeasonalPatterns",
    "DataGenerationConfig",
    "Message",
    "MessageStatus",
    "RetryConfig",
    "DeadLetterQueue",
    "MessageDeduplicator",
    "RetryManager",
    "HealthMonitor",
    "FraudType",
    "GeographicLocation",
    "TemporalContext",
]

HEAVY = [
    "pandas",
    "plotly",
    "streamlit",
    "starlette",
    "pyspark",
    "duckdb",
    "pyarrow",
    "redis",
    "IPython",
    "anywidget",
    "ipywidgets",
    "faker",
]


def in_a_fresh_interpreter(code):
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


@pytest.mark.parametrize("name", producer_core.__all__)
def test_a_public_name_exists(name):
    assert getattr(producer_core, name) is not None


def test_all_documented_names_can_be_imported_from_the_package():
    assert set(CONTRACT) <= set(producer_core.__all__)


def test_dir_lists_exactly_the_public_names():
    seen = {name for name in dir(producer_core) if not name.startswith("_")}
    assert seen == set(producer_core.__all__)


def test_type_checkers_see_the_same_names():
    source = Path(producer_core.__file__).read_text()
    block = source.partition("if TYPE_CHECKING:")[2].partition("\n__version__")[0]
    assert set(re.findall(r"import (\w+) as \1$", block, re.MULTILINE)) == set(producer_core.__all__)


def test_an_unknown_name_raises_an_attribute_error():
    with pytest.raises(AttributeError, match="Nothing"):
        producer_core.Nothing


@pytest.mark.slow
@pytest.mark.parametrize(
    "line",
    [
        "import producer_core",
        "from producer_core import ReliableKafkaProducer",
        "from producer_core import Message, RetryConfig, HealthMonitor, MessageDeduplicator",
        "import producer_core.cli",
    ],
)
def test_an_import_loads_no_heavy_module(line):
    loaded = in_a_fresh_interpreter(
        f"{line}\nimport json, sys\nprint(json.dumps([name for name in {HEAVY} if name in sys.modules]))"
    )
    assert loaded == []


def test_importing_the_package_loads_no_kafka_client():
    assert not in_a_fresh_interpreter(
        "import producer_core, json, sys\nprint(json.dumps('confluent_kafka' in sys.modules))"
    )


def test_every_public_name_is_documented():
    notebooks = [file.read_text() for file in sorted((ROOT / "notebooks").glob("*.ipynb"))]
    pages = [file.read_text() for file in sorted((ROOT / "docs").rglob("*.md"))]
    words = set(re.findall(r"\w+", "\n".join([(ROOT / "README.md").read_text(), *pages, *notebooks])))
    assert set(producer_core.__all__) - words == set()


def test_the_version_is_that_of_the_package():
    from importlib.metadata import version

    assert producer_core.__version__ == version("producer-core")


# documented parameters, defaults and keys

OFFERED = {
    "send_message": "topic value key=None callback=None",
    "send_batch": "topic messages key_extractor=None",
    "flush": "timeout=None",
    "get_message_status": "message_id",
    "get_pending_messages": "",
    "get_stats": "",
    "get_basic_stats": "",
    "add_health_alert_callback": "callback",
    "get_health_status": "",
    "get_dlq_messages": "topic=None",
    "clear_dlq": "topic=None",
    "replay_dlq_messages": "topic max_messages=None",
    "start_streaming": "topics=None duration_hours=None rate_multiplier=1.0",
    "stop_streaming": "",
}


def positional(function):
    parameters = list(inspect.signature(function).parameters.values())
    return [
        name if default is inspect.Parameter.empty else f"{name}={default}"
        for name, default, kind in ((p.name, p.default, p.kind) for p in parameters)
        if kind is inspect.Parameter.POSITIONAL_OR_KEYWORD and name != "self"
    ]


@pytest.mark.parametrize("method", OFFERED)
def test_a_method_has_its_documented_parameters(method):
    assert positional(getattr(producer_core.ReliableKafkaProducer, method)) == OFFERED[method].split()


def test_the_producer_has_its_documented_parameters_except_for_deduplication():
    made = positional(producer_core.ReliableKafkaProducer)
    assert [name.partition("=")[0] for name in made] == [
        "bootstrap_servers", "config", "retry_config", "redis_client", "dlq_max_size", "enable_deduplication",
        "health_check_interval",
    ]  # fmt: skip
    assert made[4:] == ["dlq_max_size=10000", "enable_deduplication=False", "health_check_interval=30"]


@pytest.fixture
def producer():
    options = {"enable_deduplication": True, "thresholds": {"dlq_size_threshold": 5}, "dedup_ttl": 60}
    with producer_core.ReliableKafkaProducer(
        "memory:1", store=None, transport=InMemoryTransport.factory(), **options
    ) as made:
        made.send_message("orders", {"n": 1})
        made.flush(5)
        yield made


def test_the_statistics_have_every_documented_key(producer):
    stats = producer.get_stats()
    assert set(stats) >= set(
        """messages_sent messages_failed messages_duplicate messages_retried messages_dlq total_bytes_sent start_time
        elapsed_seconds messages_per_second bytes_per_second topic_stats latency_history latency_stats dlq_stats
        retry_stats deduplication_stats pending_messages error_rate""".split()  # noqa: SIM905
    )
    assert set(stats["topic_stats"]["orders"]) == {"sent", "failed", "duplicate", "retried", "dlq"}
    assert set(stats["latency_stats"]) == {"avg_ms", "median_ms", "p95_ms", "p99_ms", "min_ms", "max_ms"}
    assert set(producer.get_basic_stats()) == {
        "messages_sent",
        "messages_failed",
        "bytes_sent",
        "messages_per_second",
    }
    assert producer.get_basic_stats()["messages_per_second"] > 0  # formerly always 0.0
    assert stats["total_bytes_sent"] == len('{"n":1}')


def test_statistics_are_a_snapshot(producer):
    stats = producer.get_stats()
    stats["topic_stats"]["orders"]["sent"] = 99
    stats["latency_history"].clear()
    producer.send_message("orders", {"n": 2})
    producer.flush(5)

    assert producer.get_stats()["topic_stats"]["orders"]["sent"] == 2
    assert len(producer.get_stats()["latency_history"]) == 2
    assert stats["messages_sent"] == 1


def test_latency_history_has_the_last_hundred():
    with producer_core.ReliableKafkaProducer(
        "memory:1", store=None, transport=InMemoryTransport.factory()
    ) as producer:
        for number in range(1100):
            producer.send_message("orders", {"n": number})
        producer.flush(10)
        assert len(producer.get_stats()["latency_history"]) == 100


def test_the_documented_attributes_exist(producer):
    for name in """bootstrap_servers enable_deduplication dlq deduplicator retry_manager health_monitor
        pending_messages stats""".split():  # noqa: SIM905
        assert hasattr(producer, name), name
    assert producer.bootstrap_servers == ["memory:1"]
    assert producer.health_monitor.thresholds["dlq_size_threshold"] == 5
    assert producer.deduplicator.ttl_seconds == 60


def test_an_unknown_threshold_raises_an_error_with_the_known_names():
    with pytest.raises(ConfigError, match="dlq_size_threshold"):
        producer_core.ReliableKafkaProducer("memory:1", store=None, thresholds={"dlq": 5})


def test_start_streaming_exists_for_old_callers_and_sends_nothing(producer):
    producer.start_streaming(["orders"])
    producer.stop_streaming()
    assert producer.get_stats()["messages_sent"] == 1
