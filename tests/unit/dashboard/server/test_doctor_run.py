"""Test doctor runs in the background."""

from __future__ import annotations

import threading

from producer_core.dashboard.queries.settings import cluster_connection
from producer_core.dashboard.server import doctor_run
from producer_core.diagnostics.doctor.finding import DoctorFinding


def test_a_doctor_run_sorts_its_findings_when_it_finishes():
    proceed = threading.Event()

    def checks():
        yield DoctorFinding("first", "ok", "Fine.")
        proceed.wait(10)
        yield DoctorFinding("second", "problem", "Broken.", "Repair it.")

    run = doctor_run.DoctorRun(checks(), servers="").start()
    assert not run.finished
    proceed.set()
    assert run.join(10)
    assert [one.check for one in run.findings] == ["second", "first"]


def test_a_doctor_run_that_fails_reports_it_and_finishes():
    def checks():
        yield DoctorFinding("first", "ok", "Fine.")
        raise ValueError("unexpected")

    run = doctor_run.DoctorRun(checks(), servers="").start()
    assert run.join(10)
    assert run.findings[0].level == "problem" and "ValueError" in run.findings[0].text


def test_a_store_has_one_doctor_run_at_a_time(path, store, monkeypatch):
    proceed = threading.Event()

    def checks(*_):
        proceed.wait(10)
        yield DoctorFinding("first", "ok", "Fine.")

    monkeypatch.setattr(doctor_run, "run_checks", checks)
    first = doctor_run.begin(path, None)
    assert doctor_run.begin(path, None) is first
    proceed.set()
    assert first.join(10)
    second = doctor_run.begin(path, None)
    assert second is not first and second.join(10)


def test_a_cluster_that_requires_credentials_is_not_checked(path, store, monkeypatch):
    monkeypatch.setattr(doctor_run, "java_version", lambda: 17)
    secured = cluster_connection("c", '{"bootstrap.servers": "a:9092", "sasl.password": "***"}')
    found = {one.check: one for one in doctor_run.run_checks(path, secured, ())}
    assert "requires credentials" in found["cluster"].text and "--config-file" in found["cluster"].fix
    assert found["store"].level == "ok"
