"""Text from records can neither control the terminal nor change the reading direction."""

from __future__ import annotations

import json
import re
import threading
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import pytest
from click.testing import CliRunner

import producer_core.cli
from producer_core.cli import main
from producer_core.cli.plain_text import in_json, plain
from producer_core.dlq import DeadLetters
from producer_core.store import Store
from tests.fixtures.replays import dead_letter

RIGHT_TO_LEFT = "\u202e"
HOSTILE = f"abc{RIGHT_TO_LEFT}fdp.exe \x1b[2J\x07 \u2066x\u2069 \u200f \x9b31m"


@pytest.fixture
def store(tmp_path):
    opened = Store.open(tmp_path / "store.duckdb")
    value = json.dumps({"name": HOSTILE}, ensure_ascii=False).encode()
    hostile = dead_letter(
        1, key=HOSTILE.encode(), value=value, headers=(("trace", HOSTILE.encode()),), error_text=HOSTILE,
        verdict_reason=HOSTILE,
    )  # fmt: skip
    DeadLetters(opened).add([hostile])
    return opened


def said(store, *words):
    result = CliRunner().invoke(main, [*words, "--store", str(store.path)])
    assert result.exit_code == 0, result.output
    return result.output


@pytest.mark.parametrize(
    "words",
    [
        ("dlq", "list"),
        ("dlq", "groups"),
        ("dlq", "show", dead_letter(1).message_id),
        ("dlq", "show", dead_letter(1).message_id, "--reveal"),
        ("dlq", "list", "--json"),
        ("dlq", "show", dead_letter(1).message_id, "--reveal", "--json"),
    ],
)
def test_terminal_control_characters_are_escaped(store, words):
    text = said(store, *words)

    assert not set(text) & set(RIGHT_TO_LEFT + "\x1b\x07\u2066\u2069\u200f\x9b")
    assert "202e" in text


def test_json_output_preserves_the_original_value(store):
    found = json.loads(said(store, "dlq", "show", dead_letter(1).message_id, "--reveal", "--json"))

    assert found["error_text"] == HOSTILE


def test_ordinary_text_in_any_script_is_unchanged():
    for text in (
        "orders\tand\nmore",
        "Grüße, 注文, заказ",
        "سلام \u200cنیم\u200c",
        "👩\u200d💻",
        "«a» … 1\u00a0000",
    ):
        assert plain(text) == text
        assert in_json(text) == text


def test_escapes_are_readable():
    assert plain("a\u202eb\x1b[0m\x7f\r") == "a\\u202eb\\x1b[0m\\x7f\\x0d"
    assert plain("\U000e0041") == "\\U000e0041"
    assert json.loads(in_json('"\U000e0041\u202e"')) == "\U000e0041\u202e"


def test_error_messages_escape_control_characters(store):
    result = CliRunner().invoke(main, ["dlq", "show", f"none{RIGHT_TO_LEFT}", "--store", str(store.path)])

    assert result.exit_code == 2
    assert RIGHT_TO_LEFT not in result.stderr and "\\u202e" in result.stderr


@pytest.mark.slow
def test_a_webhook_response_is_escaped(store, tmp_path, monkeypatch):
    class Receiver(BaseHTTPRequestHandler):
        def do_POST(self):
            self.rfile.read(int(self.headers["content-length"]))
            body = f"took it {HOSTILE}".encode()
            self.send_response(400, "no\x1b[2J")
            self.send_header("content-length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_):
            pass

    receiver = HTTPServer(("127.0.0.1", 0), Receiver)
    threading.Thread(target=receiver.serve_forever, daemon=True).start()
    monkeypatch.setenv("PRODUCER_CORE_ALERT_WEBHOOK", f"http://127.0.0.1:{receiver.server_port}/hook")
    try:
        result = CliRunner().invoke(main, ["alerts", "test", "--store", str(store.path)])
    finally:
        receiver.shutdown()
        receiver.server_close()

    assert result.exit_code == 1 and "took it" in result.output
    assert not set(result.output) & set(RIGHT_TO_LEFT + "\x1b\x07\u2066\u2069\u200f\x9b")


def test_every_command_prints_through_the_escaping_function():
    """A new command cannot bypass it: only the escaping module and lines that are redrawn call `click.echo`."""
    folder = Path(producer_core.cli.__file__).parent
    found = [
        (path.name, line.strip())
        for path in sorted(folder.rglob("*.py"))
        if path.name not in ("output.py", "lazy_group.py")
        for line in path.read_text().splitlines()
        if re.search(r"click\.s?echo\(|\bprint\(|std(?:out|err)\.write\(", line) and "\\r" not in line
    ]

    assert found == []
