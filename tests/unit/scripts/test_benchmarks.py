"""The framework of the benchmarks: interleaved rounds that resume, tables, plots, and the page of results."""

from __future__ import annotations

import json
import xml.etree.ElementTree as ElementTree
from contextlib import nullcontext
from importlib import import_module
from itertools import pairwise

import pytest

from benchmarks import __main__ as page
from benchmarks import frame, history_store, plot, sending, soak
from benchmarks.frame import Bench, Case
from benchmarks.stage import Stage

CASES = [Case("a", "somewhere:one", {"n": 1}), Case("b", "somewhere:one", {"n": 2})]


@pytest.fixture
def bench(tmp_path, monkeypatch):
    monkeypatch.setattr(frame, "code", lambda: "abc")
    return Bench("somewhere", Stage(), rounds=3, results=tmp_path)


def record_calls(monkeypatch, result=lambda **settings: {"rate": float(settings["n"])}, fail_at=None):
    made = []

    def call(function, **settings):
        if len(made) == fail_at:
            raise frame.RunFailed("failed")
        made.append(settings)
        return result(**settings)

    monkeypatch.setattr(frame, "call", call)
    return made


def test_every_round_runs_every_case_and_ratios_are_taken_within_rounds(bench, monkeypatch):
    made = record_calls(monkeypatch)

    runs = bench.run("part", CASES, around=lambda case: nullcontext({"servers": "x"}))

    assert sorted(one["n"] for one in made) == [1, 1, 1, 2, 2, 2]
    assert all(one["servers"] == "x" for one in made)
    assert runs.ratio("b", "a") == 2.0
    assert runs.ratio("b", "nobody") is None


def test_a_benchmark_resumes_and_repeats_the_failed_round(bench, monkeypatch):
    record_calls(monkeypatch, fail_at=3)
    with pytest.raises(frame.RunFailed):
        bench.run("part", CASES)

    made = record_calls(monkeypatch)
    runs = bench.run("part", CASES)

    assert len(made) == 4
    assert len(runs.numbers("a", "rate")) == len(runs.numbers("b", "rate")) == 3


def test_results_of_other_code_or_other_settings_are_not_reused(bench, monkeypatch):
    record_calls(monkeypatch)
    bench.run("part", CASES)

    made = record_calls(monkeypatch)
    bench.run("part", [Case("a", "somewhere:one", {"n": 7})])
    assert len(made) == 3

    monkeypatch.setattr(frame, "code", lambda: "def")
    bench.run("part", CASES)
    assert len(made) == 9


def test_results_are_lines_of_json_with_settings_code_and_load(bench, monkeypatch):
    record_calls(monkeypatch)
    bench.run("part", CASES, rounds=1)

    lines = [json.loads(line) for line in bench.file.read_text().splitlines()]

    assert {line["case"] for line in lines} == {"a", "b"}
    assert set(lines[0]) == {"part", "case", "round", "settings", "values", "load", "code", "at"}


@pytest.mark.slow
def test_a_failed_run_raises_with_its_output():
    with pytest.raises(frame.RunFailed, match="no_such_function"):
        frame.call("imports:no_such_function")


@pytest.mark.slow
def test_a_run_has_its_own_process():
    assert frame.call("imports:one", way="python alone")["seconds"] > 0


@pytest.mark.parametrize("name", page.ALL)
def test_each_benchmark_has_a_question_and_limitations(name):
    module = import_module(f"benchmarks.{name}")

    assert module.QUESTION.endswith("?")
    assert module.LIMITATIONS
    assert callable(module.measure)


def test_every_case_of_sending_has_a_unique_title():
    titles = [way.title for way in sending.WAYS.values()]
    assert len(set(titles)) == len(titles)


def test_the_table_of_targets_shows_which_are_met():
    table = frame.targets_table(
        [
            frame.at_least("quick", 0.9, [0.8, 1.0, 1.1]),
            frame.at_least("slow", 0.9, [0.5]),
            frame.at_most("late", 20, [], "µs"),
        ]
    )

    rows = table.splitlines()[2:]
    assert [row.split(" | ")[-1].strip(" |") for row in rows] == ["yes", "**no**", "?"]


@pytest.mark.parametrize(
    "numbers", [[[3.0, 4.0], [5.0]], [[1.0], [100_000.0, 200_000.0]], [[0.0], [0.0]], [[], [2.0]]]
)
def test_a_plot_has_a_circle_per_measured_point(numbers):
    lines = {"ours & theirs": dict(zip(("a", "b"), numbers, strict=True))}

    drawn = plot.svg(title="<title>", places=["a", "b"], across="x", up="y", lines=lines)

    root = ElementTree.fromstring(drawn)
    assert len(root.findall(".//{*}circle")) == sum(bool(one) for one in numbers)
    assert "<title>" in [text.text for text in root.findall(".//{*}text")]


def test_the_page_replaces_only_the_text_between_its_markers():
    once = page._insert("# Benchmarks\n\nBy hand.\n", "one")
    twice = page._insert(once + "\nBelow.\n", "two")

    assert "By hand." in twice and "Below." in twice
    assert "two" in twice and "one" not in twice.replace("none", "")


def test_recent_history_has_a_finer_resolution():
    assert [resolution for resolution, _, _ in history_store.steps(600)] == [1]
    assert [resolution for resolution, _, _ in history_store.steps(86_400)] == [60, 1]
    assert [resolution for resolution, _, _ in history_store.steps(30 * 86_400)] == [3600, 60, 1]
    for seconds in (600, 86_400, 30 * 86_400):
        parts = history_store.steps(seconds)
        assert all(before[2] == after[1] for before, after in pairwise(parts))
        assert parts[-1][2] == history_store.NOW


def test_a_soak_reports_growth_without_samples_near_a_fault():
    samples = [
        {"at": float(at), "memory": 50.0 + at, "threads": 20, "p50": 900.0 if at == 95 else 5.0}
        for at in range(0, 101, 5)
    ]
    quiet = soak.undisturbed(samples, [soak.Fault("resets", 94.0, 96.0)], after=2.0)

    found = {one.name: one for one in soak.drifts(samples, quiet)}

    assert [one["at"] for one in samples if one not in quiet] == [95.0]
    assert {name: one.flat for name, one in found.items()} == {"memory": False, "threads": True, "p50": True}
    assert (found["memory"].early, found["memory"].late) == (77.5, 137.5)
    assert found["threads"].growth == 0.0
    assert found["memory"].growth > 3000  # a megabyte a second


def test_a_buffer_that_fills_up_has_no_growth_in_the_second_half():
    samples = [{"at": float(at), "memory": min(50.0 + at, 90.0)} for at in range(101)]

    (memory,) = soak.drifts(samples, samples)

    assert memory.late > memory.early
    assert memory.growth == 0.0


def test_a_soak_draws_its_samples(tmp_path):
    samples = [
        {"at": float(at), "memory": 50.0, "threads": 20, "handles": 9, "store": 4.0} for at in range(24)
    ]

    soak.draw(tmp_path, samples, samples)

    for name in ("memory", "process", "latency"):
        ElementTree.parse(tmp_path / f"soak-{name}.svg")
        assert "other processes" not in (tmp_path / f"soak-{name}.svg").read_text()
    soak.draw(tmp_path, [{**one, "load": 9.0} for one in samples], samples)
    assert "latency is not meaningful" in (tmp_path / "soak-memory.svg").read_text()
