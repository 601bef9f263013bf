"""Offset floors rise with sent records."""

from __future__ import annotations

from producer_core.pipeline.reprocess import offset_floors
from tests.fixtures.replays import replay_record
from tests.fixtures.reprocess import all_acknowledged, outcome_row, spark_replay_of


def test_floors_rise_with_sent_records_and_fall_for_a_re_created_topic(log, monkeypatch):
    monkeypatch.setattr(offset_floors, "REFRESH_INTERVAL", 60.0)
    strategy = spark_replay_of(log)
    strategy.begin(["orders"])
    log.answers += [
        lambda rows: [outcome_row(row, offset=300 + row["ord"]) for row in rows],
        all_acknowledged,
    ]
    strategy.send([replay_record(number) for number in range(5)])
    strategy.gather(0)
    assert strategy.floors == {"orders": {0: 304}}

    strategy.send([replay_record(number) for number in range(5)])
    strategy.gather(0)
    assert strategy.floors == {"orders": {0: 4}}
