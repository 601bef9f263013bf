"""The documents cannot drift: what they show runs, what they name exists."""

from __future__ import annotations

import json
import re
import shlex
import subprocess
import sys
from functools import cache
from importlib.util import find_spec

import click
import pytest

from producer_core.cli import main
from producer_core.config import NAMES, client_config
from tests.support import ROOT
from tests.unit import test_bad_input as bad

README = (ROOT / "README.md").read_text()
NAMES_OF_TEXTS = ("README.md", "DESIGN.md", "CHANGELOG.md", "docs/behind-a-proxy.md")
TEXTS = {name: (ROOT / name).read_text() for name in NAMES_OF_TEXTS}
BLOCKS = re.findall(r"```python\n(.*?)```", README, re.DOTALL)


# what the README shows


@cache
def run(block):
    # a bound for one that hangs
    return subprocess.run([sys.executable, "-c", block], capture_output=True, text=True, timeout=600)


@pytest.mark.parametrize("block", BLOCKS, ids=[f"block {number}" for number in range(1, len(BLOCKS) + 1)])
def test_python_in_the_readme_runs_as_it_stands(block):
    assert run(block).returncode == 0, run(block).stderr
    assert "Traceback" not in run(block).stderr


def test_the_first_lines_of_the_readme_show_a_dead_letter_and_its_replay():
    patient = BLOCKS[0].replace("servers)", 'servers, {"retry_backoff_ms": 20_000})')
    # on a busy machine too, the refusal proves that nothing was sent a second time
    assert patient != BLOCKS[0]
    shown = run(patient).stdout.splitlines()
    assert shown == ["refunds {'order': 1} Broker: Policy violation", "1 replayed"]
    assert len([line for line in BLOCKS[0].splitlines() if line and "import" not in line]) <= 10


# commands


def commands():
    for name, text in TEXTS.items():
        found = re.findall(r"`(producer-core [^`\n]+)`", text)
        for block in re.findall(r"```sh\n(.*?)```", text, re.DOTALL):
            found += [line for line in block.splitlines() if line.startswith("producer-core ")]
        yield from ((name, command) for command in dict.fromkeys(found))


@pytest.mark.parametrize(("document", "line"), list(commands()))
def test_a_command_that_a_document_names_exists_with_its_options(document, line):
    context, words = click.Context(main, info_name="producer-core"), shlex.split(line)[1:]
    command = main
    while words and isinstance(command, click.Group) and not words[0].startswith("-"):
        if (
            command is main
            and words[0] in main.list_commands(context)
            and find_spec(f"producer_core.cli.{words[0]}") is None
        ):
            pytest.fail(f"{line}: its module is missing")
        command = command.get_command(context, words.pop(0))
        assert command is not None, line
    known = {option for parameter in command.params for option in parameter.opts} | {"--help", "-h"}
    assert {word.partition("=")[0] for word in words if re.match(r"--?[a-z]", word)} - known == set()


def test_the_readme_names_every_command():
    context = click.Context(main)
    for name in main.list_commands(context):
        assert f"`producer-core {name}" in README, name


def test_a_subcommand_that_the_table_lists_exists():
    rows = [line for line in README.splitlines() if line.startswith("| `producer-core") and "also" in line]
    assert rows
    for row in rows:
        name = row.split("`")[1].split()[1]
        group = main.get_command(click.Context(main), name)
        listed = re.findall(r"`([a-z]+)`", row.partition("also")[2])
        there = group.list_commands(click.Context(group))
        missing = [
            word
            for word in listed
            if word not in there and group.get_command(click.Context(group), word) is None
        ]
        assert missing == [], name


def test_a_make_target_that_a_document_names_exists():
    targets = set(re.findall(r"^([a-z][\w-]*):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    for text in TEXTS.values():
        assert set(re.findall(r"`make ([a-z-]+)", text)) <= targets
        assert set(re.findall(r"^make ([a-z-]+)$", text, re.MULTILINE)) <= targets


# tables


@pytest.mark.parametrize("case", [row[0] for row in (*bad.SENT, *bad.RAISES, *bad.DEAD_LETTERS)])
def test_the_table_of_bad_input_has_every_tested_case(case):
    table = README.partition("## What raises")[2].partition("\n## ")[0]
    assert case in table


def test_the_table_of_defaults_says_what_is_so():
    table = README.partition("## Defaults that matter")[2].partition("\n\nSettings")[0]
    rows = re.findall(r"^\| `(\w+)` \| `([^`]+)` \|", table, re.MULTILINE)
    config = client_config("a:1")
    known = {"max_block_ms": int(config.max_block * 1000)}
    assert len(rows) >= 8
    for name, value in rows:
        found = known.get(name) or config.settings[NAMES.get(name, name.replace("_", "."))]
        assert str(found) == value, name


def test_every_link_leads_somewhere():
    for name, text in TEXTS.items():
        links = re.findall(r"\]\(([^)#\s]+)\)", text) + re.findall(r'(?:src|srcset)="([^"]+)"', text)
        missing = [link for link in links if "://" not in link and not (ROOT / link).exists()]
        assert missing == [], name


def test_the_files_and_functions_that_the_design_names_exist():
    design = TEXTS["DESIGN.md"]
    for path in re.findall(r"`((?:producer_core|dashboard|tests|scripts|notebooks|\.ci)[\w./*-]*)`", design):
        assert list(ROOT.glob(path.rstrip("/"))), path
    for module, name in re.findall(r"`(\w+)\.py:(\w+)`", design):
        sources = [file.read_text() for file in ROOT.glob(f"producer_core/**/{module}.py")]
        assert any(re.search(rf"\b(?:def|class) {name}\b", source) for source in sources), (
            f"{module}.py:{name}"
        )


# house rules


@pytest.mark.parametrize("name", TEXTS)
def test_a_document_is_plain(name):
    text = TEXTS[name]
    assert not re.search("[\U0001f300-\U0001faff\u2600-\u27bf]", text), "emoji"
    assert not re.search(r"(?<![\w.])/(?:work|root|tmp|home)/", text), "a path of one machine"
    assert not re.search(
        r"\b(?:blazing|seamless|effortless|powerful|cutting-edge|enterprise-grade)", text, re.I
    )


def test_the_licence_is_the_one_that_is_declared():
    assert "Apache License" in (ROOT / "LICENSE").read_text()[:200]
    assert 'license = "Apache-2.0"' in (ROOT / "pyproject.toml").read_text()


def test_notebooks_hold_no_output():
    for file in (ROOT / "notebooks").glob("*.ipynb"):
        for cell in json.loads(file.read_text())["cells"]:
            assert not cell.get("outputs"), file.name
            assert cell.get("execution_count") is None, file.name
