"""The review page in Chromium: by keyboard and mouse, two tabs, many pictures, both widths."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from chromium import NEEDS_CHROMIUM, chromium
from review_server import ATTACK, make_folder, serving

from tellapart.captions.authors import Author
from tellapart.captions.store import CaptionStore, Edit
from tellapart.review.session import ReviewSession
from tellapart.review.start import open_session

pytestmark = NEEDS_CHROMIUM
ENTER, ESCAPE, DOWN, CONTROL = "\ue007", "\ue00c", "\ue015", "\ue009"


@pytest.fixture(scope="module")
def chrome(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    with chromium(tmp_path_factory.mktemp("chromium"), {"browser": "ALL"}) as driver:
        yield driver


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return make_folder(tmp_path / "photos")


class Page:
    """The page as a person has it."""

    def __init__(self, chrome: Any, port: int, width: int = 1400) -> None:
        self.chrome = chrome
        chrome.set_window_size(width, 900)
        chrome.get(f"http://127.0.0.1:{port}/")
        self.wait(lambda: self.count(".row") > 0)

    def wait(self, met: Callable[[], bool]) -> None:
        end = time.monotonic() + 20
        while not (met() and not self.count("body.busy")):
            assert time.monotonic() < end, self.text("#trouble") or "nothing happened"
            time.sleep(0.02)

    def count(self, selector: str) -> int:
        return len(self.chrome.find_elements("css selector", selector))

    def text(self, selector: str) -> str:
        return str(self.chrome.find_element("css selector", selector).text)

    def value(self) -> str:
        return str(self.chrome.find_element("id", "text").get_property("value"))

    def click(self, selector: str) -> None:
        self.chrome.find_element("css selector", selector).click()
        self.wait(lambda: True)

    def choose(self, label: str) -> None:
        """Clicks on a filter or tag of the sidebar."""
        found = self.chrome.find_elements("css selector", "aside li button")
        next(each for each in found if each.text.startswith(label)).click()
        self.wait(lambda: True)

    def press(self, *keys: str) -> None:
        from selenium.webdriver.common.action_chains import ActionChains

        for key in keys:
            ActionChains(self.chrome, duration=0).send_keys(key).perform()
            self.wait(lambda: True)

    def hold(self, modifier: str, key: str) -> None:
        from selenium.webdriver.common.action_chains import ActionChains

        ActionChains(self.chrome, duration=0).key_down(modifier).send_keys(key).key_up(modifier).perform()
        self.wait(lambda: True)

    def write(self, text: str) -> None:
        self.chrome.find_element("id", "text").clear()
        self.chrome.find_element("id", "text").send_keys(text)


def test_edit_accept_and_undo_by_keyboard(chrome: Any, folder: Path) -> None:
    def saved(number: int) -> str:
        return (folder / f"{number:02}.txt").read_text()

    with serving(ReviewSession(CaptionStore.open(folder), "photos")) as port:
        page = Page(chrome, port)
        assert page.text("#id") == "00.jpg" and page.value() == ATTACK
        assert chrome.title == "photos · captions", "no caption runs as a script"
        page.press("n", DOWN)
        assert page.text("#id") == "02.jpg"
        page.press(ENTER)
        page.write("two red shapes")
        page.press(ESCAPE)
        assert saved(2) == "two red shapes\n"
        page.press("a")
        assert page.text("#id") == "03.jpg" and CaptionStore.open(folder).caption("02.jpg").accepted
        page.press(ENTER)
        page.write("three")
        page.hold(CONTROL, ENTER)
        assert saved(3) == "three\n" and page.text("#id") == "04.jpg"
        page.press(ESCAPE, "d")
        assert saved(4) == "" and page.text(".row[aria-selected=true] .said") == "decorative"
        page.press("u", "u", "u", "u")
        assert saved(2) == "a shape\n" and saved(3).startswith("dog, ") and saved(4).startswith("dog, ")
        assert page.chrome.find_element("id", "undo").get_property("disabled")
        page.click("#redo")
        assert saved(2) == "two red shapes\n"
        errors = [line for line in chrome.get_log("browser") if line["level"] == "SEVERE"]
        assert not errors


def test_an_edit_is_saved_by_a_click_on_another_row(chrome: Any, folder: Path) -> None:
    with serving(ReviewSession(CaptionStore.open(folder), "photos")) as port:
        page = Page(chrome, port)
        page.click(".row[data-number='1']")
        page.write("clicked away")
        page.click(".row[data-number='3']")
        assert (folder / "01.txt").read_text() == "clicked away\n" and page.text("#id") == "03.jpg"


def test_filters_tags_and_changes_of_what_is_shown(chrome: Any, folder: Path) -> None:
    with serving(ReviewSession(CaptionStore.open(folder), "photos")) as port:
        page = Page(chrome, port)
        page.choose("Shared captions")
        assert page.count(".row") == 2 and page.text("#count") == "2 of 12"
        page.choose("No caption")
        assert page.count(".row") == 2
        page.choose("All")
        page.choose("red ball")
        assert page.count(".row") == 7
        page.click("#all-button")
        assert "the 7 pictures shown and can be undone" in page.text("#scope")
        chrome.find_element("css selector", "#replace [name=text]").send_keys("Dog")
        chrome.find_element("css selector", "#replace [name=by]").send_keys("cat")
        page.wait(lambda: page.text("#matches") == "in 7 captions")
        page.click("#replace button")
        assert all((folder / f"{n:02}.txt").read_text().startswith("cat, ") for n in range(3, 10))
        page.choose("red ball")  # takes the filter away
        page.click("#all-button")
        chrome.find_element("css selector", "#trigger [name=text]").send_keys("ohwx")
        page.click("#trigger button")
        assert all((folder / f"{n:02}.txt").read_text().startswith("ohwx") for n in range(12))
        page.click("#undo")
        page.click("#undo")
        assert (folder / "03.txt").read_text().startswith("dog, ") and not (folder / "11.txt").exists()


def test_a_conflict_is_shown_and_the_person_chooses(chrome: Any, folder: Path) -> None:
    with serving(ReviewSession(CaptionStore.open(folder), "photos")) as port:
        page = Page(chrome, port)
        page.click(".row[data-number='1']")
        (folder / "01.txt").write_text("theirs")
        page.write("mine")
        page.press(ESCAPE)
        page.wait(lambda: "theirs" in page.text("#conflict"))
        assert (folder / "01.txt").read_text() == "theirs" and page.value() == "mine"
        page.click("#conflict button:last-of-type")
        assert (folder / "01.txt").read_text() == "mine\n"


def test_candidates_history_and_look_alikes(chrome: Any, folder: Path) -> None:
    store = CaptionStore.open(folder)
    store.write({"01.jpg": Edit(state={"candidates": ["a shape", "a red <b>shape</b>"]})}, "samples")
    with serving(open_session(str(folder), scorer="scenes", device="cpu")) as port:
        page = Page(chrome, port)
        page.click(".row[data-number='1']")
        page.press("2")
        assert (folder / "01.txt").read_text() == "a red <b>shape</b>\n"
        page.press("h")
        page.wait(lambda: "choose" in page.text("#history"))
        assert "a shape" in page.text("#history")
        page.press("f")
        page.wait(lambda: page.count("#fits li") == 12)
        assert page.count("#fits .own") == 1 and page.text("#fits-title")
        page.choose("Also fit other pictures")
        assert page.count(".row .mark.bad") > 0


def test_only_what_collides_is_captioned_again_and_compared_again(chrome: Any, folder: Path) -> None:
    """After new captions, an edit and an undo, the filter never counts texts that were not compared."""
    store = CaptionStore.open(folder)
    store.write({f"{n:02}.jpg": Edit("a shape") for n in range(3, 12)}, "caption", Author("dull"), replace_edited=True)
    by_hand = {number: (folder / f"{number:02}.txt").read_text() for number in (0, 1, 2)}
    session = open_session(str(folder), scorer="scenes", model="scenes", device="cpu")

    def collisions(page: Page) -> int:
        page.choose("Also fit other pictures")
        page.wait(lambda: page.text("#kinds [aria-pressed=true]").startswith("Also fit"))
        shown = int(page.text("#kinds [aria-pressed=true] span:last-child"))
        assert shown == len(session.collisions()) and page.text("#count").startswith(f"{shown} ")
        return shown

    with serving(session) as port:
        page = Page(chrome, port)
        before = collisions(page)
        assert before > 0
        page.click("#all-button")
        assert "captions fit other pictures equally well" in page.text("#collide-text")
        page.click("#collide button")
        assert "hand-written captions were kept; " in page.text("#count"), "the message stays on the page"
        left = len(session.collisions())
        assert page.text("#count").endswith(f"; {left} captions fit other pictures") and left < before
        assert {number: (folder / f"{number:02}.txt").read_text() for number in by_hand} == by_hand
        page.press("u")
        assert (folder / "05.txt").read_text() == "a shape\n"
        assert collisions(page) == before


def test_a_phone_has_one_column(chrome: Any, folder: Path) -> None:
    with serving(ReviewSession(CaptionStore.open(folder), "photos")) as port:
        page = Page(chrome, port, 420)
        wide = "return document.documentElement.scrollWidth <= innerWidth"
        assert chrome.execute_script(wide) and not chrome.find_element("id", "detail").is_displayed()
        page.click(".row[data-number='2']")
        assert chrome.find_element("id", "detail").is_displayed() and chrome.execute_script(wide)
        page.write("on a phone")
        page.click("#back")
        assert (folder / "02.txt").read_text() == "on a phone\n"
        page.click("#filter-button")
        page.choose("No caption")
        assert page.text("#count") == "2 of 12"


def test_thousands_of_pictures_draw_only_what_is_seen(chrome: Any, tmp_path: Path) -> None:
    folder = make_folder(tmp_path / "photos", 4)
    for number in range(4, 3000):
        (folder / f"{number:05}.jpg").hardlink_to(folder / "03.jpg")
    with serving(ReviewSession(CaptionStore.open(folder), "photos")) as port:
        page = Page(chrome, port)
        assert page.text("#count").replace(",", "") == "3000 pictures" and page.count(".row") < 30
        chrome.execute_script("document.getElementById('list').scrollTop = 1500 * 120")
        page.wait(lambda: page.count(".row[data-number='1502']") == 1)
        assert page.count(".row") < 40
