"""IPython magics: `%load_ext producer_core`, then `%producer_stats`, `%dlq` and `%%watch`."""

from __future__ import annotations

import argparse
import ast
import shlex
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NoReturn

from producer_core.dashboard.notebook.cell_summary import CellWatch
from producer_core.dlq import DeadLetterFilter, Groups
from producer_core.errors import ConfigError
from producer_core.producer.monitor import Monitor
from producer_core.producer.producer import ReliableKafkaProducer
from producer_core.store import Store


def load_ipython_extension(shell: Any) -> None:
    """Register the magics; called by `%load_ext producer_core`."""
    magics = Magics(shell)
    shell.register_magic_function(magics.producer_stats, "line", "producer_stats")
    shell.register_magic_function(magics.dlq, "line", "dlq")
    shell.register_magic_function(magics.watch, "cell", "watch")


class Magics:
    """Implements the magics.

    Each takes the name of a variable that holds a producer, a Store or a Monitor, or the path of a store. Without an
    argument, it uses the only open producer of the notebook, else the default store.
    """

    def __init__(self, shell: Any) -> None:
        self._shell = shell

    def producer_stats(self, line: str = "") -> Any:
        """Return the live monitor: `%producer_stats [SOURCE]`."""
        source = self._source(_arguments(line))
        return source.monitor() if isinstance(source, ReliableKafkaProducer) else Monitor(source)

    def dlq(self, line: str = "") -> Groups:
        """Return the causes of the pending dead letters with advice: `%dlq [SOURCE] [--topic T] [--code C]`."""
        parser = _Parser(prog="%dlq", add_help=False)
        parser.add_argument("source", nargs="?")
        parser.add_argument("--topic")
        parser.add_argument("--code")
        options = parser.parse_args(_arguments(line))
        where = DeadLetterFilter(topic=options.topic, code=options.code)
        return _monitor(self._source([options.source] if options.source else [])).groups(where)

    def watch(self, line: str, cell: str) -> Any:
        """Run the cell and summarize the messages that it sent: `%%watch [SOURCE]`."""
        with CellWatch(_monitor(self._source(_arguments(line))).store):
            return _run(self._shell, cell)

    def _source(self, arguments: Sequence[str]) -> Any:
        variables: Mapping[str, Any] = self._shell.user_ns if self._shell is not None else {}
        if arguments:
            return _variable_or_path(arguments[0], variables)
        open_producers = {
            id(value): value
            for name, value in variables.items()
            if isinstance(value, ReliableKafkaProducer)
            and value.store is not None
            and not name.startswith("_")
        }
        if len(open_producers) == 1:
            return next(iter(open_producers.values()))
        return Store.open(create=False)


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        raise ConfigError(f"{self.prog}: {message}.", fix=self.format_usage().strip())


def _arguments(line: str) -> list[str]:
    try:
        return shlex.split(line)
    except ValueError as error:
        raise ConfigError(f"{line!r}: {error}.") from error


def _variable_or_path(name: str, variables: Mapping[str, Any]) -> Any:
    if name not in variables:
        return name
    value = variables[name]
    if isinstance(value, ReliableKafkaProducer | Store | Monitor | str | Path):
        return value
    raise ConfigError(f"{name} is not a producer, store or monitor.")


def _monitor(source: Any) -> Monitor:
    if isinstance(source, Monitor):
        return source
    return source.monitor() if isinstance(source, ReliableKafkaProducer) else Monitor(source)


def _run(shell: Any, cell: str) -> Any:
    """Run the cell in the notebook's namespace and return the value of its last expression; its errors propagate."""
    tree = shell.compile.ast_parse(shell.transform_cell(cell), filename="<watch>")
    last = tree.body.pop() if tree.body and isinstance(tree.body[-1], ast.Expr) else None
    exec(compile(tree, "<watch>", "exec"), shell.user_ns)  # noqa: S102 the code is the user's own cell
    if last is None:
        return None
    return eval(compile(ast.Expression(last.value), "<watch>", "eval"), shell.user_ns)  # noqa: S307 the same
