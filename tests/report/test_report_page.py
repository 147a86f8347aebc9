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
    return [e.attributes["data-outcome"] for e in read_page(page).all("details", class_="set")]


def test_writes_report_html_into_the_run_folder_and_leaves_nothing_beside_it(run: Path) -> None:
    before = sorted(p.name for p in run.iterdir())
    page = build_report([run])
    assert page == run / "report.html"
    assert sorted(p.name for p in run.iterdir()) == sorted([*before, "report.html"])
    again = page.read_bytes()
    build_report([run])
    assert page.read_bytes() == again  # the same run gives the same page


def test_the_headline_says_what_rose_by_how_much_and_what_it_cost(run: Path) -> None:
    root = read_page(build_report([run]))
    (title,), (below,) = root.all("h1"), root.all(class_="statistics")
    assert title.text == (
        "R@1 among 10 look-alikes rose from 41.2 to 68.0; hallucination, CIDEr and 1 more measure got worse."
    )
    assert below.text == "+26.8, 95% interval +22.4 to +31.3, p < 0.001; n = 500, 10 candidates, chance 10.0"


def test_results_without_descriptions_are_shown_with_those_of_the_built_in_metrics(run: Path) -> None:
    page = build_report([run]).read_text(encoding="utf-8")
    bare = json.loads((run / "results.json").read_text())
    del bare["metrics"]  # as in files that other programs wrote
    write(run / "results.json", bare)
    assert build_report([run]).read_text(encoding="utf-8") == page


def test_sets_and_numbers_are_folded_below_the_highlights_and_runs_below_their_comparison(run: Path) -> None:
    root = read_page(build_report([run]))
    assert len(root.all("details", class_="set")) == 6 and len(root.all("article", class_="tell")) == 3
    assert not [e for e in root.all("details") if "open" in e.attributes]
    lone = json.loads((run / "results.json").read_text())
    lone["systems"], lone["pairs"] = {"after": lone["systems"]["after"]}, []
    write(run / "results.json", lone)
    opened = [e for e in read_page(build_report([run])).all("details") if "open" in e.attributes]
    assert [len(e.all("table")) for e in opened] == [1], "numbers that no list of changes has told are shown"


def test_better_worse_unclear_and_neutral_are_listed_apart(run: Path) -> None:
    root = read_page(build_report([run]))
    verdicts = ("better", "worse", "unclear", "neutral")
    listed = {v: [e.text for e in root.all("div", class_=v)[0].all(class_="what")] for v in verdicts}
    assert listed["worse"] == ["hallucination", "BLEU-4", "CIDEr"]
    assert listed["unclear"] == ["attribute precision", "repetition"]
    assert listed["neutral"] == ["length", "vocabulary"]
    assert "R@1 among 10 look-alikes, scorer “judge”" in listed["better"]
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
        "not computed because of missing requirements: recall@5.random100",
    ):
        assert part in text
    assert 'baseline = "running-mean"' in text  # the recipe, whole
    assert "train.steps 400" in text  # and in short


def test_the_gallery_marks_hits_misses_and_the_picture_taken_instead(run: Path) -> None:
    page = build_report([run])
    assert sets_of(page) == ["improved", "improved", "hit", "worse", "missed", "missed"]
    stored = json.loads((run / "gallery.json").read_text())["sets"]
    for element, source, picks in zip(read_page(page).all("details", class_="set"), stored, PICKS, strict=True):
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
                assert f"miss picked no. {number}: score {score} vs. {target_score} for the target" in answer.text
                assert (
                    f"picked by {name}" in pictures[number - 1].text.replace(" ,", ",")
                    or name in pictures[number - 1].text
                )


def test_each_word_has_its_worth_and_belief(run: Path) -> None:
    stored = json.loads((run / "gallery.json").read_text())
    assert not read_page(build_report([run])).all(class_="worded")
    answer = stored["sets"][0]["systems"]["after"]
    answer["caption"] = f"a red {NASTY}"
    answer["words"] = [[2, 5, 1.234, 0.871], [6, 7, -9.0, 2.0], [2, 400, 1.0, 0.5]]
    write(run / "gallery.json", stored)
    (words,) = read_page(build_report([run])).all(class_="worded")
    found = [item.text for item in words.all("li")]
    assert len(found) == 2, "one lies outside the caption"
    assert found[0].startswith("red") and "+1.2" in found[0] and "87%" in found[0]
    assert "\u22129.0" in found[1] and "100%" in found[1]
    widths = [bar.attributes["style"] for item in words.all("li") for bar in item.all("i")]
    assert widths == ["width: 41%", "width: 87%", "width: 100%", "width: 100%"]


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
    quote = root.all("details", class_="set")[0].all("blockquote")[0]
    assert quote.text == " ".join(NASTY.replace("\x00", "\ufffd").replace("\ud800", "\ufffd").split())
    assert quote.attributes["dir"] == "auto"


