"""The command line of the live demo."""

from __future__ import annotations

import signal

import pytest

from producer_core.simulate import live


@pytest.mark.parametrize(
    "arguments", [["--port", "0"], ["--rate", "-1"], ["--rate", "x"], ["--port", "99999"]]
)
def test_an_invalid_option_is_a_usage_error(arguments, capsys):
    handlers = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)}
    with pytest.raises(SystemExit) as end:
        live.main(arguments)
    for number, handler in handlers.items():
        signal.signal(number, handler)

    assert end.value.code == 2 and "usage: make run" in capsys.readouterr().err
