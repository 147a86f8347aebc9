"""Search of a folder: by captions, by pictures and by both, and how well queries find their pictures."""

from __future__ import annotations

import csv
import json
from pathlib import Path

import numpy as np
import pytest
from command_line import Cli

from tellapart.captions.store import CaptionStore
from tellapart.data import open_data
from tellapart.errors import UsageError
from tellapart.scenes import Scenes
from tellapart.scorers.load import load_scorer
from tellapart.search.index import FUSION, SearchIndex
from tellapart.search.queries import read_queries

SCENES = list(Scenes(12, split="test", seed=3))


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Twelve scenes; the captions of the first eight are beside them, the last four have none."""
    (tmp_path / "photos").mkdir()
    for number, scene in enumerate(SCENES):
        scene.image().save(tmp_path / "photos" / f"{number:02}.png")
        if number < 8:
            text = "a <b>zebra</b> by a lake" if number == 5 else scene.references[0]
            (tmp_path / "photos" / f"{number:02}.txt").write_text(text)
    return tmp_path / "photos"


@pytest.fixture
def index(folder: Path) -> SearchIndex:
    return SearchIndex.build(open_data(str(folder)), CaptionStore.open(folder).captions(), load_scorer("scenes", "cpu"))


def test_words_of_a_caption_find_its_picture(folder: Path) -> None:
    index = SearchIndex.build(open_data(str(folder)), CaptionStore.open(folder).captions())
    (hit,) = index.search("Zebra, helicopter")
    assert (hit.id, hit.by_caption, hit.by_picture, hit.cosine) == ("05.png", 1, None, None)
    assert index.search("helicopter") == []


def test_function_words_find_no_pictures_unless_the_query_has_no_others(folder: Path) -> None:
    index = SearchIndex.build(open_data(str(folder)), CaptionStore.open(folder).captions())
    assert [hit.id for hit in index.search("the zebra next to a lake")] == ["05.png"]
    assert index.search("a helicopter by the river") == []
    assert [hit.id for hit in index.search("by a")][:1] == ["05.png"]
    assert index.search("two", 12) == index.search("two of these", 12)


def test_ranks_are_fused_and_a_picture_without_a_caption_is_found(index: SearchIndex) -> None:
    query = SCENES[10].references[0]
    scores = index.scores([query])
    hits = index.search(query, 12)
    assert len(hits) == 12 and [hit.score for hit in hits] == sorted((hit.score for hit in hits), reverse=True)
    for hit in hits:
        place = [item.id for item in index.items].index(hit.id)
        by_picture = 1 + int((scores["pictures"][0] > scores["pictures"][0, place]).sum())
        expected = 1 / (FUSION + by_picture)
        if scores["captions"][0, place] > 0:
            expected += 1 / (FUSION + 1 + (scores["captions"][0] > scores["captions"][0, place]).sum())
        assert hit.score == pytest.approx(expected) and hit.by_picture == by_picture
    assert next(hit for hit in hits if hit.id == "10.png").by_caption is None


def test_figures_are_those_of_the_ranks(index: SearchIndex) -> None:
    queries = [(text, f"{number:02}.png") for number, scene in enumerate(SCENES) for text in scene.references]
    figures = index.measure(queries)
    assert set(figures.values) == {"captions", "pictures", "both"} and figures.queries == len(queries)
    scores = index.scores([text for text, _ in queries])["pictures"]
    own = np.array([scores[q, int(id_[:2])] for q, (_, id_) in enumerate(queries)])
    rank = 1 + (scores > own[:, None]).sum(1)
    for name, gain in {"R@1": rank <= 1, "R@5": rank <= 5, "MRR": 1 / rank}.items():
        found = figures.values["pictures"][name]
        assert found.value == pytest.approx(100 * gain.mean(), abs=0.1) and found.low <= found.value <= found.high
    assert figures.ranks["pictures"] == rank.tolist()
    assert None in figures.ranks["captions"] and None not in figures.ranks["both"]
    assert figures.values["captions"]["R@1"].value < figures.values["both"]["R@5"].value


def test_queries_name_pictures_by_id_name_or_stem(folder: Path, tmp_path: Path) -> None:
    items = list(open_data(str(folder)))
    path = tmp_path / "queries.csv"
    path.write_text('query,picture\n"a zebra, by a lake",05\nred,photos/03.png\n')
    assert read_queries(path, items) == [("a zebra, by a lake", "05.png"), ("red", "03.png")]
    path = tmp_path / "queries.jsonl"
    path.write_text('{"image": "05.png", "captions": ["one", "two"]}\n')
    assert read_queries(path, items) == [("one", "05.png"), ("two", "05.png")]
    path.write_text('{"query": "one", "picture": "99.png"}\n')
    with pytest.raises(UsageError, match=r"line 1: no picture '99\.png' among 12"):
        read_queries(path, items)
    path.write_text('{"query": "", "picture": "05.png"}\n')
    with pytest.raises(UsageError, match="expected the columns 'query' and 'picture', got"):
        read_queries(path, items)


def test_the_command_prints_hits_figures_and_a_page(cli: Cli, folder: Path, tmp_path: Path) -> None:
    done = cli("search", folder, "zebra", "--json")
    (hit,) = json.loads(done.out)
    assert hit["id"] == "05.png" and hit["by_caption"] == 1
    page = tmp_path / "found.html"
    done = cli("search", folder, "zebra <i>by</i> a lake", "--scorer", "scenes", "-n", 3, "--report", page)
    assert done.status == 0 and "05.png" in done.out and "caption 1, picture" in done.out
    html = page.read_text()
    assert (
        html.count("data:image/") == html.count('<use href="#p') == 3
        and "<b>zebra" not in html
        and "&lt;b&gt;zebra" in html
        and "<i>" not in html
    )
    assert html.count("zebra &lt;i&gt;by&lt;/i&gt; a lake</h") == 1 and ">tellapart<span> · " in html
    with (tmp_path / "queries.csv").open("w") as file:
        csv.writer(file).writerows(
            [("query", "picture"), *((SCENES[n].references[0], f"{n:02}.png") for n in range(8))]
        )
    done = cli("search", folder, "--queries", tmp_path / "queries.csv", "--json")
    found = json.loads(done.out)
    assert [(row["picture"], row["captions"]) for row in found["ranks"]][:1] == [("00.png", 1)]
    assert found["queries"] == 8 and found["values"]["captions"]["R@10"]["value"] == pytest.approx(87.5, abs=13)
    done = cli(
        "search", folder, "--queries", tmp_path / "queries.csv", "--scorer", "scenes", "--report", page, "--overwrite"
    )
    assert "both, fused" in done.out and "number 1" in page.read_text()
    assert "expected either words to search for, or --queries FILE" in cli("search", folder).line
    assert "--device requires --scorer" in cli("search", folder, "x", "--device", "cpu").line


def test_what_cannot_be_searched_says_what_to_type(cli: Cli, folder: Path, tmp_path: Path) -> None:
    line = cli("search", folder, "zebra", "--captions", tmp_path / "none.csv").line
    assert line.endswith("none.csv: no such file; expected a file of captions, or a suffix: .txt, .caption, .xmp")
    queries = tmp_path / "queries.csv"
    queries.write_text("query,picture\nred,55.png\n")
    assert "no picture '55.png' among 12; did you mean '" in cli("search", folder, "--queries", queries).line
    for path in folder.glob("*.txt"):
        path.unlink()
    line = cli("search", folder, "zebra").line
    assert "none of 12 pictures has a caption in .txt files; write captions (tellapart caption MODEL" in line
    assert "or pass --scorer MODEL to search only the pictures" in line
    assert cli("search", folder, "zebra", "--scorer", "scenes").status == 0


def test_the_page_of_many_queries_states_the_figures(cli: Cli, folder: Path, tmp_path: Path) -> None:
    queries = tmp_path / "queries.csv"
    queries.write_text("query,picture\nzebra,05.png\n")
    assert cli("search", folder, "--queries", queries, "--report", tmp_path / "a.html").status == 0
    page = (tmp_path / "a.html").read_text()
    assert "<p>looks for 05.png: number 1</p>" in page
    assert "<p>1 queries, 12 pictures; percentages with 95% intervals</p>" in page
    assert "<p>captions (BM25): R@1 100.0 [" in page


def test_queries_that_miss_are_counted_and_each_picture_is_embedded_once(
    cli: Cli, folder: Path, tmp_path: Path
) -> None:
    queries = tmp_path / "queries.csv"
    queries.write_text("query,picture\nzebra,05.png\nthe zebra,05.png\nhelicopter,05.png\n")
    done = cli("search", folder, "--queries", queries)
    assert "1 of 3 queries do not find their picture among the first 10; to see the results" in done.err
    done = cli("search", folder, "--queries", queries, "--report", tmp_path / "a.html")
    page = (tmp_path / "a.html").read_text()
    assert "do not find" not in done.err and "<p>looks for 05.png: no picture matches</p>" in page
    assert page.count("data:image/") == 1 and page.count('<use href="#p0"/>') == 2
