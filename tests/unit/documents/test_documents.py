"""Check the documents against the code: every example runs, and every name exists."""

from __future__ import annotations

import ast
import importlib.util
import json
import os
import re
import shlex
import subprocess
import sys
import tempfile
import tomllib
from functools import cache
from importlib.util import find_spec

import click
import pytest
import yaml

from producer_core._internal.id_header import DEFAULT_ID_FORMAT
from producer_core.cli import main
from producer_core.config import NAMES, client_config
from producer_core.kafka.error_codes import TABLE
from producer_core.store import Store
from tests.support import ROOT
from tests.unit import test_bad_input as bad

README = (ROOT / "README.md").read_text()
PAGES = {
    str(path.relative_to(ROOT)): path.read_text()
    for path in sorted([*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")])
}
"""The text of every document, by its path."""

BLOCKS = [
    (name, number, block)
    for name, text in PAGES.items()
    for number, block in enumerate(re.findall(r"^```python\n(.*?)^```", text, re.DOTALL | re.MULTILINE), 1)
]
"""The Python examples: document, number, source."""

MAX_README_LINES = 150


def is_spark(block):
    """Whether an example uses the reader's Spark session. The service tests run the same calls."""
    return re.search(r"\bspark\b", block) is not None


def is_command_line(block):
    """Whether an example is a script that waits for arguments."""
    return block.rstrip().endswith("main()") and "from producer_core.cli import main" in block


def needs_registry(block):
    """Whether an example uses the reader's schema registry. An integration test runs it against a real one."""
    return "http://localhost:8081" in block


EXAMPLES = [
    example
    for example in BLOCKS
    if not is_spark(example[2]) and not is_command_line(example[2]) and not needs_registry(example[2])
]
OTHERS = [example for example in BLOCKS if example not in EXAMPLES]


# examples


@cache
def run(block):
    # a time limit for an example that hangs, and a folder for its files
    with tempfile.TemporaryDirectory() as folder:
        environment = {**os.environ, "PYTHONPATH": f"{ROOT}:{os.environ.get('PYTHONPATH', '')}"}
        return subprocess.run(
            [sys.executable, "-c", block],
            capture_output=True,
            text=True,
            timeout=600,
            cwd=folder,
            env=environment,
        )


def names_of(examples):
    return [f"{name} {number}" for name, number, _ in examples]


@pytest.mark.slow
@pytest.mark.parametrize(("name", "number", "block"), EXAMPLES, ids=names_of(EXAMPLES))
def test_every_example_runs_unchanged(name, number, block):
    assert run(block).returncode == 0, run(block).stderr
    assert "Traceback" not in run(block).stderr


@pytest.mark.parametrize(("name", "number", "block"), OTHERS, ids=names_of(OTHERS))
def test_spark_examples_import_existing_names(name, number, block):
    imports = [node for node in ast.walk(ast.parse(block)) if isinstance(node, ast.ImportFrom)]
    assert imports
    for node in imports:
        module = importlib.import_module(node.module)
        for alias in node.names:
            assert hasattr(module, alias.name) or find_spec(f"{node.module}.{alias.name}"), alias.name


@pytest.mark.slow
def test_the_first_example_of_the_readme_shows_a_dead_letter_and_its_replay():
    first = next(block for name, _, block in BLOCKS if name == "README.md")
    patient = first.replace("servers)", 'servers, {"retry_backoff_ms": 20_000})')
    # on a busy machine too, the refusal proves that nothing was sent a second time
    assert patient != first
    shown = run(patient).stdout.splitlines()
    assert shown == ["refunds {'order': 1} Broker: Policy violation", "1 replayed"]
    assert len([line for line in first.splitlines() if line and "import" not in line]) <= 10


def test_the_readme_stays_below_its_line_limit():
    assert len(README.splitlines()) <= MAX_README_LINES


# commands


def commands():
    for name, text in PAGES.items():
        found = re.findall(r"(?<!`)`(producer-core [^`\n]+)`", text)
        for block in re.findall(r"```(?:sh|bash|text)\n(.*?)```", text, re.DOTALL):
            found += [
                line.partition("  ")[0] for line in block.splitlines() if line.startswith("producer-core ")
            ]
        yield from ((name, command) for command in dict.fromkeys(found))


@pytest.mark.parametrize(("document", "line"), list(commands()))
def test_documented_commands_exist_with_their_options(document, line):
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


def test_subcommands_in_the_readme_table_exist():
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


def test_documented_make_targets_exist():
    targets = set(re.findall(r"^([a-z][\w-]*):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    for text in PAGES.values():
        assert set(re.findall(r"`make ([a-z-]+)", text)) <= targets
        assert set(re.findall(r"^make ([a-z-]+)$", text, re.MULTILINE)) <= targets


# tables


@pytest.mark.parametrize("case", [row[0] for row in (*bad.SENT, *bad.RAISES, *bad.DEAD_LETTERS)])
def test_the_bad_input_table_lists_every_tested_case(case):
    table = PAGES["docs/reference/errors.md"].partition("## Calls that raise")[2].partition("\n## ")[0]
    assert case in table


def test_the_table_of_defaults_matches_the_configuration():
    page = PAGES["docs/reference/settings.md"]
    table = page.partition("## Defaults that matter")[2].partition("\n\nSettings")[0]
    rows = re.findall(r"^\| `(\w+)` \| `([^`]+)` \|", table, re.MULTILINE)
    config = client_config("a:1")
    known = {"max_block_ms": int(config.max_block * 1000), "message_id_format": DEFAULT_ID_FORMAT}
    assert len(rows) >= 8
    for name, value in rows:
        found = known.get(name) or config.settings[NAMES.get(name, name.replace("_", "."))]
        assert str(found) == value, name


@pytest.mark.parametrize("name", PAGES)
def test_every_relative_link_resolves(name):
    folder = (ROOT / name).parent
    links = re.findall(r"\]\(([^)#\s]+)[^)\s]*\)", PAGES[name])
    links += re.findall(r'(?:src|srcset)="([^"]+)"', PAGES[name])
    assert [link for link in links if "://" not in link and not (folder / link).exists()] == []


@pytest.mark.parametrize(
    ("page", "name", "target"),
    [
        (page, name, target)
        for page, text in PAGES.items()
        for name, target in re.findall(r"\[`([\w.]+)`\]\(([^)#:]*\.md)\)", text)
    ],
)
def test_a_page_that_a_name_links_to_mentions_it(page, name, target):
    """Regression: the page about alerts did not mention an alert that linked to it."""
    assert name in (ROOT / page).parent.joinpath(target).read_text()


def test_the_site_navigation_lists_every_page():
    def pages(entry):
        if isinstance(entry, str):
            return [entry]
        return [
            page for part in (entry.values() if isinstance(entry, dict) else entry) for page in pages(part)
        ]

    shown = pages(yaml.safe_load((ROOT / "mkdocs.yml").read_text())["nav"])
    assert sorted(f"docs/{page}" for page in shown) == sorted(
        name for name in PAGES if name.startswith("docs/")
    )


# the generated reference


@cache
def reference():
    path = ROOT / "scripts" / "docs_reference.py"
    module = importlib.util.module_from_spec(importlib.util.spec_from_file_location("docs_reference", path))
    module.__spec__.loader.exec_module(module)
    return module


def test_reference_markers_and_generated_sections_match():
    markers = [marker for text in PAGES.values() for marker in re.findall(r"<!-- reference: (\w+) -->", text)]
    assert sorted(markers) == sorted(reference().SECTIONS)


def test_the_command_line_reference_has_every_command_with_its_options():
    text = reference().on_page_markdown("<!-- reference: cli -->")
    for heading in (
        "# producer-core send\n",
        "# producer-core dlq replay\n",
        "# producer-core pipeline integrity\n",
    ):
        assert heading in text
    assert "--canary" in text


def test_the_error_reference_has_every_code():
    text = reference().error_codes()
    assert all(f"| `{row[0]}` |" in text for row in TABLE)


def test_the_store_reference_has_every_table_and_column(tmp_path):
    text = reference().store()
    with Store.open(tmp_path / "store.duckdb").borrow() as connection:
        columns = connection.execute(
            "SELECT table_name, column_name FROM duckdb_columns() WHERE NOT internal AND database_name = 'store'"
            " AND table_name NOT IN ('message_statistics', 'dead_letter_decisions',"
            " 'schema_migrations', 'additive_migrations')"
        ).fetchall()
    assert len(columns) > 100
    for table, column in columns:
        section = text.partition(f"### {table}\n")[2].partition("\n### ")[0]
        assert f"| `{column}` |" in section, (table, column)


# names in the code

_CODE = re.compile(
    r"`((?:producer_core|dashboard|tests|scripts|notebooks|examples|benchmarks|docs|\.ci)/[\w./*-]*)`"
)
_PLACE = re.compile(r"`([\w/]+)\.py:(\w+)`")


@pytest.mark.parametrize("name", PAGES)
def test_documented_files_exist(name):
    for path in _CODE.findall(PAGES[name]):
        assert list(ROOT.glob(path.rstrip("/"))), path


@pytest.mark.slow
@pytest.mark.parametrize("name", PAGES)
def test_documented_functions_exist(name):
    for module, member in _PLACE.findall(PAGES[name]):
        defined = re.compile(rf"\b(?:def|class) {member}\b|^{member}\b", re.MULTILINE)
        assert any(defined.search(source) for source in sources(module)), f"{module}.py:{member}"


@cache
def sources(module):
    files = [file for package in ("producer_core", "dashboard") for file in (ROOT / package).rglob("*.py")]
    return [file.read_text() for file in files if f"/{file}".endswith(f"/{module}.py")]


def test_the_architecture_pages_refer_to_the_code():
    assert len(_PLACE.findall(PAGES["docs/development/architecture.md"])) > 50
    assert len(_PLACE.findall(PAGES["docs/development/invariants.md"])) > 50


# house rules


@pytest.mark.parametrize("name", PAGES)
def test_a_document_has_no_emoji_local_path_or_marketing_term(name):
    text = PAGES[name]
    assert not re.search("[\U0001f300-\U0001faff\u2600-\u27bf]", text), "emoji"
    assert not re.search(r"(?<![\w.])/(?:work|root|tmp|home)/", text), "a path of one machine"
    assert not re.search(
        r"\b(?:blazing|seamless|effortless|powerful|cutting-edge|enterprise-grade)", text, re.I
    )


def test_the_licence_file_matches_the_declared_licence():
    assert "Apache License" in (ROOT / "LICENSE").read_text()[:200]
    assert 'license = "Apache-2.0"' in (ROOT / "pyproject.toml").read_text()


def test_notebooks_contain_no_output():
    for file in (ROOT / "notebooks").glob("*.ipynb"):
        for cell in json.loads(file.read_text())["cells"]:
            assert not cell.get("outputs"), file.name
            assert cell.get("execution_count") is None, file.name


@pytest.mark.parametrize("name", [name for name, text in PAGES.items() if "pip install" in text])
def test_pip_commands_work_before_a_release(name):
    """The package is on no index yet, so documents install it from a checkout, with extras that exist."""
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    page = PAGES[name]

    assert not re.search(r"pip install[^\n`]*producer-core", page)
    for given in re.findall(r"pip install '\.\[([\w,]+)\]'", page):
        assert set(given.split(",")) <= extras.keys()
        assert "checkout" in page
