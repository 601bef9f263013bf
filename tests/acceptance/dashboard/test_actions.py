"""Test the actions on dead letters, replays and alerts in Chromium, including concurrent users and failures."""

from __future__ import annotations

import contextlib
import re
import time
from pathlib import Path

import pytest

from producer_core import replay as replays
from producer_core.alerts import AlertLog, alert, follow
from producer_core.dlq import DeadLetterFilter, DeadLetters
from producer_core.store import Store
from tests.acceptance.browsing import (
    button,
    check,
    drawn,
    go,
    listed,
    message,
    replay,
    rows,
    served,
    window,
)
from tests.support import eventually

pytestmark = pytest.mark.browser


def dead_letters(page, address, topic, count):
    """Open the dead letters of a topic and return their ids, the latest first."""
    go(page, f"{address}dead-letters?topic={topic}")
    return listed(page, count)


def audited(load, action):
    return [row for row in Store.open(load.store).rows("audit_latest", limit=200) if row["action"] == action]


# dead letters


def test_replay_delivers_all_dead_letters_after_the_fault_is_fixed(load, page, address):
    load.fail("payments", 3)
    dead_letters(page, address, "payments", 3)
    load.broker.accept("payments")
    replay(page, 3)
    message(page, "Replayed 3 of 3")
    assert load.pending("payments") == 0
    eventually(lambda: rows(page).count() == 0)


def test_a_replay_to_a_rejecting_topic_reports_the_failed_records(load, page, address):
    load.fail("ledger", 3)
    dead_letters(page, address, "ledger", 3)
    replay(page, 3)
    message(page, "3 failed again: Broker: Policy violation")
    assert load.pending("ledger") == 3


def test_clear_archives_the_selection_and_undo_restores_it(load, page, address):
    load.fail("undone", 3)
    chosen = dead_letters(page, address, "undone", 3)[1]
    check(page, chosen)
    button(page, "Clear 1").click()
    message(page, "Archived 1 ")
    assert load.dead_letters.get(chosen).state == "archived"
    button(page, "Undo").click()
    eventually(lambda: load.pending("undone") == 3)
    button(page, "Clear 3").wait_for()


def test_a_selection_survives_new_dead_letters(load, page, address):
    load.fail("late", 2)
    chosen = dead_letters(page, address, "late", 2)[1]
    check(page, chosen)
    button(page, "Clear 1").wait_for()
    load.fail("late", 3)
    assert chosen in listed(page, 5)[3:]
    button(page, "Clear 1").click()
    message(page, "Archived 1 ")
    assert load.dead_letters.get(chosen).state == "archived"
    assert load.pending("late") == 4


def test_a_group_is_replayed_without_the_others(load, page, address):
    load.fail("group", 2)
    group = load.dead_letters.groups(DeadLetterFilter(topic="group"))[0].fingerprint
    load.broker.accept("group")
    load.broker.reject("group", "INVALID_RECORD")
    load.producer.send_message("group", {"other": True}, key="other")
    eventually(lambda: load.pending("group") == 3)
    load.broker.accept("group")
    go(page, f"{address}dead-letters?topic=group&group={group}")
    listed(page, 2)
    replay(page, 2)
    eventually(lambda: load.pending("group") == 1)


def test_a_double_click_replays_once(load, page, address):
    load.fail("again", 1)
    (only,) = dead_letters(page, address, "again", 1)
    load.broker.accept("again")
    check(page, only)
    before = len(audited(load, "replay"))
    at_once, dry_run = button(page, "Replay 1"), button(page, "Replay 1 …")
    at_once.or_(dry_run).first.dblclick()
    confirm = button(page, "Replay 1 now")
    result = page.locator(".pc-message").filter(has_text="Replayed 1 of 1")
    confirm.or_(result).first.wait_for()
    if confirm.is_visible():
        eventually(confirm.is_enabled)
        confirm.dblclick()
    result.first.wait_for()
    assert load.on_topic("again") == 1
    assert len(audited(load, "replay")) == before + 1


