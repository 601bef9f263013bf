"""The examples of docs/how-to/schemas.md run against a real registry and print what their comments say."""

from __future__ import annotations

import re
import subprocess
import sys

import pytest

from tests.support import ROOT

pytestmark = pytest.mark.schema_registry

PAGE = (ROOT / "docs" / "how-to" / "schemas.md").read_text()
EXAMPLES = re.findall(r"^```python\n(.*?)^```", PAGE, re.DOTALL | re.MULTILINE)
ADDRESS = "http://localhost:8081"


@pytest.mark.parametrize("number", range(len(EXAMPLES)))
def test_an_example_prints_what_its_comment_says(schema_registry, number):
    example = EXAMPLES[number]
    (expected,) = re.findall(r"^ *print\(.*\)  # (.*)$", example, re.MULTILINE)
    assert ADDRESS in example

    code = example.replace(ADDRESS, schema_registry.url)
    ended = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=300)

    assert (ended.returncode, ended.stdout.strip()) == (0, expected), ended.stderr
