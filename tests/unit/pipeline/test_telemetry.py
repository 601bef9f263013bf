"""The telemetry job: a topic that is created again, and a checkpoint in use."""

from __future__ import annotations

import time

import pytest

from producer_core.config import client_config
from producer_core.errors import BrokerUnreachable, ConfigError, PipelineError
from producer_core.pipeline import checkpoint, telemetry
from producer_core.pipeline.job_status import JobStatus
from tests.fixtures.spark import Query


@pytest.mark.parametrize("while_it_runs", [False, True])
def test_re_creating_a_topic_ends_a_running_job(tmp_path, monkeypatch, while_it_runs):
    monkeypatch.setattr(telemetry, "_MAINTENANCE", 0)
    answers = [{"one": "id-1"}, BrokerUnreachable(), {"one": "id-2"}] if while_it_runs else [{"one": "id-2"}]

    def ids():
        answer = answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer

    class Stream(telemetry._Stream):
        def _start(self, sink):
            return Query(False, False, False)

    source = telemetry.TelemetrySource(("one",), {}, "c", {"one": "id-1"})
    with checkpoint.locked(tmp_path, "c", source.topic_ids):
        stream = Stream(None, source, None, tmp_path, None, False, 1.0, print, time.time, ids)
        with pytest.raises(ConfigError, match="re-created"):
            stream.run_once(telemetry._Run(JobStatus(), lambda state: None, lambda: False))
    assert answers == []


def test_a_checkpoint_in_use_is_reported_before_the_brokers_are_contacted(tmp_path):
    with (
        checkpoint.locked(tmp_path, "c"),
        pytest.raises(PipelineError, match="Another job is using the checkpoint"),
    ):
        telemetry.check(client_config("127.0.0.1:1"), ["t"], tmp_path)