def opened(page, message_id):
    """Wait until the record is open."""
    page.locator(f'.pc-dead-letters tr.pc-selected[data-key="{message_id}"]').wait_for()
    page.locator(".st-key-pc-dead-letter").get_by_text(message_id).first.wait_for()


def keys_act_on(page, current="", *, selected=0):
    """Wait until the server has drawn the buttons for this state of the list. Before that, keys do nothing."""
    state = f'.pc-shortcuts[data-current="{current}"][data-selected="{selected}"]'
    page.locator(state).wait_for(state="attached")


def test_a_keyboard_is_enough(load, page, address):
    load.fail("keyboard", 4)
    first, second, third, last = dead_letters(page, address, "keyboard", 4)
    load.broker.accept("keyboard")

    keys_act_on(page)
    page.keyboard.press("r")
    page.keyboard.press("c")  # without a selection and an open record, nothing happens
    page.keyboard.press("ArrowDown")
    page.keyboard.press("Enter")
    opened(page, first)
    page.keyboard.press("ArrowDown")
    opened(page, second)
    keys_act_on(page, second)
    page.keyboard.press("c")
    page.get_by_text("Archived. Restore makes it pending again.").wait_for()
    assert load.dead_letters.get(second).state == "archived"
    page.keyboard.press("ArrowDown")
    opened(page, third)
    page.keyboard.press("x")
    button(page, "Replay 1").wait_for()
    keys_act_on(page, third, selected=1)
    page.keyboard.press("r")
    eventually(lambda: load.dead_letters.get(third).state == "replayed")
    page.keyboard.press("Escape")
    page.locator(".st-key-pc-dead-letter").wait_for(state="detached")
    page.keyboard.press("?")
    page.get_by_text("Show these keys").wait_for()
    assert {load.dead_letters.get(one).state for one in (first, last)} == {"dead"}
    assert load.on_topic("keyboard") == 1


def test_one_click_shows_the_progress_without_a_question(load, page, address):
    load.fail("oneclick", 3)
    dead_letters(page, address, "oneclick", 3)
    load.broker.accept("oneclick")
    for number in range(3):  # newer records with the same keys; the embedded broker never compacts
        load.producer.send_message("oneclick", {"newer": number}, key=f"oneclick-{number}")
    button(page, "Replay 3").click()
    progress, result = (
        page.get_by_role("progressbar"),
        page.locator(".pc-message", has_text="Replayed 3 of 3"),
    )
    progress.or_(result).first.wait_for()
    result.first.wait_for()
    assert page.get_by_text("Dry run").count() == 0


# replays


def test_a_slow_replay_is_paused_resumed_and_cancelled(load, page, address):
    load.fail("slow", 8)
    load.broker.accept("slow")
    operation = replays.plan(
        Store.open(load.store), DeadLetterFilter(topic="slow"), who="test", origin="test", rate=0.5, canary=0
    )
    go(page, f"{address}replays?operation={operation.operation_id}")
    button(page, "Pause").click()
    message(page, r"Paused: \d of 8 left")
    address = page.url
    page.reload()
    drawn(page)
    assert page.url == address
    message(page, r"Paused: \d of 8 left")
    button(page, "Resume").click()
    button(page, "Pause").wait_for()
    button(page, "Cancel").click()
    message(page, "ancelled")
    state = eventually(
        lambda: (one := replays.get(Store.open(load.store), operation.operation_id)).ended and one
    )
    assert state.state == "cancelled"
    assert load.pending("slow") > 0


# alerts


def firing(load, subject):
    began = time.time() - 60
    found = alert("weak_replication", subject, began, text=f"{subject} has one copy")
    AlertLog(Store.open(load.store)).record(follow({}, [found], began), told_by="test")
    return found


