"""What a person does with dead letters, replays and alerts, in a real Chromium, and what may happen meanwhile."""

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
from tests.services.browsing import (
    button,
    check,
    go,
    listed,
    replay,
    rows,
    says,
    served,
    stands,
    window,
)
from tests.support import eventually

pytestmark = pytest.mark.browser


def dead_letters(page, address, topic, count):
    """The dead letters of one topic, all listed; their ids, the latest first."""
    go(page, f"{address}dead-letters?topic={topic}")
    return listed(page, count)


def audited(load, action):
    return [row for row in Store.open(load.store).rows("audit_latest", limit=200) if row["action"] == action]


# dead letters


def test_replay_empties_a_topic_once_its_fault_is_over(load, page, address):
    load.fail("payments", 3)
    dead_letters(page, address, "payments", 3)
    load.broker.accept("payments")
    replay(page, 3)
    says(page, "Replayed 3 of 3")
    assert load.waiting("payments") == 0
    eventually(lambda: rows(page).count() == 0)


def test_a_topic_that_still_rejects_says_how_many_failed_again(load, page, address):
    load.fail("ledger", 3)
    dead_letters(page, address, "ledger", 3)
    replay(page, 3)
    says(page, "3 failed again: Broker: Policy violation")
    assert load.waiting("ledger") == 3


def test_clear_archives_what_is_chosen_and_undo_brings_it_back(load, page, address):
    load.fail("undone", 3)
    chosen = dead_letters(page, address, "undone", 3)[1]
    check(page, chosen)
    button(page, "Clear 1").click()
    says(page, "Archived 1 ")
    assert load.dead_letters.get(chosen).state == "archived"
    button(page, "Undo").click()
    eventually(lambda: load.waiting("undone") == 3)
    button(page, "Clear 3").wait_for()


def test_a_choice_means_the_same_letters_while_new_ones_arrive(load, page, address):
    load.fail("late", 2)
    chosen = dead_letters(page, address, "late", 2)[1]
    check(page, chosen)
    button(page, "Clear 1").wait_for()
    load.fail("late", 3)
    assert chosen in listed(page, 5)[3:]
    button(page, "Clear 1").click()
    says(page, "Archived 1 ")
    assert load.dead_letters.get(chosen).state == "archived"
    assert load.waiting("late") == 4


def test_a_group_is_replayed_and_the_others_wait(load, page, address):
    load.fail("group", 2)
    group = load.dead_letters.groups(DeadLetterFilter(topic="group"))[0].fingerprint
    load.broker.accept("group")
    load.broker.reject("group", "INVALID_RECORD")
    load.producer.send_message("group", {"other": True}, key="other")
    eventually(lambda: load.waiting("group") == 3)
    load.broker.accept("group")
    go(page, f"{address}dead-letters?topic=group&group={group}")
    listed(page, 2)
    replay(page, 2)
    eventually(lambda: load.waiting("group") == 1)


def test_a_double_click_replays_once(load, page, address):
    load.fail("again", 1)
    (only,) = dead_letters(page, address, "again", 1)
    load.broker.accept("again")
    check(page, only)
    before = len(audited(load, "replay"))
    at_once, first = button(page, "Replay 1"), button(page, "Replay 1 …")
    at_once.or_(first).first.dblclick()
    sure = button(page, "Replay 1 now")
    over = page.locator(".pc-say").filter(has_text="Replayed 1 of 1")
    sure.or_(over).first.wait_for()
    if sure.is_visible():
        eventually(sure.is_enabled)
        sure.dblclick()
    over.first.wait_for()
    assert load.on_topic("again") == 1
    assert len(audited(load, "replay")) == before + 1


# replays


def test_a_slow_replay_is_paused_resumed_and_cancelled(load, page, address):
    load.fail("slow", 8)
    load.broker.accept("slow")
    operation = replays.plan(
        Store.open(load.store), DeadLetterFilter(topic="slow"), who="test", origin="test", rate=0.5, canary=0
    )
    go(page, f"{address}replays?operation={operation.operation_id}")
    button(page, "Pause").click()
    says(page, r"Paused: \d of 8 left")
    standing = page.url
    page.reload()
    stands(page)
    assert page.url == standing
    says(page, r"Paused: \d of 8 left")
    button(page, "Resume").click()
    button(page, "Pause").wait_for()
    button(page, "Cancel").click()
    says(page, "ancelled")
    state = eventually(
        lambda: (one := replays.get(Store.open(load.store), operation.operation_id)).ended and one
    )
    assert state.state == "cancelled"
    assert load.waiting("slow") > 0


