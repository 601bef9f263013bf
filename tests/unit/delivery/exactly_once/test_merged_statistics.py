"""Statistics of several clients become those of one."""

from __future__ import annotations

from producer_core.delivery.exactly_once.merged_statistics import merge_statistics


def test_statistics_of_several_clients_are_merged_into_those_of_one():
    def one(state, count, partition, transmitted):
        return {
            "msg_cnt": count,
            "eos": {"producer_epoch": count},
            "brokers": {"b/1": {"state": state, "req": {"Produce": count}}},
            "topics": {"t": {"partitions": {partition: {"txmsgs": transmitted}, "9": {"txmsgs": 0}}}},
        }

    merged = merge_statistics([one("DOWN", 2, "0", 5), one("UP", 3, "1", 7)])

    assert (merged["msg_cnt"], "eos" in merged) == (5, False)
    assert merged["brokers"]["b/1"] == {"state": "UP", "req": {"Produce": 5}}
    assert {number: part["txmsgs"] for number, part in merged["topics"]["t"]["partitions"].items()} == {
        "0": 5, "1": 7, "9": 0,
    }  # fmt: skip
