"""A group of commands that are imported when they are called, and errors without a traceback."""

from __future__ import annotations

import sys
from types import ModuleType

import click
import pytest
from click.testing import CliRunner

from producer_core.cli.lazy_group import INTERRUPTED, Command, Failed, LazyGroup
from producer_core.errors import ConfigError

COMMANDS = (Command("greet", "Say hello.", "greeting"), Command("absent", "Need a package.", "not_there"))


@pytest.fixture
def group(monkeypatch):
    """A group with a lazy command `greet`, a lazy command without a module, and two commands of its own."""
    module = ModuleType("shop_cli.greeting")
    module.greet = click.Command("greet", callback=lambda: click.echo("hello"))
    monkeypatch.setitem(sys.modules, "shop_cli", ModuleType("shop_cli"))
    monkeypatch.setitem(sys.modules, "shop_cli.greeting", module)
    made = LazyGroup("shop", commands_elsewhere=COMMANDS, package="shop_cli")

    @made.command(short_help="Fail.")
    def fail():
        raise ConfigError("The option is wrong.", fix="Correct it.")

    @made.command(short_help="Wait.")
    def wait():
        raise KeyboardInterrupt

    return made


def run(group, *arguments):
    return CliRunner().invoke(group, arguments)


def test_the_help_lists_every_command_without_an_import(group, monkeypatch):
    monkeypatch.delitem(sys.modules, "shop_cli.greeting")

    result = run(group, "--help")

    assert result.exit_code == 0
    for text in ("greet", "Say hello.", "absent", "Need a package.", "fail", "wait"):
        assert text in result.output
    assert "shop_cli.greeting" not in sys.modules


def test_a_command_is_imported_when_it_is_called(group):
    assert run(group, "greet").output == "hello\n"


def test_a_misspelt_command_gets_a_suggestion(group):
    result = run(group, "gret")

    assert result.exit_code == 2
    assert "Unknown command 'gret'. Did you mean greet?" in result.output


def test_an_unknown_command_lists_the_available_commands(group):
    assert "Commands: greet, absent, fail, wait." in run(group, "zzz").output


def test_an_error_is_shown_with_its_fix_and_without_a_traceback(group):
    result = run(group, "fail")

    assert result.exit_code == 2
    assert result.output == "Error: The option is wrong.\n  Correct it.\n"


def test_an_interrupt_ends_the_command_with_130(group):
    result = run(group, "wait")

    assert result.exit_code == INTERRUPTED == 130
    assert "Interrupted." in result.output


@pytest.mark.parametrize(("package", "extra"), [("pyspark", "spark"), ("streamlit.testing", "dashboard")])
def test_a_missing_package_is_reported_with_the_extra_to_install(group, monkeypatch, package, extra):
    def missing(name):
        raise ModuleNotFoundError(f"No module named {package!r}", name=package)

    monkeypatch.setattr("producer_core.cli.lazy_group.import_module", missing)

    result = run(group, "absent")

    assert result.exit_code == 2
    assert f"pip install 'producer-core[{extra}]'" in result.output


def test_a_missing_module_without_an_extra_is_raised(group):
    assert isinstance(run(group, "absent").exception, ModuleNotFoundError)


def test_a_failed_command_has_exit_code_2():
    assert Failed("It failed.").exit_code == 2
