"""Signals that end a wait."""

from __future__ import annotations

import signal
import subprocess
import sys

import pytest

from producer_core._internal.stop_signal import exit_on_signal


def test_an_ignored_signal_still_stops():
    code = "from producer_core._internal.stop_signal import StopSignal; s = StopSignal(); print('ready', flush=True); print(s.wait(30))"
    child = subprocess.Popen(
        [sys.executable, "-c", code],
        stdout=subprocess.PIPE,
        text=True,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_IGN),
    )
    assert child.stdout.readline() == "ready\n"

    child.send_signal(signal.SIGINT)

    assert child.communicate(timeout=10)[0] == "True\n"


@pytest.mark.slow
def test_a_signal_delivered_to_another_thread_ends_the_wait():
    """Such a signal does not interrupt the main thread's call, nor does one that arrives just before it."""
    code = """if True:
        import signal, threading, time
        from producer_core._internal.stop_signal import StopSignal
        stop = StopSignal()
        def gets_it():
            time.sleep(0.5)  # until the main thread waits
            signal.pthread_kill(threading.get_ident(), signal.SIGTERM)
            time.sleep(60)
        threading.Thread(target=gets_it, daemon=True).start()
        print(stop.wait(), flush=True)
    """
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=30)

    assert (done.stdout, done.returncode) == ("True\n", 0), done.stderr


@pytest.mark.slow
def test_another_signal_does_not_end_the_wait():
    code = """if True:
        import os, signal
        from producer_core._internal.stop_signal import StopSignal
        stop = StopSignal()
        signal.signal(signal.SIGUSR1, lambda *_: None)
        os.kill(os.getpid(), signal.SIGUSR1)
        print(stop.wait(0.2), flush=True)
        os.kill(os.getpid(), signal.SIGTERM)
        print(stop.wait(), flush=True)
    """
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=30)

    assert (done.stdout, done.returncode) == ("False\nTrue\n", 0), done.stderr


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_a_signal_inside_the_block_exits_after_its_cleanup(number):
    code = """if True:
        import sys
        from producer_core._internal.stop_signal import exit_on_signal
        with exit_on_signal():
            try:
                print("ready", flush=True)
                sys.stdin.read()
            finally:
                print("cleaned", flush=True)
    """
    child = subprocess.Popen(
        [sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert child.stdout.readline() == "ready\n"
    child.send_signal(number)
    assert child.stdout.readline() == "cleaned\n"
    child.stdin.close()
    assert child.wait(timeout=30) == 128 + number
    child.stdout.close()


def test_after_the_block_signals_are_handled_as_before():
    previous = [signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGHUP)]
    with exit_on_signal():
        assert signal.getsignal(signal.SIGTERM) is not previous[0]
    assert [signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGHUP)] == previous
