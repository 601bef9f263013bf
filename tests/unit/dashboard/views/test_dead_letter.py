"""Test the details of a dead letter."""

from __future__ import annotations

import pytest

from producer_core.dashboard import actions, queries
from producer_core.dlq import DeadLetterFilter, DeadLetters
from producer_core.events import Attempt
from tests.fixtures.dead_letter_pages import NOW, add_runner, dead_letter, page_of
from tests.fixtures.pages import html_of

HOSTILE = "<script>window.pwned=1</script> [click](javascript:alert(1)) $x^2$ :material/delete: **b** \x00\x1b[31m \u202egnp.exe \u200b"


@pytest.mark.slow
def test_the_details_of_a_dead_letter_are_escaped(path, store, monkeypatch):
    DeadLetters(store).add(
        [
            dead_letter(
                1, topic=HOSTILE[:60], key=HOSTILE.encode(), value=HOSTILE.encode(), error_text=HOSTILE, verdict_reason=HOSTILE,
                headers=((HOSTILE, HOSTILE.encode()), ("empty", b""), ("null", None)), code="<b>x</b>", host=HOSTILE, source=HOSTILE,
                attempts=(Attempt(NOW, "<i>", HOSTILE),),
            )
        ]
    )  # fmt: skip
    page = page_of(path, monkeypatch, letter="m-1", state="any")
    shown = html_of(page)
    assert "<script>window" not in shown and "<b>x</b>" not in shown and "<i>:" not in shown
    assert "&lt;script&gt;window.pwned=1" in shown
    assert "\u202e" not in shown and "⟨U+202E⟩" in shown
    assert "<i>empty</i>" in shown and "<i>null</i>" in shown
    assert not any("script" in part.value for part in page.markdown)


@pytest.mark.slow
def test_the_details_report_a_dead_letter_that_was_removed(path, store, monkeypatch):
    DeadLetters(store).add([dead_letter(1), dead_letter(2)])
    page = page_of(path, monkeypatch, letter="m-1")
    assert "Dead letter details" in html_of(page)
    actions.clear(store, DeadLetterFilter(ids=("m-1",)))
    page.run()
    assert "Archived. Restore makes it pending again." in html_of(page)
    with store.borrow(write=True) as connection:
        connection.execute("DELETE FROM dead_letters WHERE message_id = 'm-1'")
    page.run()
    assert not page.exception
    assert "This dead letter is no longer in the store." in html_of(page)


@pytest.mark.slow
def test_unmasking_applies_to_one_dead_letter(path, store, monkeypatch):
    DeadLetters(store).add([dead_letter(1), dead_letter(2)])
    page = page_of(path, monkeypatch, letter="m-1")
    assert "hunter2" not in page.code[-1].value + page.code[0].value
    page.button(key="reveal").click().run()
    assert any("hunter2" in part.value for part in page.code)
    page.query_params["letter"] = "m-2"
    page.run()
    assert not any("hunter2" in part.value for part in page.code)


@pytest.mark.slow
def test_the_value_comes_first_and_its_stored_bytes_are_shown_only_unmasked(path, store, monkeypatch):
    DeadLetters(store).add([dead_letter(1)])
    page = page_of(path, monkeypatch, letter="m-1")
    shown = html_of(page)
    assert shown.index("Value</h2>") < shown.index("safe to resend") < shown.index("Headers</h2>")

    page.segmented_control(key="dead_letter_form").set_value("Raw").run()
    assert not any("hunter2" in part.value for part in page.code)
    assert "The stored bytes cannot be masked." in html_of(page)
    page.button(key="reveal").click().run()
    assert '{"n": 1, "password": "hunter2"}' in [part.value for part in page.code]
    page.segmented_control(key="dead_letter_form").set_value("Hex").run()
    assert any(part.value.startswith("00000000  7b 22 6e 22") for part in page.code)


