"""The public module of the metrics for Prometheus."""

from __future__ import annotations

import subprocess
import sys

from producer_core import prometheus
from producer_core.producer import prometheus as implementation


def test_the_public_module_has_the_names_of_the_implementation():
    assert prometheus.__all__ == implementation.__all__
    assert all(getattr(prometheus, name) is getattr(implementation, name) for name in prometheus.__all__)


def test_the_package_itself_does_not_import_it():
    code = "import sys, producer_core; assert 'producer_core.prometheus' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True)