@pytest.mark.long
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


def test_pictures_come_before_numbers_and_the_contents_list_leads_to_each_part(run: Path) -> None:
    root = read_page(build_report([run]))
    kinds = [e.attributes["class"] for e in root.all("section")]
    assert kinds == ["highlights", "changes", "numbers", "gallery", "curves", "facts"]
    links = [e.attributes["href"] for e in root.all("nav")[0].all("a")]
    assert links == [f"#{e.attributes['id']}" for e in root.all("section")]
    (highlights,) = root.all("section", class_="highlights")
    titles = [e.all("h3")[0].text for e in highlights.all("article")]
    assert titles == ["Identified", "Identified, with false words", "No longer identified"]
    assert len(highlights.all("blockquote")) == 6, "before and after; people's captions are in the whole gallery"


def test_false_words_are_marked_and_right_claims_stand_beside_each_hit(run: Path) -> None:
    sets = read_page(build_report([run])).all("details", class_="set")
    for number, one in enumerate(sets):
        before, after, human = one.all(class_="answer")
        assert [e.text for e in after.all("mark")] == (["left above"] if number % 2 else [])
        assert not before.all("mark") and not human.all("mark")
        told = (
            "4 of 5 claims correct: “left above” is not true in the picture" if number % 2 else "5 of 5 claims correct"
        )
        assert after.all("p", class_="claims")[0].text == told and not human.all("p", class_="claims")
    stored = json.loads((run / "gallery.json").read_text())
    stored["sets"][0]["systems"]["after"]["claims"]["false"] = [
        [0, 10**6, "x"],
        [-3, 2, "x"],
        [0, 1, '"><b>'],
        [0, 1, "x"],
    ]
    write(run / "gallery.json", stored)
    after = read_page(build_report([run])).all("details", class_="set")[0].all(class_="answer")[1]
    assert [(e.text, e.attributes["title"]) for e in after.all("mark")] == [("a", '"><b>')]


def test_the_filters_add_up(run: Path) -> None:
    stored = json.loads((run / "gallery.json").read_text())
    stored["sets"][5]["systems"]["after"] |= {"picked": None, "scores": {}}
    write(run / "gallery.json", stored)
    buttons = read_page(build_report([run])).all("section", class_="gallery")[0].all("button")
    counts = {b.attributes["value"]: int(b.all("i")[0].text) for b in buttons}
    assert counts == {"all": 6, "improved": 2, "worse": 1, "missed": 1, "hit": 1, "open": 1}
    assert sum(counts.values()) == 2 * counts["all"]


def test_every_recall_has_its_n_its_candidates_and_chance_beside_it(run: Path) -> None:
    root = read_page(build_report([run]))
    rows = root.all("section", class_="numbers")[0].all("th", scope="row")
    recalls = [e for e in rows if e.text.startswith(("R@", "picked by an exact listener"))]
    assert len(recalls) == 4
    for row in recalls:
        size, chance = ("100", "1.0") if "among 100 " in row.text else ("10", "10.0")
        assert f"n = 500, {size} candidates, chance {chance}" in row.text
    changed = [e.text for e in root.all("section", class_="changes")[0].all("li") if "R@1" in e.text]
    assert len(changed) == 3 and all("candidates, chance" in text for text in changed)


