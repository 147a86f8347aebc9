"""The page as a whole: what stands on it, that it is safe with untrusted text, and that it needs nothing else."""

from __future__ import annotations

import base64
import hashlib
import io
import json
import re
from itertools import pairwise
from pathlib import Path

import pytest
from page_reader import Element, read_page
from PIL import Image, ImageChops
from sample_run import METRICS, PICKS, change, log_lines, make_run, results, write

from tellapart.errors import TellapartError, UsageError
from tellapart.report import build_report

NASTY = '<script>document.title="owned"</script> "quoted" & \'single\' שלום 🦊 \u202e\x00 \ud800 </style>'


def opened(image: Element) -> Image.Image:
    """The picture inside an embedded <image>."""
    return Image.open(io.BytesIO(base64.b64decode(image.attributes["href"].partition(",")[2])))


def sets_of(page: Path) -> list[str]:
    return [e.attributes["data-outcome"] for e in read_page(page).all("article", class_="set")]


def test_writes_report_html_into_the_run_folder_and_leaves_nothing_beside_it(run: Path) -> None:
    before = sorted(p.name for p in run.iterdir())
    page = build_report([run])
    assert page == run / "report.html"
    assert sorted(p.name for p in run.iterdir()) == sorted([*before, "report.html"])
    again = page.read_bytes()
    build_report([run])
    assert page.read_bytes() == again  # the same run gives the same page


def test_the_headline_says_what_rose_by_how_much_and_what_it_cost(run: Path) -> None:
    (title,) = read_page(build_report([run])).all("h1")
    assert title.text == (
        "R@1 among look-alikes rose from 41.2 to 68.0 (+26.8, 95 % interval +22.4 to +31.3); "
        "hallucination rose from 3.1 to 5.0 and CIDEr fell from 0.914 to 0.733, and 1 more measure got worse."
    )


def test_better_worse_unclear_and_neutral_are_listed_apart(run: Path) -> None:
    root = read_page(build_report([run]))
    verdicts = ("better", "worse", "unclear", "neutral")
    listed = {v: [e.text for e in root.all("div", class_=v)[0].all(class_="what")] for v in verdicts}
    assert listed["worse"] == ["hallucination", "BLEU-4", "CIDEr"]
    assert listed["unclear"] == ["attribute precision", "repetition"]
    assert listed["neutral"] == ["length", "vocabulary"]
    assert "R@1 among look-alikes, scorer “judge”" in listed["better"]
    assert sum(map(len, listed.values())) == len(METRICS)


def test_every_number_of_results_json_stands_in_the_table_exactly(run: Path) -> None:
    stored = json.loads((run / "results.json").read_text())["systems"]
    (table,) = read_page(build_report([run])).all("section", class_="numbers")
    cells = [e for e in table.all("td") if "data-exact" in e.attributes]
    shown = [(e.attributes["data-label"], float(e.attributes["data-exact"])) for e in cells]
    assert sorted(shown) == sorted((name, e["value"]) for name, system in stored.items() for e in system.values())
    for cell in cells:
        text = cell.all(class_="value")[0].text.replace(",", "")
        places = len(text.partition(".")[2])
        assert float(text) == pytest.approx(float(cell.attributes["data-exact"]), abs=0.51 * 10**-places)


def test_signatures_and_what_was_run_are_on_the_page(run: Path) -> None:
    text = read_page(build_report([run])).text
    for key in METRICS:
        assert f"{key}|scorer:mini-clip-5f2a" in text
    for part in (
        "1 November 2026, 14:05 UTC",
        "1 min 39 s",
        "cpu, 2 threads",
        "torch 2.13.0",
        "a8f38a1",
        "--set seed=7",
        "recall@5.random100 is left out",
    ):
        assert part in text
    assert 'baseline = "running-mean"' in text  # the recipe, whole
    assert "train.steps 400" in text  # and in short


def test_the_gallery_marks_hits_misses_and_the_picture_taken_instead(run: Path) -> None:
    page = build_report([run])
    assert sets_of(page) == ["improved", "improved", "hit", "worse", "missed", "missed"]
    stored = json.loads((run / "gallery.json").read_text())["sets"]
    for element, source, picks in zip(read_page(page).all("article", class_="set"), stored, PICKS, strict=True):
        pictures = element.all("li")[: len(source["candidates"])]
        framed = [i for i, e in enumerate(pictures) if "target" in e.attributes["class"]]
        assert framed == [source["candidates"].index(source["target"])]
        for answer, name, place in zip(element.all(class_="answer"), ("before", "after"), picks, strict=False):
            system = source["systems"][name]
            assert system["caption"] in answer.text
            target_score = f"{system['scores'][source['target']]:.1f}"
            if place == 0:
                assert "hit" in answer.text and "miss" not in answer.text and target_score in answer.text
            else:
                number = source["candidates"].index(system["picked"]) + 1
                score = f"{system['scores'][system['picked']]:.1f}"
                assert f"miss took no. {number}: score {score}, against {target_score} for the target" in answer.text
                assert (
                    f"taken by {name}" in pictures[number - 1].text.replace(" ,", ",")
                    or name in pictures[number - 1].text
                )


