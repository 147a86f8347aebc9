"""Whole participations in a real browser: by keyboard, by touch, closed half-way, two at once; and what a page must be
for everybody: contrast, labels, 200 % zoom."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from chromium import NEEDS_CHROMIUM, chromium
from sample_study import ATTACK, make_material, make_study, number_tokens

from tellapart.study.analysis import analyse
from tellapart.study.design import Study
from tellapart.study.rehearsal import local_server, rehearse
from tellapart.study.report import write_report
from tellapart.study.store import COMPLETE, AnswerStore

pytestmark = NEEDS_CHROMIUM
ENTER, SPACE, TAB = "\ue007", "\ue00d", "\ue004"

# Contrast of all texts that are shown with what is behind them (WCAG 2.2, 1.4.3), and controls without a name.
AUDIT = """
const shown = (e) => e.checkVisibility({checkOpacity: true, checkVisibilityCSS: true}) && !e.closest('.hush');
const number = (c) => { const m = c.match(/[\\d.]+/g).map(Number); return m.length < 4 ? [...m, 1] : m; };
const light = (c) => c.slice(0, 3).map((v) => (v /= 255) <= .04045 ? v / 12.92 : ((v + .055) / 1.055) ** 2.4)
  .reduce((s, v, i) => s + v * [.2126, .7152, .0722][i], 0);
const behind = (e) => {
  for (; e; e = e.parentElement) {
    const c = number(getComputedStyle(e).backgroundColor);
    if (c[3] > .99) return c;
  }
};
const found = [];
for (const e of document.querySelectorAll('body *')) {
  const text = [...e.childNodes].some((n) => n.nodeType === 3 && n.textContent.trim());
  if (!text || !shown(e) || e.closest(':disabled')) continue;
  const [a, b] = [light(number(getComputedStyle(e).color)), light(behind(e))];
  const ratio = (Math.max(a, b) + .05) / (Math.min(a, b) + .05);
  const size = parseFloat(getComputedStyle(e).fontSize);
  if (ratio < (size >= 24 ? 3 : 4.5)) found.push(`${e.textContent.trim().slice(0, 40)}: ${ratio.toFixed(2)}`);
}
for (const e of document.querySelectorAll('input, button, a, [role=progressbar]')) {
  if (!e.checkVisibility()) continue;
  const name = e.getAttribute('aria-label') || e.textContent.trim()
    || (e.labels && e.labels[0] && e.labels[0].textContent.trim())
    || (e.getAttribute('aria-labelledby') && document.getElementById(e.getAttribute('aria-labelledby')).textContent);
  if (!name) found.push('no name: ' + e.outerHTML.slice(0, 80));
}
for (const e of document.querySelectorAll('img:not([alt])')) found.push('no alt: ' + e.src);
if (document.documentElement.scrollWidth > innerWidth + 1) found.push('wider than the window');
return found;
"""


@pytest.fixture(scope="module")
def chrome(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    with chromium(tmp_path_factory.mktemp("chromium"), {"browser": "ALL"}) as driver:
        yield driver


class Page:
    """The page as a person has it."""

    def __init__(self, chrome: Any, address: str, width: int = 1400) -> None:
        self.chrome, self.address = chrome, address
        phone = width < 600
        metrics = {"width": width, "height": 860, "deviceScaleFactor": 1, "mobile": phone}
        chrome.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", metrics)
        chrome.execute_cdp_cmd("Emulation.setTouchEmulationEnabled", {"enabled": phone})
        self.load()

    def load(self) -> None:
        self.chrome.get("about:blank")
        self.chrome.get(self.address)
        self.wait(lambda: self.part() != "")

    def wait(self, met: Any) -> None:
        from selenium.webdriver.support.ui import WebDriverWait

        WebDriverWait(self.chrome, 30, poll_frequency=0.02).until(lambda _: met() and not self.all("body.busy"))

    def all(self, selector: str) -> list[Any]:
        return list(self.chrome.find_elements("css selector", selector))

    def part(self) -> str:
        """The id of the part that is shown."""
        script = "return [...document.querySelectorAll('main')].filter((m) => !m.hidden).map((m) => m.id).join()"
        return str(self.chrome.execute_script(script))

    def text(self, selector: str) -> str:
        return str(self.chrome.find_element("css selector", selector).text)

    def press(self, *keys: str) -> None:
        from selenium.webdriver.common.action_chains import ActionChains

        for key in keys:
            ActionChains(self.chrome, duration=0).send_keys(key).perform()
            self.wait(lambda: True)

    def tab_to(self, selector: str) -> None:
        """Tab until an element has the focus, as somebody without a mouse does."""
        for _ in range(60):
            if self.chrome.execute_script("return document.activeElement.matches(arguments[0])", selector):
                return
            self.press(TAB)
        raise AssertionError(f"no way to {selector} by Tab")

    def tap(self, selector: str) -> None:
        """Touch an element, which is scrolled to first."""
        box = self.chrome.execute_script(
            "const e = document.querySelector(arguments[0]); e.scrollIntoView({block: 'center'});"
            "const r = e.getBoundingClientRect(); return [r.x + r.width / 2, r.y + r.height / 2]",
            selector,
        )
        point = [{"x": box[0], "y": box[1]}]
        self.chrome.execute_cdp_cmd("Input.dispatchTouchEvent", {"type": "touchStart", "touchPoints": point})
        self.chrome.execute_cdp_cmd("Input.dispatchTouchEvent", {"type": "touchEnd", "touchPoints": []})
        self.wait(lambda: True)

    def title(self) -> str:
        return self.text("#item-title") if self.part() == "item" else self.part()

    def audit(self) -> list[str]:
        return list(self.chrome.execute_script(AUDIT))

    def agree(self) -> None:
        """By keyboard to the first item of the practice."""
        self.tab_to("#agree")
        self.press(SPACE)
        self.tab_to("#begin")
        self.press(ENTER)
        assert self.part() == "instructions"
        self.tab_to("#practise")
        self.press(ENTER)
        assert self.title() == "Practice 1 of 2"

    def practise(self, *keys: str) -> None:
        """Both practice items with their feedback, to the first item."""
        for number in (1, 2):
            assert self.title() == f"Practice {number} of 2"
            self.press(*keys, ENTER)
            assert self.text("#feedback b") in ("Right.", "Not quite.") and self.all("#task .mark")
            self.press(ENTER)
        assert self.part() == "ready"
        self.tab_to("#start")
        self.press(ENTER)
        assert self.title().startswith("Item 1 of ")


def rows(store: AnswerStore, study: Study) -> list[tuple[int, ...]]:
    """The displayed options of the first participant's answers."""
    one = store.participants()[0]
    places = study.order(one.block, one.ordinal, one.seed)
    return [places[a.position].displayed(a.options) for a in store.answers() if a.participant == one.number]