# alerts


def firing(load, subject):
    began = time.time() - 60
    found = alert("weak_replication", subject, began, text=f"{subject} has one copy")
    AlertLog(Store.open(load.store)).record(follow({}, [found], began), told_by="test")
    return found


def test_an_alert_is_acknowledged_and_silenced_and_the_name_is_kept(load, page, address):
    found = firing(load, "undone")
    go(page, f"{address}alerts?alert={found.alert_id}")
    button(page, "Acknowledge").click()
    page.get_by_text("looks after it").first.wait_for()
    button(page, "Silence …").click()
    page.get_by_role("textbox", name=re.compile("Why")).fill("known, being mended")
    button(page, "Silence").click()
    button(page, "End the silence").wait_for()
    log = AlertLog(Store.open(load.store))
    (silence,) = [one for one in log.silences() if one.subject == "undone"]
    assert silence.why == "known, being mended"
    button(page, "End the silence").click()
    button(page, "Silence …").wait_for()


def test_an_alert_is_acknowledged_from_the_overview_while_the_page_refreshes(load, page, address):
    found = firing(load, "orders")
    go(page, address)
    line = page.locator(f".st-key-pc-alert-{found.alert_id}")
    line.get_by_text("orders has one copy").wait_for()
    line.get_by_role("button", name="Acknowledge", exact=True).click()
    line.get_by_text("looks after it").wait_for()
    assert AlertLog(Store.open(load.store)).firing()[found.key].acknowledged_by


def test_a_rule_is_silenced_by_its_form_for_all_it_is_about_and_made_loud_again(load, page, address):
    go(page, f"{address}alerts?show=Silences")
    page.get_by_role("combobox", name="Rule", exact=False).first.click()
    page.get_by_role("option", name="slow_delivery", exact=True).click()
    page.get_by_role("combobox", name=re.compile("For how long")).click()
    page.get_by_role("option", name="1 week", exact=True).click()
    page.get_by_role("textbox", name=re.compile("Why")).fill("load test until Friday")
    button(page, "Silence").click()
    says(page, "slow_delivery is quiet")
    log = AlertLog(Store.open(load.store))
    (silence,) = [one for one in log.silences() if one.rule == "slow_delivery"]
    assert (silence.subject, silence.why) == ("", "load test until Friday")
    assert silence.until - time.time() > 6 * 86_400
    page.get_by_text("slow_delivery, all subjects").wait_for()
    button(page, "End it").click()
    says(page, "slow_delivery is not quiet any more")
    assert not [one for one in log.silences() if one.rule == "slow_delivery"]


def test_a_silence_that_is_thought_better_of_silences_nothing(load, page, address):
    found = firing(load, "late")
    go(page, f"{address}alerts?alert={found.alert_id}")
    button(page, "Silence …").click()
    button(page, "Cancel").click()
    page.get_by_role("textbox", name=re.compile("Why")).wait_for(state="hidden")
    assert not [one for one in AlertLog(Store.open(load.store)).silences() if one.subject == "late"]


def test_what_was_cleared_is_found_in_the_archive_and_restored(load, page, address):
    load.fail("cleared", 2)
    dead_letters(page, address, "cleared", 2)
    button(page, "Clear 2").click()
    says(page, "Archived 2 ")
    eventually(lambda: rows(page).count() == 0)
    go(page, f"{address}dead-letters?topic=cleared&state=archived")
    listed(page, 2)
    button(page, "Restore 2").click()
    eventually(lambda: load.waiting("cleared") == 2)


def test_a_replay_is_seen_going_on_after_the_click_on_a_phone(load, browser, address):
    load.fail("phone", 3)
    with load.going(), window(browser, viewport={"width": 390, "height": 844}) as phone:
        go(phone, f"{address}dead-letters?topic=phone")
        listed(phone, 3)
        load.broker.accept("phone")
        replay(phone, 3)
        done = phone.locator(".pc-say").filter(has_text="Replayed 3 of 3").first
        eventually(lambda: 0 < done.bounding_box()["y"] < 844)