@pytest.mark.slow
def test_previous_and_next_open_the_neighbors_in_the_list(path, store, monkeypatch):
    DeadLetters(store).add([dead_letter(number) for number in (1, 2, 3)])
    page = page_of(path, monkeypatch, letter="m-3")
    assert "1 of 3" in html_of(page)
    assert page.button(key="dead_letter_previous").disabled

    page.button(key="dead_letter_next").click().run()
    assert "2 of 3" in html_of(page)
    page.button(key="dead_letter_clear_m-2").click().run()
    assert "Archived. Restore makes it pending again." in html_of(page)
    page.button(key="dead_letter_next").click().run()

    assert "2 of 2" in html_of(page)
    assert page.query_params["letter"] in ("m-1", ["m-1"])
    assert page.button(key="dead_letter_next").disabled


@pytest.mark.slow
def test_the_open_record_is_replayed_cleared_and_restored_alone(path, store, monkeypatch):
    add_runner(store)
    DeadLetters(store).add([dead_letter(1), dead_letter(2)])
    page = page_of(path, monkeypatch, letter="m-1")

    page.button(key="dead_letter_clear_m-1").click().run()
    assert [one.message_id for one in DeadLetters(store).find(DeadLetterFilter())] == ["m-2"]
    page.button(key="dead_letter_restore_m-1").click().run()
    assert DeadLetters(store).count(DeadLetterFilter()) == 2
    page.button(key="dead_letter_replay_m-1").click().run()

    (operation,) = queries.operations(store)
    assert (operation.total, operation.query["ids"], operation.go_at_once) == (1, "m-1", True)


@pytest.mark.slow
def test_a_doubtful_record_opens_the_dry_run(path, store, monkeypatch):
    add_runner(store)
    DeadLetters(store).add([dead_letter(1, verdict="possibly_persisted")])
    page = page_of(path, monkeypatch, letter="m-1")
    assert page.button(key="dead_letter_replay_m-1").label == "Replay …"

    page.button(key="dead_letter_replay_m-1").click().run()

    assert not queries.operations(store)[0].go_at_once
    assert "Dry run: 1 record" in html_of(page)


@pytest.mark.slow
def test_the_details_show_milliseconds(path, store, monkeypatch):
    DeadLetters(store).add([dead_letter(1, failed_at=NOW + 0.0625)])
    shown = html_of(page_of(path, monkeypatch, letter="m-1"))
    assert ":00.062</time>" in shown
    assert ":00.062 UTC" in shown


@pytest.mark.slow
def test_the_timeline_links_to_the_replay(path, store, monkeypatch):
    add_runner(store)
    DeadLetters(store).add([dead_letter(1)])
    done = actions.start_replay(store, DeadLetterFilter())
    shown = html_of(page_of(path, monkeypatch, letter="m-1", state="any"))
    assert f"replays?operation={done.operation_id}" in shown.replace("&amp;", "&")


@pytest.mark.parametrize(
    ("verdict", "advice"),
    [
        ("not_sent", "The message never left the client: it is safe to send again."),
        ("possibly_persisted", "Check whether the message is on the topic before sending it again."),
    ],
)
def test_the_advice_depends_on_the_verdict(path, store, monkeypatch, verdict, advice):
    DeadLetters(store).add([dead_letter(1, code="_TRANSPORT", verdict=verdict)])
    page = page_of(path, monkeypatch, letter="m-1")
    shown = html_of(page)

    assert f"The connection to the broker failed. {advice}" in shown


PARENT = b"00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"


@pytest.mark.slow
def test_the_details_show_the_trace_with_its_link(path, store, monkeypatch):
    DeadLetters(store).add([dead_letter(1, headers=(("traceparent", PARENT),))])
    page = page_of(path, monkeypatch, letter="m-1")
    assert "<dt>Trace</dt><dd><strong>4bf92f3577b34da6a3ce929d0e0e4736</strong>" in html_of(page)

    store.change_settings({"trace_link": "https://t.example/{trace_id}?a=1&b=2"}, who="ann", origin="cli")
    page.run()
    assert 'href="https://t.example/4bf92f3577b34da6a3ce929d0e0e4736?a=1&amp;b=2"' in html_of(page)