def test_a_participation_by_keyboard_closed_half_way(chrome: Any, tmp_path: Path) -> None:
    study = make_study(tmp_path / "s", material=make_material(hostile=True))
    with AnswerStore.open(study, tmp_path / "a.sqlite") as store, local_server(study, store) as url:
        page = Page(chrome, f"{url}/?PROLIFIC_PID=5f1e&STUDY_ID=s1")
        assert page.part() == "consent" and not page.chrome.find_element("id", "begin").is_enabled()
        assert store.participants() == [], "nothing is stored before somebody agrees"
        assert page.audit() == []
        page.agree()
        assert page.audit() == []
        page.press(ENTER)
        assert page.title() == "Practice 1 of 2", "no answer, no next item"
        page.practise("2")
        page.press("3")
        assert page.audit() == [] and not page.chrome.find_element("id", "back").is_enabled()
        page.press(ENTER, "1")
        assert page.title() == "Item 2 of 8" and page.chrome.find_element("id", "back").is_enabled()
        page.press("b")  # a slip: back by one, and another answer
        chosen = "return [...document.querySelectorAll('#task input')].findIndex((i) => i.checked)"
        assert page.title() == "Item 1 of 8" and chrome.execute_script(chosen) == 2
        page.press("b")
        assert page.title() == "Item 1 of 8", "and no further"
        page.press("4", ENTER, "1", ENTER)
        assert page.title() == "Item 3 of 8"
        assert ATTACK not in chrome.title and "owned" not in chrome.title
        assert chrome.execute_script("return document.querySelectorAll('.caption img, main script').length") == 0

        page.load()  # closed and opened again
        assert page.title() == "Item 3 of 8"
        chrome.back()
        chrome.forward()
        page.wait(lambda: page.part() == "item")
        assert page.title() == "Item 3 of 8", "the browser's own back button changes nothing"

        double = "const f = document.getElementById('task'); f.querySelectorAll('input')[1].click();"
        chrome.execute_script(double + "f.requestSubmit(); f.requestSubmit(); f.requestSubmit();")
        page.wait(lambda: page.title() == "Item 4 of 8")
        assert len(store.answers()) == 5
        for number in range(4, 9):
            assert page.title() == f"Item {number} of 8"
            page.press("2", ENTER)
        assert page.part() == "review" and page.audit() == []
        page.press("b")
        assert page.title() == "Item 8 of 8"
        page.press("1", ENTER)
        page.tab_to("#finish")
        page.press(ENTER)
        assert page.part() == "end" and page.text("#code") == study.settings.recruitment.completed
        assert page.audit() == []
        page.load()
        assert page.part() == "end" and page.text("#code") == study.settings.recruitment.completed
        assert rows(store, study) == [(1,), (1,), (3,), (0,), (1,), (1,), (1,), (1,), (1,), (0,)]
        assert store.identities() == {1: "5f1e"} and store.participants()[0].status == COMPLETE
        assert [entry for entry in chrome.get_log("browser") if entry["level"] == "SEVERE"] == []


