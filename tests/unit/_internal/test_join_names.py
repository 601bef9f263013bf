import pytest

from producer_core._internal.join_names import join_names


@pytest.mark.parametrize(
    ("names", "text"),
    [
        ([], ""),
        (["a"], "a"),
        (["a", "b"], "a and b"),
        (["a", "b", "c"], "a, b and c"),
        ("abcd", "a, b, c and d"),
    ],
)
def test_the_last_name_is_joined_with_a_word(names, text):
    assert join_names(names) == text
    assert join_names(names, "or") == text.replace(" and ", " or ")


def test_names_above_the_limit_are_counted():
    assert join_names("abc", most=3) == "a, b and c"
    assert join_names("abcd", most=3) == "a, b, c and 1 more"
    assert join_names("abcde", most=1) == "a and 4 more"