def test_an_alert_is_acknowledged_and_silenced(load, page, address):
    found = firing(load, "undone")
    go(page, f"{address}alerts?alert={found.alert_id}")
    button(page, "Acknowledge").click()
    page.get_by_text("Acknowledged by").first.wait_for()
    button(page, "Silence …").click()
    page.get_by_role("textbox", name=re.compile("Reason")).fill("known, being fixed")
    button(page, "Silence").click()
    button(page, "End the silence").wait_for()
    log = AlertLog(Store.open(load.store))
    (silence,) = [one for one in log.silences() if one.subject == "undone"]
    assert silence.why == "known, being fixed"
    button(page, "End the silence").click()
    button(page, "Silence …").wait_for()


def test_an_alert_is_acknowledged_from_the_overview_while_the_page_refreshes(load, page, address):
    found = firing(load, "orders")
    go(page, address)
    line = page.locator(f".st-key-pc-alert-{found.alert_id}")
    line.get_by_text("orders has one copy").wait_for()
    line.get_by_role("button", name="Acknowledge", exact=True).click()
    line.get_by_text("Acknowledged by").wait_for()
    assert AlertLog(Store.open(load.store)).firing()[found.key].acknowledged_by


def test_a_rule_is_silenced_for_all_subjects_and_unsilenced(load, page, address):
    go(page, f"{address}alerts?show=Silences")
    page.get_by_role("combobox", name="Rule", exact=False).first.click()
    page.get_by_role("option", name="slow_delivery", exact=True).click()
    page.get_by_role("combobox", name=re.compile("Duration")).click()
    page.get_by_role("option", name="1 week", exact=True).click()
    page.get_by_role("textbox", name=re.compile("Reason")).fill("load test until Friday")
    button(page, "Silence").click()
    message(page, "slow_delivery is silenced")
    log = AlertLog(Store.open(load.store))
    (silence,) = [one for one in log.silences() if one.rule == "slow_delivery"]
    assert (silence.subject, silence.why) == ("", "load test until Friday")
    assert silence.until - time.time() > 6 * 86_400
    page.get_by_text("slow_delivery, all subjects").wait_for()
    button(page, "End the silence").click()
    message(page, "slow_delivery is no longer silenced")
    assert not [one for one in log.silences() if one.rule == "slow_delivery"]


def test_a_cancelled_silence_form_silences_nothing(load, page, address):
    found = firing(load, "late")
    go(page, f"{address}alerts?alert={found.alert_id}")
    button(page, "Silence …").click()
    button(page, "Cancel").click()
    page.get_by_role("textbox", name=re.compile("Reason")).wait_for(state="hidden")
    assert not [one for one in AlertLog(Store.open(load.store)).silences() if one.subject == "late"]


def test_cleared_dead_letters_are_restored_from_the_archive(load, page, address):
    load.fail("cleared", 2)
    dead_letters(page, address, "cleared", 2)
    button(page, "Clear 2").click()
    message(page, "Archived 2 ")
    eventually(lambda: rows(page).count() == 0)
    go(page, f"{address}dead-letters?topic=cleared&state=archived")
    listed(page, 2)
    button(page, "Restore 2").click()
    eventually(lambda: load.pending("cleared") == 2)


def test_on_a_phone_a_started_replay_scrolls_into_view(load, browser, address):
    load.fail("phone", 3)
    with load.running(), window(browser, viewport={"width": 390, "height": 844}) as phone:
        go(phone, f"{address}dead-letters?topic=phone")
        listed(phone, 3)
        load.broker.accept("phone")
        replay(phone, 3)
        done = phone.locator(".pc-message").filter(has_text="Replayed 3 of 3").first
        eventually(lambda: 0 < done.bounding_box()["y"] < 844)


def test_on_a_phone_nothing_covers_the_close_button_of_the_menu(browser, address):
    with window(browser, viewport={"width": 360, "height": 740}) as phone:
        go(phone, f"{address}errors")
        pill = phone.locator(".pc-data-age")
        pill.wait_for()
        phone.get_by_test_id("stExpandSidebarButton").first.click()
        close = phone.get_by_test_id("stSidebarCollapseButton").locator("button")
        close.wait_for()
        pill.wait_for(state="hidden")
        close.click()
        pill.wait_for()


# concurrent users and failures