def test_a_participation_by_touch_on_a_phone(chrome: Any, tmp_path: Path) -> None:
    study = make_study(tmp_path / "s", "rate")
    with AnswerStore.open(study, tmp_path / "a.sqlite") as store, local_server(study, store) as url:
        page = Page(chrome, f"{url}/?PROLIFIC_PID=phone", width=420)
        assert page.audit() == []
        page.tap("#agree")
        page.tap("#begin")
        assert page.audit() == []
        page.tap("#practise")
        while page.part() == "item":
            assert page.audit() == []
            for group, option in ((1, 4), (2, 5), (3, 2)):
                page.tap(f"#task fieldset:nth-of-type({group}) label:nth-of-type({option})")
            page.tap("#next")
            if page.all("#feedback:not([hidden])"):
                page.tap("#next")
            if page.part() == "ready":
                page.tap("#start")
        assert page.part() == "review"
        page.tap("#finish")
        assert page.part() == "end" and page.text("#code") == study.settings.recruitment.completed
        assert rows(store, study) == [(3, 4, 1)] * (2 + 6 + 2)
        assert [entry for entry in chrome.get_log("browser") if entry["level"] == "SEVERE"] == []


def test_two_at_once_and_one_who_withdraws(chrome: Any, tmp_path: Path) -> None:
    """Two participants in two windows of one browser do not mix; one of them leaves and takes the answers along."""
    study = make_study(tmp_path / "s", "compare")
    with AnswerStore.open(study, tmp_path / "a.sqlite") as store, local_server(study, store) as url:
        first = Page(chrome, f"{url}/?PROLIFIC_PID=one")
        first.agree()
        first.practise("1", "3")
        home = chrome.current_window_handle
        chrome.switch_to.new_window("window")
        try:
            second = Page(chrome, f"{url}/?PROLIFIC_PID=two")
            assert second.part() == "consent", "another identifier is another person"
            second.agree()
            second.practise("3", "1")
            second.press("3", "1", ENTER)
            assert second.title() == "Item 2 of 8"
            chrome.switch_to.window(home)
            first.press("1", "2", ENTER, "2", "4", ENTER)
            assert first.title() == "Item 3 of 8" and first.audit() == []
            assert [sum(a.participant == n for a in store.answers()) for n in (1, 2)] == [4, 3]
            first.press("z")
            assert first.all("#task .single.large") and first.audit() == []
            first.chrome.find_element("id", "leave").click()
            assert first.audit() == []
            first.press("1")
            assert first.all("dialog[open]"), "keys do not answer behind a dialog"
            first.chrome.find_element("id", "withdraw").click()
            first.wait(lambda: first.part() == "end")
            assert first.text("#end-title") == "You have withdrawn"
            assert {a.participant for a in store.answers()} == {2}
            chrome.switch_to.window(chrome.window_handles[-1])
            assert second.title() == "Item 2 of 8"
        finally:
            chrome.close()
            chrome.switch_to.window(home)


def test_another_browser_goes_on_with_the_secret_address_alone(chrome: Any, tmp_path: Path) -> None:
    study = make_study(tmp_path / "s")
    with AnswerStore.open(study, tmp_path / "a.sqlite") as store, local_server(study, store) as url:
        page = Page(chrome, f"{url}/?PROLIFIC_PID=known")
        page.agree()
        page.practise("1")
        chrome.find_element("id", "leave").click()
        assert page.audit() == []
        secret = chrome.find_element("id", "address").get_attribute("value")
        chrome.execute_script("localStorage.clear()")  # as another browser
        page.load()
        page.tab_to("#agree")
        page.press(SPACE)
        page.tab_to("#begin")
        page.press(ENTER)
        assert page.part() == "consent" and "this identifier is already in use in another browser" in page.text(
            "#trouble"
        )
        assert Page(chrome, secret).title() == "Item 1 of 8" and len(store.participants()) == 1


