"""Test the widget without a browser: its displayed and saved output, and its replies."""

from __future__ import annotations

import json
import re
import subprocess
import sys

import pytest

from producer_core import Monitor
from producer_core.dashboard.notebook import widget_state
from producer_core.dlq import DeadLetters
from producer_core.errors import StoreUnavailable
from tests.fixtures import notebook as notebook_fixtures
from tests.fixtures import notebook_widget as notebook_widget_fixtures
from tests.fixtures.notebook import dead_letter
from tests.fixtures.notebook_widget import click, send
from tests.support import ROOT

widget = notebook_widget_fixtures.widget
displayed, now, store = notebook_fixtures.displayed, notebook_fixtures.now, notebook_fixtures.store


def test_a_cell_displays_the_static_view_and_the_live_widget(store, displayed):
    Monitor(store)._ipython_display_()
    (static, options), (live, _) = displayed

    assert "10 of 100" in static["text/html"] and "data:image/svg+xml" in static["text/html"]
    assert "<script" not in static["text/html"]
    assert "10 of 100" in static["text/plain"]
    assert options["display_id"].startswith("pc-")
    assert "application/vnd.jupyter.widget-view+json" in live and live["text/plain"] == ""


def test_the_saved_output_stays_far_below_100_kB(store, displayed, now):
    DeadLetters(store).add(
        [dead_letter(100 + number, topic=f"topic-{number}", failed_at=now) for number in range(400)]
    )
    monitor = Monitor(store)
    monitor._ipython_display_()
    saved = [bundle for bundle, _ in displayed]

    assert len(json.dumps(saved)) + len(json.dumps(monitor.widget().get_state(), default=str)) < 60_000
    assert "and 393 more topics" in saved[0]["text/html"]


@pytest.mark.slow
def test_the_static_view_is_updated_after_actions_and_every_half_minute(widget, displayed, monkeypatch):
    widget._ipython_display_()
    send(widget, type="refresh")
    assert [options.get("update") for _, options in displayed] == [False, None]

    click(widget, "clear")
    assert displayed[-1][1]["update"] is True

    widget._static_at -= 31
    send(widget, type="refresh")
    assert len(displayed) == 4


def test_widgets_of_one_store_are_independent(store):
    one, other = Monitor(store).widget(), Monitor(store).widget()
    assert one.uid != other.uid
    one.close()
    assert other.comm is not None


@pytest.mark.slow
def test_a_closed_widget_is_replaced(store):
    monitor = Monitor(store)
    first = monitor.widget()
    first.close()
    assert monitor.widget() is not first
    monitor.close()


@pytest.mark.slow
def test_a_notebook_loads_no_web_server():
    """A notebook needs neither Streamlit nor plotly, nor the modules on which the dashboard's server builds."""
    code = (
        "import sys\n"
        "from pathlib import Path\n"
        "for name in ('plotly', 'starlette', 'streamlit', 'uvicorn'):\n"
        "    sys.modules[name] = None\n"  # makes the import fail
        "from producer_core.dashboard import actions, notebook\n"
        "from producer_core.dashboard.notebook import magics, static_export, widget\n"
        "print(notebook.MonitorWidget.__name__, actions.may_act(Path('none.duckdb')))\n"
    )

    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)

    assert done.returncode == 0, done.stderr
    assert done.stdout == "MonitorWidget (True, '')\n"


def test_an_idle_widget_starts_no_thread(store):
    import threading

    before = set(threading.enumerate())
    Monitor(store).widget()
    assert set(threading.enumerate()) == before


def test_each_refresh_has_current_numbers(widget, store, now):
    assert send(widget, type="refresh")["state"]["dead_total"] == 10
    DeadLetters(store).add([dead_letter(10, failed_at=now)])
    assert send(widget, type="refresh")["state"]["dead_total"] == 11


def test_the_browser_can_only_choose_a_listed_time_range(widget):
    assert send(widget, type="refresh", window="6 hours")["state"]["window"] == "6 hours"
    assert send(widget, type="refresh", window="'; DROP")["state"]["window"] == widget_state.DEFAULT


def test_a_store_error_is_a_reply_not_an_exception(widget, monkeypatch):
    def closed(*_, **__):
        raise StoreUnavailable("The store is gone.", fix="Bring it back.")

    monkeypatch.setattr(widget_state, "moment", closed)
    answer = send(widget, type="refresh")
    assert answer["type"] == "error" and "The store is gone." in answer["message"]


def test_the_script_and_the_style_load_nothing():
    folder = ROOT / "dashboard/notebook"
    script = "".join(path.read_text() for path in sorted(folder.glob("*.js")))
    addresses = set(re.findall(r"https?://[^'\"`]+", script)) - {"http://www.w3.org/2000/svg"}
    assert not addresses and not re.findall(
        r"\bimport\b|\brequire\b|fetch\(|XMLHttpRequest|WebSocket|Jupyter\.|window\.", script
    )
    assert "@import" not in (style := (folder / "widget.css").read_text()) and "url(" not in style
