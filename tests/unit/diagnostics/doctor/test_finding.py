"""The finding of a check."""

from __future__ import annotations

from producer_core.diagnostics.doctor.finding import DoctorFinding, of_error
from producer_core.errors import ConfigError


def test_an_error_becomes_a_finding_with_its_fix():
    error = ConfigError("The option is wrong.", fix="Correct it.")

    assert of_error("options", error) == DoctorFinding(
        "options", "problem", "The option is wrong.", "Correct it."
    )
    assert of_error("options", error, level="warning").level == "warning"
