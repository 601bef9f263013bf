"""The approval policy: who has which role, and mistakes in the file by field and line."""

from __future__ import annotations

import pytest

from producer_core._internal.identity import Identity
from producer_core.errors import ConfigError
from producer_core.roles.policy import parse
from tests.fixtures.approvals import POLICY

FOUND = parse(POLICY, "policy.toml")


@pytest.mark.parametrize(
    ("name", "groups", "role"),
    [
        ("ben", (), "viewer"),
        ("ada", (), "operator"),
        ("ADA", (), "operator"),
        ("alovelace", (), "operator"),
        ("grace", (), "approver"),
        ("mary", ("leads",), "approver"),
        ("root-of-all", (), "admin"),
        ("stranger", ("others",), "viewer"),
        ("group:leads", (), "viewer"),
        ("ada@evil.example", (), "viewer"),
    ],
)
def test_a_person_has_the_role_of_the_most_specific_entry(name, groups, role):
    assert FOUND.role_of(Identity(name, groups=groups)) == role


def test_a_name_precedes_a_group_and_a_group_precedes_a_pattern():
    policy = parse(
        '[roles]\nviewer = ["ben"]\noperator = ["group:ops"]\nadmin = ["*@example.com"]\napprover = ["x"]\n',
        "p",
    )
    assert policy.role_of(Identity("ben", groups=["ops"])) == "viewer"
    assert policy.role_of(Identity("mary@example.com", groups=["ops"])) == "operator"
    assert policy.role_of(Identity("mary@example.com")) == "admin"


def test_without_operators_everyone_else_is_one():
    policy = parse('[roles]\nviewer = ["ben"]\napprover = ["grace"]\n', "p")
    assert policy.role_of(Identity("stranger")) == "operator"
    assert policy.role_of(Identity("ben")) == "viewer"


@pytest.mark.parametrize(
    ("one", "other", "same"),
    [
        ("ada", "ada@example.com", True),
        ("SHOP\\ada", "ada@host", True),
        ("alovelace@host", "ada@example.com", True),
        ("ＡＤＡ", "ada", True),
        ("ada", "grace", False),
    ],
)
def test_names_of_one_person_are_the_same_person(one, other, same):
    assert FOUND.is_same_person(Identity(one), Identity(other)) is same


def test_the_defaults_ask_for_nothing():
    policy = parse("", "p")
    assert (policy.replays_above, policy.other_cluster) == (None, False)
    assert policy.summary == "No replay needs a second person."


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("[roles", "policy.toml is not valid TOML"),
        ("\n[rolls]\n", "policy.toml, line 2: rolls is unknown: did you mean roles?"),
        ("roles = 3\n", "policy.toml, line 1: roles must be a table"),
        ('[roles]\noperater = ["a"]\n', "line 2: roles.operater is unknown: did you mean operator?"),
        ('[roles]\noperator = "ada"\n', "line 2: roles.operator must be a list of names"),
        ('[roles]\nadmin = [""]\n', "line 2: roles.admin must be a list of names"),
        (
            '[roles]\napprover = ["g"]\n[second_person]\n\nreplays_above = "many"\n',
            "line 5: second_person.replays_above must be a number of records",
        ),
        ("[second_person]\nreplays_above = true\n", "line 2: second_person.replays_above must be"),
        ("[second_person]\nreplays_above = -1\n", "line 2: second_person.replays_above must be"),
        ("[second_person]\nother_cluster = 1\n", "line 2: second_person.other_cluster must be true or false"),
        ("[second_person]\nexpires_after_hours = 0\n", "line 2: second_person.expires_after_hours must be"),
        (
            "[second_person]\nreplays_above = 5\n",
            "roles.approver has no name, so no request could ever be approved",
        ),
        ('[people]\nada = ["x"]\nben = ["x"]\n', "line 3: people.ben and ada share the name 'x'"),
    ],
)
def test_a_mistake_is_refused_with_its_field_and_line(text, problem):
    with pytest.raises(ConfigError) as raised:
        parse(text, "policy.toml")
    assert problem in str(raised.value)
    assert "until then no replay can be started" in raised.value.fix