def test_runs_of_other_pictures_or_scorers_are_not_ranked(tmp_path: Path) -> None:
    """Three clips by scorer A stood above six photos by scorer B."""
    clips, photos, more = (make_run(tmp_path / n, name=n, shift=s) for n, s in (("clips", 9), ("photos", 0), ("m", 2)))
    for folder, n, scorer in ((clips, 3, "A@1"), (photos, 6, "B@2"), (more, 6, "B@2")):
        stored = json.loads((folder / "results.json").read_text())
        signatures = {key: f"{key}|scorer:{scorer}|bootstrap:1000@{n}|tellapart:0.2.0" for key in METRICS}
        write(folder / "results.json", stored | {"signatures": signatures, "pictures": {"n": n, "ids": f"{n:016d}"}})
    title = read_page(build_report([clips, photos], tmp_path / "p.html")).all("h1")[0].text
    assert title == (
        "R@1 among look-alikes, not comparable: “clips” and “photos” differ in the pictures (3 vs. 6), "
        "the scorer (A@1 vs. B@2)."
    )
    root = read_page(build_report([clips, photos, more], tmp_path / "p.html"))
    title = root.all("h1")[0].text
    assert title.startswith("Of 2 runs, “m” has the highest R@1 among 10 look-alikes: 70.0 vs. 68.0 for “photos”")
    assert title.endswith("not comparable with these: “clips”.")
    (table,) = root.all("section", class_="overview")
    rows = table.all("tbody")[0].all("tr")
    assert [len(row.all(class_="unlike")) for row in rows] == [6, 0, 0]
    assert "R@1 among 10 look-alikes: “clips” vs. “photos”, which differ in the pictures (6 vs. 3)" in table.text


def test_the_page_says_the_command_that_makes_it_again(run: Path, tmp_path: Path) -> None:
    change(run / "run.json", command=["tellapart", "train", "my recipe.toml"])
    where = tmp_path / "my page.html"
    footer, command = (
        read_page(build_report([run], where)).all(tag, **{"class_": name} if name else {})[0].text
        for tag, name in (("footer", ""), ("pre", "command"))
    )
    assert footer.endswith(f"tellapart report {run} -o '{where}'") and command == "tellapart train 'my recipe.toml'"
    assert read_page(build_report([run])).all("footer")[0].text.endswith(f"tellapart report {run}")


def test_a_recipe_in_short_is_no_python(run: Path) -> None:
    (run / "recipe.toml").write_text(
        'name = "x"\n[objective]\nrewards = [{kind = "cider", weight = 0.5, scorers = []}, {kind = "bleu"}]\n'
        "[training]\nlearning_rate = 1e-4\nbetas = [0.9, 0.999]\nbatch_size = 4\nwhiten = true\n"
    )
    (summary,) = read_page(build_report([run])).all("p", class_="recipe")
    assert "objective.rewards cider, weight 0.5; bleu" in summary.text
    assert not set("[]{}'") & set(summary.text)


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
    assert root.all("h1")[0].text == "This run has not been evaluated, so there are no results to compare."
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
    assert "recipe.toml is not valid TOML (" in text
    assert "2 picture(s) in the gallery cannot be read" in text and names[0] in text and names[1] in text


def test_several_runs_share_a_page_with_one_table(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    a = make_run(tmp_path / "a", name="long", shift=6.0)
    b = make_run(tmp_path / "b", name="short", shift=-9.0)
    page = build_report([b, a])
    assert page.resolve() == tmp_path / "report.html"
    root = read_page(page)
    assert (
        root.all("h1")[0].text == "Of 2 runs, “long” has the highest R@1 among 10 look-alikes: 74.0 vs. 59.0 for "
        "“short”."
    )
    rows = root.all("section", class_="overview")[0].all("tbody")[0].all("tr")
    assert [row.all("a")[0].text for row in rows] == ["short", "long"]
    labels = [cell.attributes["data-label"] for cell in rows[0].all("td")]  # what stands there on a narrow screen
    assert labels[1] == "R@1 among 10 look-alikes, n = 500, 10 candidates, chance 10.0"
    assert [row.all("td")[1].all(class_="value")[0].text for row in rows] == ["59.0", "74.0"]
    for row, section in zip(rows, root.all("details", class_="run"), strict=True):
        assert row.all("a")[0].attributes["href"] == f"#{section.attributes['id']}"
        assert section.all("h2")[0].text.startswith("R@1 among 10 look-alikes rose from 41.2")
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
    for element, source in zip(read_page(build_report([run])).all("details", class_="set"), stored, strict=True):
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


@pytest.mark.long
def test_a_long_log_is_thinned_and_a_torn_last_line_forgiven(run: Path) -> None:
    lines = "".join(json.dumps(line) + "\n" for line in log_lines(100_000))
    (run / "log.jsonl").write_text(lines + '{"step": 100001, "lo')
    page = build_report([run])
    root = read_page(page)
    loss = root.all("figure")[0]
    assert "100,000 values averaged to 120 points; the" in loss.text
    assert len(loss.all("g", class_="hover")) == 120
    assert not root.all("section", class_="gaps")
    assert page.stat().st_size < 600_000