def test_each_picture_is_embedded_once_and_pixel_for_pixel(run: Path) -> None:
    root = read_page(build_report([run]))
    stored = json.loads((run / "gallery.json").read_text())
    used = {stored["pictures"][id] for s in stored["sets"] for id in s["candidates"]}
    distinct = {hashlib.sha256((run / name).read_bytes()).hexdigest(): name for name in used}
    images = root.all("image")
    assert len(images) == len(distinct)
    decoded = {opened(e).tobytes() for e in images}
    assert decoded == {Image.open(run / name).tobytes() for name in distinct.values()}
    symbols = {e.attributes["id"] for e in root.all("symbol")}
    assert {e.attributes["href"].removeprefix("#") for e in root.all("use")} <= symbols


def test_nothing_outside_the_page_is_referred_to_and_the_policy_forbids_it(run: Path) -> None:
    page = build_report([run])
    root = read_page(page)
    for element in root.all():
        for name in ("src", "href", "action", "data", "poster", "srcset", "xlink:href", "background"):
            value = element.attributes.get(name, "#")
            assert value.startswith(("#", "data:")), f"<{element.tag} {name}={value[:60]}>"
        assert not [name for name in element.attributes if name.startswith("on")]
    (style,) = root.all("style")
    assert "url(" not in style.text and "@import" not in style.text
    (policy,) = [e.attributes["content"] for e in root.all("meta") if e.attributes.get("http-equiv")]
    (script,) = root.all("script")
    digest = base64.b64encode(hashlib.sha256("".join(map(str, script.children)).encode()).digest()).decode()
    assert policy.startswith("default-src 'none'; img-src data:;")
    assert f"script-src 'sha256-{digest}';" in policy


def test_untrusted_text_stays_text_wherever_it_comes_from(run: Path) -> None:
    plain = build_report([run])
    tags = [e.tag for e in read_page(plain).all()]
    gallery = json.loads((run / "gallery.json").read_text())
    gallery["sets"][0]["systems"]["before"]["caption"] = NASTY
    gallery["sets"][0]["references"][0] = NASTY
    write(run / "gallery.json", gallery)
    change(run / "run.json", name=NASTY, command=NASTY, device=NASTY, versions={NASTY: NASTY})
    stored = results()
    stored["signatures"]["length"] = NASTY
    write(run / "results.json", stored)
    root = read_page(build_report([run]))
    assert [e.tag for e in root.all()] == tags  # not one element more
    quote = root.all("blockquote")[0]
    assert quote.text == " ".join(NASTY.replace("\x00", "\ufffd").replace("\ud800", "\ufffd").split())
    assert quote.attributes["dir"] == "auto"


def test_twenty_four_sets_of_ten_photos_stay_below_five_megabytes(tmp_path: Path) -> None:
    run = make_run(tmp_path / "run", size=10, picks=PICKS * 4)
    noise = Image.effect_noise((500, 375), 90).convert("RGB")  # the worst case for JPEG: no two pixels alike
    for i, file in enumerate(sorted((run / "gallery").iterdir())):
        ImageChops.offset(noise, i, 3 * i).save(file, "JPEG", quality=95)
    page = build_report([run])
    assert len(sets_of(page)) == 24
    assert page.stat().st_size < 5_000_000


def test_a_photo_loses_its_metadata(run: Path) -> None:
    pictures = json.loads((run / "gallery.json").read_text())["pictures"]
    exif = Image.Exif()
    exif[0x010E] = "SECRETPLACE"
    photo = Image.new("RGB", (400, 300), "teal")
    for name in pictures.values():
        photo.save(run / name, "JPEG", exif=exif)
    assert b"SECRETPLACE" in (run / next(iter(pictures.values()))).read_bytes()
    (image,) = read_page(build_report([run])).all("image")
    data = base64.b64decode(image.attributes["href"].partition(",")[2])
    assert b"SECRETPLACE" not in data
    assert Image.open(io.BytesIO(data)).size == (288, 216)


@pytest.mark.parametrize("name", ["recipe.toml", "log.jsonl", "results.json", "gallery.json"])
def test_a_part_that_is_missing_is_named_and_the_rest_is_shown(run: Path, name: str) -> None:
    (run / name).unlink()
    root = read_page(build_report([run]))
    (gaps,) = root.all("section", class_="gaps")
    assert f"{name} is not in the run folder" in gaps.text
    sections = {"recipe.toml": "pre", "log.jsonl": "curves", "results.json": "numbers", "gallery.json": "gallery"}
    for other, section in sections.items():
        if other != "recipe.toml":
            assert bool(root.all("section", class_=section)) == (other != name)


