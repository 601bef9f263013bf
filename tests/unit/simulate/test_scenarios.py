"""The scenarios of the simulator."""

from __future__ import annotations

from producer_core.simulate.scenarios import scenarios
from producer_core.simulate.traffic import TOPICS


def test_every_topic_of_a_scenario_is_generated():
    for scenario in scenarios().values():
        assert scenario["topics"] and set(scenario["topics"]) <= set(TOPICS)
        assert scenario["rate_multiplier"] > 0 and scenario["description"]


def test_changing_a_copy_of_a_scenario_does_not_affect_others():
    scenarios()["normal_traffic"]["topics"].clear()

    assert "transactions" in scenarios()["normal_traffic"]["topics"]


def test_only_fraud_testing_overrides_the_fraud_rate():
    assert [name for name, one in scenarios().items() if "fraud_rate_override" in one] == ["fraud_testing"]