def test_two_users_see_each_others_actions_and_each_record_is_sent_once(load, page, browser, address):
    load.fail("shared", 4)
    ids = dead_letters(page, address, "shared", 4)
    from playwright.sync_api import TimeoutError

    with window(browser) as other:
        assert dead_letters(other, address, "shared", 4) == ids
        check(page, ids[0])
        button(page, "Clear 1").click()
        message(page, "Archived 1 ")
        other.locator(f'.pc-dead-letters tr[data-key="{ids[0]}"]').wait_for(state="detached")
        load.broker.accept("shared")
        eventually(lambda: listed(other, 3) == listed(page, 3) == ids[1:])
        for one in (page, other):  # both click before either page is redrawn
            button(one, "Replay 3").or_(button(one, "Replay 3 …")).first.click(no_wait_after=True)
        for one in (page, other):
            confirm = button(one, "Replay 3 now")
            eventually(lambda one=one, confirm=confirm: confirm.is_visible() or not rows(one).count())
            if confirm.is_visible():
                with contextlib.suppress(TimeoutError):  # the other user confirmed first
                    confirm.click(timeout=5_000)
        eventually(lambda: load.pending("shared") == 0)
        assert load.on_topic("shared") == 3


def test_killing_the_dashboard_during_a_replay_loses_nothing(load, browser, state_folder):
    load.fail("killed", 6)
    with load.running(), served(load.store, state_folder) as server, window(browser) as page:
        go(page, f"{server.url}dead-letters?topic=killed")
        listed(page, 6)
        load.broker.accept("killed")
        load.broker.set_latency(0.5)
        try:
            button(page, "Replay 6").or_(button(page, "Replay 6 …")).first.click()
            confirm = button(page, "Replay 6 now")
            result = page.locator(".pc-message").filter(has_text="Replayed ")
            confirm.or_(page.get_by_role("progressbar")).or_(result).first.wait_for()
            if confirm.is_visible():
                eventually(confirm.is_enabled)
                confirm.click()
            server.kill()
        finally:
            load.broker.set_latency(0)
        store = Store.open(load.store)
        started = [
            one for one in replays.list(store) if DeadLetterFilter.from_query(one.query).topic == "killed"
        ]
        assert len(started) <= 1
        server.start()
        if started and started[0].state not in ("checking", "ready"):
            eventually(lambda: replays.get(store, started[0].operation_id).ended)
        go(page, f"{server.url}dead-letters?topic=killed")
        listed(page, load.pending("killed"))
        if left := load.pending("killed"):
            replay(page, left)
        eventually(lambda: load.pending("killed") == 0)
        assert load.on_topic("killed") == 6


def test_a_replaced_store_is_shown_and_actions_apply_to_it(browser, tmp_path, load):
    from benchmarks import dead_letter_store

    path, other = tmp_path / "one" / "store.duckdb", tmp_path / "other.duckdb"
    path.parent.mkdir()
    dead_letter_store.make(path, 50)
    dead_letter_store.make(other, 200)
    with served(path, tmp_path) as server, window(browser) as page:
        go(page, f"{server.url}dead-letters")
        before = eventually(lambda: rows(page).count())
        for part in path.parent.glob("store.duckdb*"):
            part.unlink()
        other.rename(path)
        count = DeadLetters(Store.open(path)).count(DeadLetterFilter())
        assert count > before
        button(page, f"Clear {count}").wait_for()
        eventually(lambda: rows(page).count() == min(count, 100))
        button(page, f"Clear {count}").click()
        message(page, f"Archived {count} ")
        assert DeadLetters(Store.open(path)).count(DeadLetterFilter()) == 0


def test_a_missing_store_is_reported_and_the_page_recovers(browser, tmp_path):
    path = Path(tmp_path) / "store.duckdb"
    Store.open(path)
    with served(path, tmp_path) as server, window(browser) as page:
        go(page, server.url)
        away = path.with_suffix(".away")
        path.rename(away)
        message(page, "no store|does not exist|is not there|gone|missing|opens as soon as")
        away.rename(path)
        page.get_by_text("No producer has written to this store yet").first.wait_for()
