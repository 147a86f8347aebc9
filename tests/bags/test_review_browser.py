"""Twenty bags of Flickr8k's test photos, reviewed by keyboard in a real browser, and what comes out."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from chromium import NEEDS_CHROMIUM, chromium
from PIL import Image
from real_data import DATA
from sample_review import ATTACK, make_bags, serving

from tellapart.bags.file import Bag, BagsFile, Header, read_bags, write_bags
from tellapart.bags.mine import curate_bags, mine_bags
from tellapart.bags.review import DecisionStore, export_review
from tellapart.bags.review.store import decisions_of
from tellapart.data import open_data
from tellapart.review.bags.session import open_review

pytestmark = NEEDS_CHROMIUM
LEFT, RIGHT, ENTER = "\ue012", "\ue014", "\ue007"


@pytest.fixture(scope="module")
def chrome(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    with chromium(tmp_path_factory.mktemp("chromium"), {"browser": "ALL"}) as driver:
        yield driver


class Page:
    """The page as a person at the keyboard has it."""

    def __init__(self, chrome: Any, port: int) -> None:
        self.chrome, self.address = chrome, f"http://127.0.0.1:{port}/"
        chrome.get(self.address)
        self.wait(lambda: self.shown("#asking") or self.shown("#reviewing") or self.shown("#finished"))

    def wait(self, met: Any) -> None:
        from selenium.webdriver.support.ui import WebDriverWait

        WebDriverWait(self.chrome, 20, poll_frequency=0.02).until(lambda _: met() and not self.shown("body.busy"))

    def shown(self, selector: str) -> bool:
        return any(element.is_displayed() for element in self.chrome.find_elements("css selector", selector))

    def text(self, selector: str) -> str:
        return self.chrome.find_element("css selector", selector).text

    def press(self, *keys: str) -> None:
        from selenium.webdriver.common.action_chains import ActionChains

        for key in keys:
            ActionChains(self.chrome, duration=0).send_keys(key).perform()
            self.wait(lambda: True)

    def bag(self) -> int:
        """The number of the bag that is shown, from 1; 0 at the end."""
        return int(self.text("#title").split()[1]) if self.shown("#reviewing") else 0

    def chosen(self) -> list[str]:
        return [e.text.split()[-1] for e in self.chrome.find_elements("css selector", ".facets [aria-pressed=true]")]


@pytest.mark.data
def test_twenty_bags_by_keyboard(chrome: Any, tmp_path: Path) -> None:
    spec = f"flickr8k:{DATA / 'flickr8k'}?split=test&limit=120"
    items = list(open_data(spec))
    pixels_ND = np.stack([np.asarray(i.picture.image().resize((8, 8)), np.float32).ravel() - 128 for i in items])
    found = curate_bags(mine_bags(pixels_ND, 3, ids=[item.id for item in items]))[:20]
    path = tmp_path / "bags.jsonl"
    write_bags(path, BagsFile(Header(scorer="8 x 8 pixels", data=spec, sizes=(3,)), found))
    review = open_review(path)
    with review.store, serving(review) as port:
        page = Page(chrome, port)
        page.press("A", "d", "a", ENTER)
        assert page.bag() == 1 and page.text("#who") == "Ada" and page.text("#count").startswith("0 of 20")
        drawn = "return [...document.querySelectorAll('.frame img')].filter(i => i.naturalWidth > 50).length"
        page.wait(lambda: chrome.execute_script(drawn) == 3)

        assert not page.shown("figcaption li"), "captions only on demand"
        page.press("c")
        page.wait(lambda: page.shown("figcaption li"))
        first = next(item for item in items if item.id == found[0].ids[0])
        assert page.text("figcaption ul").splitlines() == list(first.references)
        page.press("c")
        assert not page.shown("figcaption li")

        page.press("1", "5", "1", "k")  # 1 again takes position back
        assert page.bag() == 2 and page.chosen() == []
        page.press("2", "d")  # a slip: it was to be kept
        assert page.bag() == 3 and page.text("#count") == "2 of 20 · 1 kept · 1 dropped"
        page.press("u")
        assert page.bag() == 2 and page.chosen() == ["action"] and page.text("#count").startswith("1 of 20")
        page.press("m", "k", "d", ENTER)  # letters of a note are no decisions
        assert page.bag() == 2
        page.press("k")
        for number in range(3, 20):
            assert page.bag() == number
            page.press("k" if number % 2 else "d")
        page.press(LEFT, LEFT)
        assert page.bag() == 18 and page.text("#verdict") == "You dropped it"
        page.press("6", "k")  # a change of mind; then on to the next that is open
        assert page.bag() == 20
        assert len(review.store.standing()) == 19, "each is on disk as it is made"
        page.chrome.refresh()
        page.wait(lambda: page.shown("#reviewing"))
        assert page.bag() == 20 and page.text("#who") == "Ada", "asked once, and it goes on where it was"
        page.press("d")
        assert page.bag() == 0 and page.text("#result") == "All 20 bags reviewed: 12 kept, 8 dropped."
        page.press("u")
        assert page.bag() == 20
        page.press("d")
        assert chrome.get_log("browser") == []

    done = export_review(path, decisions_of(path), tmp_path / "out")
    kept = [0, 1, *(number - 1 for number in range(3, 20) if number % 2), 17]
    assert (done.kept, done.dropped, done.undecided, done.reviewers) == (len(kept), 20 - len(kept), 0, ("Ada",))
    assert [bag.ids for bag in read_bags(tmp_path / "out" / "bags.jsonl").bags] == [found[n].ids for n in sorted(kept)]
    assert json.loads((tmp_path / "out" / "3.json").read_text()) == [list(found[n].ids) for n in sorted(kept)]
    rows = [json.loads(line) for line in (tmp_path / "out" / "bags.jsonl").read_text().splitlines()[1:]]
    assert rows[0]["facets"] == ["count"] and rows[1]["facets"] == ["action"]
    assert rows[1]["decisions"][0]["note"] == "kd"
    log = json.loads((tmp_path / "out" / "review.json").read_text())["decisions"]
    assert len(log) == 23 and sum(entry["undone"] is not None for entry in log) == 2


def test_two_windows_two_reviewers_and_a_hostile_caption(chrome: Any, tmp_path: Path) -> None:
    path = make_bags(tmp_path)
    review = open_review(path, reviewer="Ann")
    with review.store, serving(review) as port:
        page = Page(chrome, port)
        assert page.text("#who") == "Ann" and page.bag() == 1
        page.press("c")
        page.wait(lambda: page.shown("figcaption li"))
        assert page.text("figcaption ul") == ATTACK and "owned" not in chrome.title
        assert chrome.execute_script("return document.querySelectorAll('figcaption img, main script').length") == 0

        # Another window of Ann's decides first: this one is told, and shows what stands.
        with DecisionStore.open(review.store.path) as other:
            other.decide("Ann", review.keys[0], "drop")
        page.press("k")
        assert page.bag() == 1 and "another window" in page.text("#trouble")
        assert page.text("#verdict") == "You dropped it" and len(review.store.log()) == 1
        page.press("k", "k", "d", "k")
        assert page.bag() == 0 and not page.shown("#trouble")
        assert [d.verdict for d in review.store.standing("Ann")] == ["keep", "keep", "drop", "keep"]

        page.press("n")
        page.press("B", "e", "n", ENTER)
        assert page.bag() == 1 and page.text("#verdict") == "", "Ben sees nothing of Ann's"
        page.press("k", "d", "d", "k")
        # p_o = 3/4; Ann keeps 3/4, Ben 2/4: p_e = 3/8 + 1/8; κ = 1/2
        assert "Ann and Ben 4 75 % 0.50" in page.text("#kappa")
    chrome.get_log("browser")


def test_a_server_that_is_gone_loses_nothing(chrome: Any, tmp_path: Path) -> None:
    path = make_bags(tmp_path)
    review = open_review(path, reviewer="Ann")
    with review.store, serving(review) as port:
        page = Page(chrome, port)
        page.press("k", "4")
    page.press("d")
    assert page.bag() == 2 and "The review server is not running" in page.text("#trouble")
    assert page.chosen() == ["attribute"], "what was chosen is still there"
    again = open_review(path, reviewer="Ann")
    with again.store, serving(again, port):  # another token: the page finds out by itself
        page.press("d")
        assert page.bag() == 3 and not page.shown("#trouble")
        assert [(d.verdict, d.facets) for d in again.store.standing()] == [("keep", ()), ("drop", ("attribute",))]
    chrome.get_log("browser")


def test_it_says_what_keep_means_and_shows_its_keys(chrome: Any, tmp_path: Path) -> None:
    review = open_review(make_bags(tmp_path), reviewer="Ann")
    with review.store, serving(review) as port:
        page = Page(chrome, port)
        assert "Keep a bag if its pictures look alike but a caption could distinguish each" in page.text(".means")
        assert not page.shown("#keys")
        page.press("?")
        assert page.shown("#keys") and "Undo the last decision" in page.text("#keys")
        page.press("k")
        assert page.bag() == 1 and not review.store.log(), "no decision behind the list of keys"
        page.press("\ue00c")  # Escape
        assert not page.shown("#keys")
        page.press("?", "?", "k")
        assert page.bag() == 2 and len(review.store.log()) == 1
    assert chrome.get_log("browser") == []


@pytest.mark.parametrize(("width", "height"), [(1440, 900), (1920, 1080), (1280, 720), (420, 900)])
def test_three_pictures_fill_the_screen(chrome: Any, tmp_path: Path, width: int, height: int) -> None:
    """In a grid of two columns a fourth of the room stayed empty, and more beside it."""
    pictures = tmp_path / "pictures"
    pictures.mkdir()
    for number in range(3):
        Image.new("RGB", (600, 400), (80 * number, 90, 120)).save(pictures / f"{number}.jpg")
    bag = Bag(tuple(f"{number}.jpg" for number in range(3)), 0.9)
    write_bags(tmp_path / "b.jsonl", BagsFile(Header(scorer="tiny", data=str(pictures), sizes=(3,)), [bag]))
    review = open_review(tmp_path / "b.jsonl", reviewer="Ann")
    size = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": width < 600}
    chrome.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)
    frames = """return [...document.querySelectorAll('.frame')].map(f => { const r = f.getBoundingClientRect();
                return [r.left, r.top, r.right, r.bottom]; })"""
    with review.store, serving(review) as port:
        page = Page(chrome, port)
        seen = "return [...document.querySelectorAll('.frame img')].filter(i => i.naturalWidth === 600).length"
        page.wait(lambda: chrome.execute_script(seen) == 3)
        boxes = chrome.execute_script(frames)
        dock, top = chrome.execute_script(
            "return [document.querySelector('.dock').getBoundingClientRect().top,"
            " document.querySelector('.pictures').getBoundingClientRect().top]"
        )
    chrome.execute_cdp_cmd("Emulation.clearDeviceMetricsOverride", {})
    left, right, bottom = min(b[0] for b in boxes), max(b[2] for b in boxes), max(b[3] for b in boxes)
    area = sum((b[2] - b[0]) * (b[3] - b[1]) for b in boxes)
    assert left >= 0 and right <= width and bottom <= dock, "all is seen at once"
    assert area >= 0.93 * (right - left) * (bottom - min(b[1] for b in boxes)), "there is no hole among them"
    assert (right - left) > 0.85 * width or (bottom - top) > 0.85 * (dock - top), "they reach the edge of the room"


@pytest.mark.parametrize("width", [360, 768, 1280])
def test_no_width_makes_the_page_scroll_sideways(chrome: Any, tmp_path: Path, width: int) -> None:
    review = open_review(make_bags(tmp_path), reviewer="Ann")
    size = {"width": width, "height": 800, "deviceScaleFactor": 1, "mobile": width < 600}
    chrome.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)
    with review.store, serving(review) as port:
        page = Page(chrome, port)
        for keys in ("c", "k", "kkk"):
            page.press(*keys)
            assert chrome.execute_script("return document.documentElement.scrollWidth") <= width
        assert page.bag() == 0
    chrome.execute_cdp_cmd("Emulation.clearDeviceMetricsOverride", {})
