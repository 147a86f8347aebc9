"""The page: alone, escaped, with every caption of its pictures."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tellapart.boost import statistics as counted
from tellapart.boost.new_words import new_word_spans
from tellapart.boost.page import headline, render, write_page
from tellapart.boost.statistics import Statistics
from tellapart.boost.types import Boosted
from tellapart.errors import MissingExtra, PictureError
from tellapart.scenes import Scenes
from tellapart.scenes.claims import count_claims
from tellapart.scenes.marked_captions import mark_caption
from tellapart.types import Item

SCENES = Scenes(3, seed=2)


class Damaged:
    name = "gone.jpg"

    def key(self) -> str:
        return "gone"

    def image(self) -> Any:
        raise PictureError("gone.jpg: truncated")


@pytest.fixture
def made(monkeypatch: pytest.MonkeyPatch) -> Statistics:
    monkeypatch.setattr(counted, "word_analyser", lambda: lambda text: [(word, word, "NN1") for word in text.split()])
    made = Statistics()
    first, second = SCENES[0].item(), SCENES[1].item()
    made.add(
        Boosted(first, {"blend": "a <b>star</b> & moon", "describe": "a star", "holistic": "a red star by a moon"})
    )
    made.add(
        Boosted(replace(second, truth=None), {"describe": "a house"}, {"blend": "a refusal", "holistic": "an echo"})
    )
    made.add(Boosted(Item("<i>", Damaged(), ("a dog",)), {"describe": "an old dog\ud800"}))
    return made


def unmarked(page: str) -> str:
    return re.sub("</?mark[^>]*>", "", page)


def test_captions_after_the_third_picture_are_folded() -> None:
    many = Statistics()
    for scene in Scenes(5, seed=2):
        many.add(Boosted(scene.item(), {"holistic": "a red star"}))
    shown, _, folded = render(many).partition("<details><summary>2 more</summary>")
    assert (shown.count('<article class="item">'), folded.count('<article class="item">')) == (3, 2)


def test_the_page_needs_nothing_else_and_trusts_no_caption(made: Statistics) -> None:
    page = render(made, "tellapart boost x <y>")
    assert "a &lt;b&gt;star&lt;/b&gt; &amp; moon" in unmarked(page) and "<b>star" not in page and "&lt;i&gt;" in page
    assert "http" not in page.replace("http-equiv", "") and "<script" not in page
    assert "tellapart boost x &lt;y&gt;" in page and "an old dog\ufffd" in page


def test_every_caption_stands_beside_its_picture(made: Statistics) -> None:
    page = unmarked(render(made))
    assert page.count('<article class="item">') == 3 and page.count("data:image/png;base64,") == 2
    for text in (*SCENES[0].references, *SCENES[1].references, "a red star by a moon", "a house"):
        assert text in page
    assert "none: a refusal" in page and page.count("cannot be read") == 1


def test_words_that_no_source_has_and_false_claims_are_marked(made: Statistics) -> None:
    text = "a red star by a moon"
    page = render(made)
    told = count_claims(text, SCENES[0])
    assert told.correct < told.claims and "claims correct" in page
    # "red" and "by" are in neither the blended caption nor the description; what is false is marked as that.
    assert '<mark class="new" title="in no source">by</mark>' in page
    start, end, why = mark_caption(text, SCENES[0]).false[0]
    assert f'<mark title="{why}">{text[start:end]}</mark>' in page
    assert ">a house<" in page.replace("\n", ""), "a describer has no text to be held against"
    # The second item has no truth, and a description only: nothing of it is marked.
    assert "claims correct" not in page[page.index(">a house<") :]


def test_spans_of_unsaid_words_are_those_of_whole_words() -> None:
    def analyse(text: str) -> list[tuple[str, str, str]]:
        return [(word, word.rstrip("s"), "NN1") for word in re.findall(r"\w+", text.lower())]

    text = "Red stars, red’s star-shaped STAR (infrared)"
    found = new_word_spans(text, ["a star s shaped"], analyse)
    assert [text[start:end] for start, end, _ in found] == ["Red", "red", "infrared"]


def test_without_the_analyser_the_page_says_what_to_install(made: Statistics, monkeypatch: pytest.MonkeyPatch) -> None:
    def missing() -> Any:
        raise MissingExtra("words", "the word analysis")

    monkeypatch.setattr(counted, "word_analyser", missing)
    page = render(made)
    assert "pip install &#39;tellapart[words]&#39;" in page
    assert 'class="new"' not in page


def test_bars_share_an_axis_and_the_longest_fills_it(made: Statistics) -> None:
    charts = re.findall(r'<svg viewBox="0 0 260 138".*?</svg>', render(made), re.DOTALL)
    drawn = [re.findall(r'<rect x="(.*?)" y="(.*?)" width=".*?" height="(.*?)"', chart) for chart in charts]
    assert len(drawn) == len(made.kinds) and {len(own) for own in drawn} == {len(made.histogram("human"))}
    for own in drawn:
        assert max(float(tall) for _, _, tall in own) == 120
        assert all(float(y) + float(tall) == pytest.approx(120, abs=0.02) for _, y, tall in own)
        assert len({x for x, _, _ in own}) == len(own)


def test_the_headline_says_what_happened(made: Statistics) -> None:
    assert re.fullmatch(r"3 items; mean words per caption: \d\.\d in people’s, 6\.0 in HolisticCap", headline(made))
    bare = Statistics()
    bare.add(Boosted(Item("1", SCENES[0]), {"describe": "a red star"}))
    assert headline(bare) == "1 items; mean words per caption: 3.0 in VisualCap"
    assert headline(Statistics()) == "0 items; mean words per caption: none" and "nan" not in render(bare)


def test_it_is_written_whole(made: Statistics, tmp_path: Path) -> None:
    write_page(made, tmp_path / "new" / "boosted.html")
    assert (tmp_path / "new" / "boosted.html").read_text(encoding="utf-8").endswith("</html>")
    assert len(list((tmp_path / "new").iterdir())) == 1
