"""The public face: what can be seen is what is promised, it is written about, and looking at it costs little."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

import producer_core

ROOT = Path(__file__).parents[2]

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
def test_a_public_name_is_there(name):
    assert getattr(producer_core, name) is not None


def test_all_names_of_the_contract_come_from_the_top():
    assert set(CONTRACT) <= set(producer_core.__all__)


def test_what_can_be_seen_is_what_is_promised():
    seen = {name for name in dir(producer_core) if not name.startswith("_")}
    assert seen == set(producer_core.__all__)


def test_type_checkers_see_the_same_names():
    source = Path(producer_core.__file__).read_text()
    block = source.partition("if TYPE_CHECKING:")[2].partition("\n__version__")[0]
    assert set(re.findall(r"import (\w+) as \1$", block, re.MULTILINE)) == set(producer_core.__all__)


def test_an_unknown_name_is_an_attribute_error():
    with pytest.raises(AttributeError, match="Nothing"):
        producer_core.Nothing


@pytest.mark.parametrize(
    "line",
    [
        "import producer_core",
        "from producer_core import ReliableKafkaProducer",
        "from producer_core import Message, RetryConfig, HealthMonitor, MessageDeduplicator",
        "import producer_core.cli",
    ],
)
def test_an_import_loads_nothing_heavy(line):
    loaded = in_a_fresh_interpreter(
        f"{line}\nimport json, sys\nprint(json.dumps([name for name in {HEAVY} if name in sys.modules]))"
    )
    assert loaded == []


def test_the_face_itself_loads_no_kafka_client():
    assert not in_a_fresh_interpreter(
        "import producer_core, json, sys\nprint(json.dumps('confluent_kafka' in sys.modules))"
    )


def test_every_public_name_is_written_about():
    notebooks = [file.read_text() for file in sorted((ROOT / "notebooks").glob("*.ipynb"))]
    words = set(re.findall(r"\w+", "\n".join([(ROOT / "README.md").read_text(), *notebooks])))
    assert set(producer_core.__all__) - words == set()


def test_the_version_is_the_packages():
    from importlib.metadata import version

    assert producer_core.__version__ == version("producer-core")