def test_a_run_that_has_only_just_begun_says_so(run: Path) -> None:
    for name in ("recipe.toml", "log.jsonl", "results.json", "gallery.json"):
        (run / name).unlink()
    write(run / "run.json", {"name": "young"})
    root = read_page(build_report([run]))
    assert root.all("h1")[0].text == "This run has not been evaluated, so nothing can be said about what it changed."
    assert len(root.all("section", class_="gaps")[0].all("li")) == 4


def test_broken_files_and_pictures_become_lines_on_the_page(run: Path) -> None:
    (run / "results.json").write_text('{"systems": [1]}')
    (run / "recipe.toml").write_text("name = = 3")
    pictures = json.loads((run / "gallery.json").read_text())["pictures"]
    names = list(pictures)
    (run / pictures[names[0]]).write_text("no picture")
    Image.new("RGB", (64, 64), "red").save(run.parent / "private.png")
    change(run / "gallery.json", pictures=pictures | {names[1]: "../private.png"})
    text = read_page(build_report([run])).all("section", class_="gaps")[0].text
    assert "results.json cannot be read (systems:" in text
    assert "recipe.toml is not TOML" in text
    assert "2 picture(s) of the gallery cannot be read" in text and names[0] in text and names[1] in text


def test_several_runs_share_a_page_with_one_table(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    a = make_run(tmp_path / "a", name="long", shift=6.0)
    b = make_run(tmp_path / "b", name="short", shift=-9.0)
    page = build_report([b, a])
    assert page.resolve() == tmp_path / "report.html"
    root = read_page(page)
    assert (
        root.all("h1")[0].text == "Of 2 runs, “long” ends highest: R@1 among look-alikes 74.0 against 59.0 for “short”."
    )
    rows = root.all("section", class_="overview")[0].all("tbody")[0].all("tr")
    assert [row.all("a")[0].text for row in rows] == ["short", "long"]
    assert [row.all("td")[1].all(class_="value")[0].text for row in rows] == ["59.0", "74.0"]
    for row, section in zip(rows, root.all("section", class_="run"), strict=True):
        assert row.all("a")[0].attributes["href"] == f"#{section.attributes['id']}"
        assert section.all("h2")[0].text.startswith("R@1 among look-alikes rose from 41.2")
    ids = [e.attributes["id"] for e in root.all() if "id" in e.attributes]
    assert len(ids) == len(set(ids))
    pictures = {p.read_bytes() for folder in (a, b) for p in (folder / "gallery").iterdir()}
    assert len(root.all("image")) <= len(pictures)  # both runs show the same pictures: embedded once


def test_headings_go_down_one_step_at_a_time(run: Path, tmp_path: Path) -> None:
    for page in (build_report([run]), build_report([run, run], tmp_path / "two.html")):
        levels = [int(e.tag[1]) for e in read_page(page).all() if re.fullmatch("h[1-6]", e.tag)]
        assert levels[0] == 1 and levels.count(1) == 1
        assert all(b <= a + 1 for a, b in pairwise(levels))


def test_every_picture_has_a_text_instead(run: Path) -> None:
    stored = json.loads((run / "gallery.json").read_text())["sets"]
    for element, source in zip(read_page(build_report([run])).all("article"), stored, strict=True):
        (target,) = element.all("li", class_="target")
        assert target.all("svg")[0].attributes["aria-label"] == source["references"][0]
        assert all(e.attributes["aria-label"] for e in element.all("svg", class_="picture"))


@pytest.mark.parametrize(
    ("make", "found"),
    [
        (lambda p: None, "does not exist"),
        (lambda p: p.write_text("x"), "is a file"),
        (lambda p: p.mkdir(), "run.json is missing"),
        (lambda p: (p.mkdir(), (p / "run.json").write_text("{")), "cannot be read"),
    ],
)
def test_what_is_no_run_folder_is_named_in_one_line(tmp_path: Path, make: object, found: str) -> None:
    make(tmp_path / "x")  # type: ignore[operator]
    with pytest.raises(UsageError) as caught:
        build_report([tmp_path / "x"])
    message = str(caught.value)
    assert found in message and "tellapart report RUN" in message and "\n" not in message


def test_no_run_and_a_folder_as_output_are_refused(run: Path) -> None:
    with pytest.raises(UsageError, match="tellapart report RUN"):
        build_report([])
    with pytest.raises(UsageError, match="is a folder"):
        build_report([run], run)
    with pytest.raises(TellapartError, match="cannot be written"):
        build_report([run], run / "run.json" / "x.html")


def test_a_long_log_is_thinned_and_a_torn_last_line_forgiven(run: Path) -> None:
    lines = "".join(json.dumps(line) + "\n" for line in log_lines(100_000))
    (run / "log.jsonl").write_text(lines + '{"step": 100001, "lo')
    page = build_report([run])
    root = read_page(page)
    loss = root.all("figure")[0]
    assert "100,000 values drawn as 120 means" in loss.text
    assert len(loss.all("g", class_="hover")) == 120
    assert not root.all("section", class_="gaps")
    assert page.stat().st_size < 600_000