def test_on_a_phone_the_open_menu_can_be_closed_because_nothing_lies_over_its_button(browser, address):
    with window(browser, viewport={"width": 360, "height": 740}) as phone:
        go(phone, f"{address}errors")
        pill = phone.locator(".pc-stays")
        pill.wait_for()
        phone.get_by_test_id("stExpandSidebarButton").first.click()
        close = phone.get_by_test_id("stSidebarCollapseButton").locator("button")
        close.wait_for()
        pill.wait_for(state="hidden")
        close.click()
        pill.wait_for()


# two people, and what goes wrong meanwhile


def test_two_people_on_the_same_letters_see_each_others_acts_and_each_letter_is_sent_once(
    load, page, browser, address
):
    load.fail("shared", 4)
    ids = dead_letters(page, address, "shared", 4)
    from playwright.sync_api import TimeoutError

    with window(browser) as other:
        assert dead_letters(other, address, "shared", 4) == ids
        check(page, ids[0])
        button(page, "Clear 1").click()
        says(page, "Archived 1 ")
        other.locator(f'.pc-letters tr[data-id="{ids[0]}"]').wait_for(state="detached")
        load.broker.accept("shared")
        eventually(lambda: listed(other, 3) == listed(page, 3) == ids[1:])
        for one in (page, other):  # both press before either is drawn again
            button(one, "Replay 3").or_(button(one, "Replay 3 …")).first.click(no_wait_after=True)
        for one in (page, other):
            sure = button(one, "Replay 3 now")
            eventually(lambda one=one, sure=sure: sure.is_visible() or not rows(one).count())
            if sure.is_visible():
                with contextlib.suppress(TimeoutError):  # the other was faster
                    sure.click(timeout=5_000)
        eventually(lambda: load.waiting("shared") == 0)
        assert load.on_topic("shared") == 3


def test_a_dashboard_that_is_killed_in_the_middle_of_a_replay_loses_nothing(load, browser, state_folder):
    load.fail("killed", 6)
    with load.going(), served(load.store, state_folder) as server, window(browser) as page:
        go(page, f"{server.url}dead-letters?topic=killed")
        listed(page, 6)
        load.broker.accept("killed")
        load.broker.set_latency(0.5)
        try:
            button(page, "Replay 6").or_(button(page, "Replay 6 …")).first.click()
            sure, over = button(page, "Replay 6 now"), page.locator(".pc-say").filter(has_text="Replayed ")
            sure.or_(page.get_by_role("progressbar")).or_(over).first.wait_for()
            if sure.is_visible():
                eventually(sure.is_enabled)
                sure.click()
            server.kill()
        finally:
            load.broker.set_latency(0)
        store = Store.open(load.store)
        begun = [
            one for one in replays.list(store) if DeadLetterFilter.from_query(one.query).topic == "killed"
        ]
        assert len(begun) <= 1
        server.start()
        if begun and begun[0].state not in ("checking", "ready"):
            eventually(lambda: replays.get(store, begun[0].operation_id).ended)
        go(page, f"{server.url}dead-letters?topic=killed")
        listed(page, load.waiting("killed"))
        if left := load.waiting("killed"):
            replay(page, left)
        eventually(lambda: load.waiting("killed") == 0)
        assert load.on_topic("killed") == 6


def test_a_store_that_is_replaced_underneath_is_shown_and_acts_are_on_the_new_one(browser, tmp_path, load):
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
        says(page, f"Archived {count} ")
        assert DeadLetters(Store.open(path)).count(DeadLetterFilter()) == 0


def test_a_store_that_goes_away_is_said_and_the_page_comes_back_by_itself(browser, tmp_path):
    path = Path(tmp_path) / "store.duckdb"
    Store.open(path)
    with served(path, tmp_path) as server, window(browser) as page:
        go(page, server.url)
        away = path.with_suffix(".away")
        path.rename(away)
        says(page, "no store|does not exist|is not there|gone|missing|waits for it")
        away.rename(path)
        page.get_by_text("No producer has written to this store yet").first.wait_for()