@pytest.mark.parametrize("width", [1400, 420])
def test_the_report_overprints_nothing_and_cuts_nothing_off(
    chrome: Any, tmp_path: Path, width: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    number_tokens(monkeypatch)  # of one participation in twenty a system lacks its bar
    study = make_study(tmp_path / "s", "rate")
    rehearse(study, 3, 0, 0, at_once=1)
    with AnswerStore.open(study, study.folder / "simulated" / "answers.sqlite") as store:
        write_report(analyse(study, store), tmp_path / "report.html", "tellapart study report s")
    metrics = {"width": width, "height": 860, "deviceScaleFactor": 1, "mobile": False}
    chrome.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", metrics)
    chrome.get((tmp_path / "report.html").as_uri())
    heights = "return [...document.querySelectorAll('figure > div')].map((e) => [e.clientHeight, e.scrollHeight])"
    drawn = chrome.execute_script(heights)
    assert len(drawn) == 16 and all(inside <= height for height, inside in drawn), "a row of a chart holds its text"
    cut = """return [...document.querySelectorAll('body *')].filter((e) => e.checkVisibility() && (
      e.getBoundingClientRect().right > innerWidth + 1 || getComputedStyle(e).overflowX === 'auto'
      && e.scrollWidth > e.clientWidth + 1)).map((e) => e.textContent.trim().slice(0, 40))"""
    chrome.execute_script("document.querySelector('details').open = true")
    assert chrome.execute_script(cut) == []


def test_a_server_that_is_away_for_a_moment_loses_no_answer(chrome: Any, tmp_path: Path) -> None:
    study = make_study(tmp_path / "s")
    store = AnswerStore.open(study, tmp_path / "a.sqlite")
    with store, local_server(study, store) as url:
        page = Page(chrome, f"{url}/?PROLIFIC_PID=away")
        page.agree()
        page.practise("1")
        chrome.execute_cdp_cmd("Network.enable", {})
        away = {"offline": True, "latency": 0, "downloadThroughput": -1, "uploadThroughput": -1}
        chrome.execute_cdp_cmd("Network.emulateNetworkConditions", away)
        chrome.find_element("css selector", "#task label:nth-of-type(2)").click()
        chrome.find_element("id", "next").click()
        page_shown = "return !document.getElementById('trouble').hidden"
        for _ in range(200):
            if chrome.execute_script(page_shown):
                break
        assert (
            "The connection to the study was lost. Your earlier answers" in page.text("#trouble")
            and page.title() == "Item 1 of 8"
        )
        chrome.execute_cdp_cmd("Network.emulateNetworkConditions", {**away, "offline": False})
        page.wait(lambda: page.title() == "Item 2 of 8")
        assert not chrome.execute_script(page_shown) and len(store.answers()) == 3
        chrome.get_log("browser")  # the failed requests


def test_an_answer_to_the_beginning_that_is_lost_makes_no_second_participant(chrome: Any, tmp_path: Path) -> None:
    study = make_study(tmp_path / "s")
    lost = (
        "const real = fetch; let once = true; window.fetch = async (path, more) => {"
        "const found = await real(path, more); if (once && path === '/api/begin') { once = false;"
        "throw new TypeError('lost'); } return found; };"
    )
    with AnswerStore.open(study, tmp_path / "a.sqlite") as store, local_server(study, store) as url:
        page = Page(chrome, url)
        chrome.execute_script(lost)
        page.agree()
        assert len(store.participants()) == 1
        page.press("1", ENTER)
        page.load()
        assert page.title() == "Practice 2 of 2" and len(store.answers()) == 1


@pytest.mark.parametrize("kind", ["pick", "rate", "compare"])
def test_every_screen_in_the_dark_and_at_twice_the_size(chrome: Any, tmp_path: Path, kind: str) -> None:
    """Contrast and names in dark colours; at 200 % a window of 1,280 pixels is one of 640."""
    study = make_study(tmp_path / "s", kind)
    dark = {"features": [{"name": "prefers-color-scheme", "value": "dark"}]}
    chrome.execute_cdp_cmd("Emulation.setEmulatedMedia", dark)
    try:
        with AnswerStore.open(study, tmp_path / "a.sqlite") as store, local_server(study, store) as url:
            page = Page(chrome, f"{url}/?PROLIFIC_PID=dark", width=640)
            assert page.audit() == []
            page.agree()
            keys = {"pick": ("1",), "rate": ("5", "1", "3"), "compare": ("1", "4")}[kind]
            page.press(*keys, ENTER)
            assert page.audit() == [], "with feedback"
            page.press(ENTER, *keys, ENTER, ENTER)
            assert page.part() == "ready" and page.audit() == []
            page.tab_to("#start")
            page.press(ENTER, *keys)
            assert page.audit() == []
            order = (
                "return [...document.querySelectorAll('#item :is(h1, .caption, .pair, legend, button)')]"
                ".filter((e) => e.checkVisibility()).map((e) => e.tagName + e.className)"
            )
            found = json.dumps(chrome.execute_script(order))
            assert found.startswith('["H1"') and found.index("LEGEND") < found.index("BUTTON"), found
            assert chrome.execute_script("return document.activeElement.name") or kind == "pick"
    finally:
        chrome.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": []})
