"""`schema check` against a registry that responds slowly or with something else."""

from __future__ import annotations

import pytest
from click.testing import CliRunner

from producer_core.cli import main, schema

ORDER = '{"type": "record", "name": "Order", "fields": [{"name": "id", "type": "long"}]}'


@pytest.fixture
def check(tmp_path):
    file = tmp_path / "order.avsc"
    file.write_text(ORDER)

    def run(url):
        arguments = ["schema", "check", str(file), "--subject", "orders-value", "--schema-registry", url]
        return CliRunner().invoke(main, arguments)

    return run


@pytest.mark.parametrize("body", [b"<html>Please log in</html>", {}, b"null"], ids=str)
def test_a_registry_that_responds_with_something_else_gives_no_verdict(serve, check, body):
    url, _ = serve(lambda path, release: (200, body))
    result = check(url)
    assert result.exit_code == 2
    assert "The schema registry's response cannot be used" in result.output


def test_a_check_ends_while_the_registry_sends_its_response_byte_by_byte(serve, check, monkeypatch):
    def dripping(release):
        while not release.wait(0.01):
            yield b" "

    url, _ = serve(lambda path, release: (200, dripping(release)))
    monkeypatch.setattr(schema, "_WAIT", 0.3)
    result = check(url)
    assert result.exit_code == 2
    assert "did not respond within 0.3 s" in result.output
