"""The page in a real browser: it renders, says nothing on the console, asks for nothing, and its buttons work."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from chromium import NEEDS_CHROMIUM, chromium
from sample_run import change, make_run, write

from tellapart.report import build_report

pytestmark = NEEDS_CHROMIUM
ATTACK = "<img src=x onerror=\"document.title='owned'\"><script>document.title='owned'</script>"


@pytest.fixture(scope="module")
def chrome(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    with chromium(tmp_path_factory.mktemp("chromium"), {"browser": "ALL", "performance": "ALL"}) as driver:
        yield driver


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> Path:
    run = make_run(tmp_path_factory.mktemp("runs") / "run")
    gallery = json.loads((run / "gallery.json").read_text())
    gallery["sets"][0]["systems"]["after"]["caption"] = ATTACK
    gallery["sets"][0]["references"][0] = f'"{ATTACK}'
    write(run / "gallery.json", gallery)
    change(run / "run.json", name=f"sample</title>{ATTACK}")
    return build_report([run])


@pytest.fixture
def shown(chrome: Any, page: Path) -> Iterator[Any]:
    """The page, wide and light, with the logs of earlier pages taken away."""
    resize(chrome, 1280)
    chrome.get("about:blank")
    chrome.get_log("browser"), chrome.get_log("performance")
    chrome.get(page.as_uri())
    yield chrome
    chrome.execute_cdp_cmd("Emulation.setScriptExecutionDisabled", {"value": False})


def resize(chrome: Any, width: int) -> None:
    size = {"width": width, "height": 900, "deviceScaleFactor": 1, "mobile": width < 600}
    chrome.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)


def visible_sets(chrome: Any) -> list[str]:
    return [e.get_attribute("data-outcome") for e in chrome.find_elements("css selector", ".set") if e.is_displayed()]


def test_it_renders_without_a_word_on_the_console_or_a_request(shown: Any, page: Path) -> None:
    assert "rose from 41.2 to 68.0" in shown.find_element("css selector", "h1").text
    assert shown.get_log("browser") == []
    events = [json.loads(entry["message"])["message"] for entry in shown.get_log("performance")]
    asked = [e["params"]["request"]["url"] for e in events if e["method"] == "Network.requestWillBeSent"]
    assert [url for url in asked if not url.startswith("data:")] == [page.as_uri()]


def test_the_policy_would_stop_a_request(shown: Any) -> None:
    shown.execute_script("const i = new Image(); i.src = 'http://127.0.0.1:9/x.png'; document.body.append(i)")
    assert any("Content Security Policy" in entry["message"] for entry in shown.get_log("browser"))


def test_pictures_are_drawn(shown: Any) -> None:
    """The framed picture's box holds the picture's own colours, not an empty square."""
    import io

    from PIL import Image

    target = shown.find_element("css selector", ".target .picture")
    image = Image.open(io.BytesIO(target.screenshot_as_png)).convert("RGB")
    assert min(image.size) > 100
    assert len(image.getcolors(1 << 20) or []) > 10


def test_a_caption_full_of_script_is_shown_and_not_run(shown: Any) -> None:
    assert shown.title.startswith("sample</title><img")
    captions = [e.text for e in shown.find_elements("css selector", "blockquote")]
    assert ATTACK in captions
    assert shown.execute_script("return document.querySelectorAll('img').length") == 0
    assert "owned" not in shown.title.replace(ATTACK, "")


@pytest.mark.parametrize(
    ("value", "expected"),
    [("improved", ["improved"] * 2), ("worse", ["worse"]), ("missed", ["missed"] * 2), ("hit", ["hit"])],
)
def test_the_buttons_narrow_the_gallery_and_open_it_again(shown: Any, value: str, expected: list[str]) -> None:
    everything = visible_sets(shown)
    assert len(everything) == 6
    button = shown.find_element("css selector", f"button[value={value}]")
    button.click()
    assert visible_sets(shown) == expected
    assert button.get_attribute("aria-pressed") == "true"
    assert shown.find_element("css selector", ".filter output").text == f"{len(expected)} of 6 sets"
    shown.find_element("css selector", "button[value=all]").click()
    assert visible_sets(shown) == everything
    assert button.get_attribute("aria-pressed") == "false"


def test_without_script_the_page_is_whole_and_shows_no_dead_buttons(shown: Any) -> None:
    shown.execute_cdp_cmd("Emulation.setScriptExecutionDisabled", {"value": True})
    shown.refresh()
    assert len(visible_sets(shown)) == 6
    assert not any(e.is_displayed() for e in shown.find_elements("css selector", ".filter"))


@pytest.mark.parametrize("width", [360, 420, 768, 1280])
def test_no_width_makes_the_page_scroll_sideways(shown: Any, width: int) -> None:
    resize(shown, width)
    assert shown.execute_script("return document.documentElement.scrollWidth") <= width


@pytest.mark.parametrize(("width", "height"), [(420, 6800), (1280, 4700)])
def test_the_page_is_short_until_it_is_unfolded(shown: Any, page: Path, width: int, height: int) -> None:
    resize(shown, width)
    shown.get(page.as_uri() + "#run1-sets")
    assert shown.execute_script("return document.documentElement.scrollHeight") < height
    first = shown.find_elements("css selector", ".set")[0]
    assert not first.find_element("css selector", ".row").is_displayed()
    first.find_element("css selector", "summary").click()
    assert first.find_element("css selector", ".row").is_displayed()
    shown.execute_script("for (const e of document.querySelectorAll('details')) e.open = true")
    assert shown.execute_script("return document.documentElement.scrollWidth") <= width
    cut = "return [...document.querySelectorAll('.wide, pre')].filter((e) => e.scrollWidth > e.clientWidth + 1).length"
    assert shown.execute_script(cut) == 0


def test_the_curve_tells_its_value_under_the_pointer(shown: Any) -> None:
    from selenium.webdriver import ActionChains

    strips = shown.find_elements("css selector", ".chart")[2].find_elements("css selector", ".hover")
    text = strips[5].find_element("css selector", "text")
    assert not text.is_displayed()
    ActionChains(shown).move_to_element(strips[5].find_element("css selector", "rect")).perform()
    assert text.is_displayed() and text.text == "step 300: 64.5"


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_text_stands_out_in_light_and_dark(shown: Any, scheme: str) -> None:
    """Contrast of each text colour against the page's ground, by WCAG 2: at least 4.5."""
    feature = {"name": "prefers-color-scheme", "value": scheme}
    shown.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": [feature]})
    ground = colour(shown, "body", "background-color")
    assert (sum(ground) < 200) == (scheme == "dark")
    for selector in ("h1", ".explain", ".interval", ".better h3", ".worse h3", ".miss b", ".hit b", "summary", ".tag"):
        assert contrast(colour(shown, selector, "color"), ground) >= 4.5, selector


def colour(chrome: Any, selector: str, name: str) -> list[int]:
    text = chrome.find_element("css selector", selector).value_of_css_property(name)
    return [int(x) for x in text[text.index("(") + 1 : -1].split(",")[:3]]


def contrast(a: list[int], b: list[int]) -> float:
    def luminance(rgb: list[int]) -> float:
        parts = [c / 255 for c in rgb]
        linear = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in parts]
        return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]

    high, low = sorted((luminance(a), luminance(b)), reverse=True)
    return (high + 0.05) / (low + 0.05)
