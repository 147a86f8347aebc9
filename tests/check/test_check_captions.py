"""`tellapart check`: every kind of damage is found with its rate, and clean captions raise no alarm."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from command_line import Cli
from damaged_flickr8k import PICTURES, SHARES, make
from real_data import DATA

from tellapart.check.captions import empty, loop, rows_of
from tellapart.check.kinds import DEFECTS
from tellapart.check.result import Check
from tellapart.check.run import check_captions
from tellapart.data import open_data
from tellapart.data.caption_file import CaptionFile
from tellapart.data.caption_files import read_caption_file, read_reference_file
from tellapart.scenes import Scenes

needs_data = pytest.mark.skipif(not DATA.is_dir(), reason="needs the sample data")


def checked(folder: Path, **more: object) -> Check:
    file = read_caption_file(folder / "captions.jsonl")
    references = read_reference_file(folder / "references.jsonl")
    return check_captions(file, open_data(str(folder / "pictures")), references=references, **more)  # type: ignore[arg-type]


@pytest.mark.data
@pytest.mark.long
@needs_data
def test_seventeen_kinds_of_damage_are_found_with_their_rates(tmp_path: Path) -> None:
    made = make(DATA / "flickr8k", tmp_path, SHARES, seed=1)
    found = checked(tmp_path)
    # Captions of other pictures, as of a stale cache, are mispaired, too.
    assert set(found.alarms()) - {"mispaired"} == set(SHARES)
    for kind, ids in made.items():
        got = {one.id for one in found.found[kind]}
        # A text that was cut behind a whole phrase cannot be told from a short one.
        assert len(got & ids) >= (0.6 if kind == "cut" else 0.97) * len(ids), kind
        # The picture that a caption was copied from shares it as much as the copy does.
        expected = {"shared": 2, "near": 2}.get(kind, 1) * len(ids) + (len(made["16-bit"]) if kind == "suffix" else 0)
        assert found.count(kind) == pytest.approx(expected, rel=0.25), kind


@pytest.mark.data
@pytest.mark.long
@needs_data
def test_one_per_cent_is_an_alarm_and_clean_captions_are_none(tmp_path: Path) -> None:
    shares = {kind: 0.012 if kind == "cut" else 0.01 for kind in SHARES}
    make(DATA / "flickr8k", tmp_path / "damaged", shares, seed=2)
    make(DATA / "flickr8k", tmp_path / "clean", {}, seed=2)
    assert set(checked(tmp_path / "damaged").alarms()) - {"mispaired"} == set(SHARES)
    assert checked(tmp_path / "clean").alarms() == []


def write(folder: Path, captions: dict[str, str]) -> Path:
    """A caption file, and a picture of a scene for every id."""
    (folder / "pictures").mkdir(parents=True)
    for name, scene in zip(captions, Scenes(len(captions), split="test", seed=1), strict=True):
        scene.image().save(folder / "pictures" / name)
    lines = [json.dumps({"image": name, "caption": text}) + "\n" for name, text in captions.items()]
    (folder / "captions.jsonl").write_text("".join(lines), encoding="utf-8")
    return folder / "captions.jsonl"


GOOD = {f"{n}.png": f"A {colour} square left of a star." for n, colour in enumerate(["red", "blue", "green", "pink"])}


def test_what_each_caption_shows() -> None:
    texts = {
        "empty": "...",
        "refusal": "I'm unable to view this picture.",
        "loop": "a dog on a dog on a dog on a dog on",
        "template": "The image depicts a dog.",
        "language": "Der Hund sitzt auf einer Bank.",
        "encoding": "a caf\u00c3\u00a9 by the sea",
        "fine": "a man looks at an image of the sea, and a big, big dog.",
    }
    with_ids = {name: [text] for name, text in texts.items()}

    found = check_captions(CaptionFile("captions", with_ids), None)
    for kind in texts:
        assert [one.kind for own in found.found.values() for one in own if one.id == kind] == (
            [] if kind == "fine" else [kind]
        )
    (row,) = rows_of({"x": ["he said no no no to it"]})
    assert loop(row) == "“no” 3 times"


def test_what_programs_write_of_a_missing_value_says_nothing() -> None:
    rows = {"a": ["nan"], "b": ["None"], "c": ["N/A"], "d": [" "], "e": ["a nan bread"], "f": ["none of them"]}
    assert [bool(empty(row)) for row in rows_of(rows)] == [True, True, True, True, False, False]


def test_another_language_may_be_expected() -> None:

    german = CaptionFile("captions", {"1": ["Der Hund sitzt auf einer Bank."], "2": ["The dog is on the bench."]})
    assert [one.id for one in check_captions(german, None, language_name="de").found["language"]] == ["2"]
    chinese = check_captions(CaptionFile("captions", {"1": ["一只狗在草地上奔跑。"]}), None, language_name="zh")
    assert chinese.found["language"] == [] and "language" in chinese.skipped
    assert "language" not in chinese.to_json()["kinds"]
    assert "language: not checked, because 'zh' is not one of en, de, fr, es, it, pt, nl" in chinese.notes


@pytest.mark.parametrize("code", ["DE", "de_DE", "de-AT"])
def test_a_language_is_recognised_in_any_spelling_of_its_code(code: str) -> None:
    texts = CaptionFile("captions", {"1": ["Der Hund sitzt auf einer Bank."], "2": ["The dog is on the bench."]})
    assert [one.id for one in check_captions(texts, None, language_name=code).found["language"]] == ["2"]


@pytest.mark.parametrize("name", ["german", "english", "d", "de AT", ""])
def test_a_name_that_is_no_language_code_is_an_error(cli: Cli, tmp_path: Path, name: str) -> None:
    done = cli("check", str(write(tmp_path, GOOD)), "--language", name)
    assert done.status == 2
    assert done.line == f"--language {name}: expected a language code such as en, de, fr, es, it, pt or nl"


def test_an_example_is_an_id_and_what_shows_the_defect(tmp_path: Path) -> None:
    write(tmp_path, GOOD)
    found = check_captions(CaptionFile("captions", {"1.png": [""]}), open_data(str(tmp_path / "pictures")))
    examples = {kind.name: example for kind, *_, example in found.rows()}
    assert examples["no caption"] == "0.png" and examples["empty"] == "1.png: contains no words"


def test_every_caption_counts_once(tmp_path: Path) -> None:
    """Also equal captions of one picture, and all captions of a picture that is not there."""
    write(tmp_path, GOOD)
    texts = {"1.png": ["A red circle."] * 3, "2.png": ["", ""], "x.png": ["A blue square.", "A green star."]}
    found = check_captions(CaptionFile("captions", texts), open_data(str(tmp_path / "pictures")))
    assert {kind: found.count(kind) for kind in ("repeated", "empty", "no picture", "no caption")} == {
        "repeated": 2, "empty": 2, "no picture": 2, "no caption": len(GOOD) - 2,
    }  # fmt: skip
    assert found.rate("repeated") == 2 / 7


def test_the_command_prints_writes_and_fails(cli: Cli, tmp_path: Path) -> None:
    captions = write(tmp_path, GOOD | {"4.png": "", "5.png": "A red square left of a star."})
    (tmp_path / "pictures" / "1.png").write_bytes(b"\x89PNG\r\n\x1a\n and no more")
    page = tmp_path / "check.html"
    fine = cli("check", str(captions), str(tmp_path / "pictures"), "--json", "--report", str(page))
    assert fine.status == 0
    found = json.loads(fine.out)
    assert found["kinds"]["empty"] == {"count": 1, "rate": 1 / 6, "level": 0.001, "alarm": True, "of": "caption"}
    assert found["kinds"]["shared"]["count"] == 2 and found["kinds"]["unreadable"]["count"] == 1
    assert found["facts"]["mean number of other pictures with the same caption"] == pytest.approx(2 / 5)
    assert "leaked" in found["skipped"] and "leaked" not in found["kinds"]
    text = page.read_text(encoding="utf-8")
    assert "cannot be read" in text and "is empty" in text and "<script" not in text
    failed = cli("check", str(captions), str(tmp_path / "pictures"), "--fail-on", "empty", "--fail-on", "shared=40")
    assert failed.status == 1 and "the threshold of --fail-on is exceeded: empty 16.67%" in failed.err
    assert "shared" not in failed.err
    assert cli("check", str(captions), "--fail-on", "refusal").status == 0
    wrong = cli("check", str(captions), "--fail-on", "emty")
    assert wrong.status == 2 and "did you mean 'empty'" in wrong.err
    for kind, argument in (("leaked", "--references"), ("blank=1", "PICTURES"), ("language", "--language, one of")):
        ignored = cli("check", str(captions), "--fail-on", kind, "--language", "zh")
        assert ignored.status == 2 and f"--fail-on {kind}: this kind is not checked" in ignored.err
        assert f"because it requires {argument}" in ignored.err and not ignored.out


class CountedId(str):
    """An id that counts how often ids are hashed and compared."""

    used = 0

    def __hash__(self) -> int:
        CountedId.used += 1
        return super().__hash__()

    def __eq__(self, other: object) -> bool:
        CountedId.used += 1
        return super().__eq__(other)

    def __ne__(self, other: object) -> bool:
        return not self == other


@pytest.mark.parametrize("captions", [1, 2])
def test_work_grows_in_proportion_where_pictures_share_captions(captions: int) -> None:
    """`captions` texts that differ by one word, each of them the caption of many pictures, and a few of their own."""

    def work(pictures: int) -> int:
        CountedId.used = 0
        texts = {
            CountedId(n): [f"a {'small' if n % captions else 'large'} dog runs over the wet grass"]
            for n in range(pictures)
        }
        texts |= {CountedId(f"own {n}"): [f"a dog runs over the wet grass to {n} other"] for n in range(20)}
        found = check_captions(CaptionFile("captions", dict(texts)), None)
        assert found.count("shared") == pictures and len(found.worst()) == 50
        return CountedId.used

    assert work(1600) < 2.5 * work(800)


def test_markup_in_captions_is_text_on_the_page(cli: Cli, tmp_path: Path) -> None:
    captions = write(tmp_path, GOOD | {"4.png": "<script>alert(1)</script> &amp; I cannot help with that"})
    page = tmp_path / "check.html"
    assert cli("check", str(captions), str(tmp_path / "pictures"), "--report", str(page)).status == 0
    assert "<script" not in page.read_text(encoding="utf-8")


@pytest.mark.parametrize("kind", PICTURES)
def test_a_picture_that_programs_read_differently(kind: str, tmp_path: Path) -> None:
    captions = write(tmp_path, {name.replace("png", "jpg"): text for name, text in GOOD.items()})
    for path in list((tmp_path / "pictures").iterdir()):
        if path.name == "2.jpg":
            original = path.rename(tmp_path / "original.jpg")
            PICTURES[kind](original, path)
    found = check_captions(read_caption_file(captions), open_data(str(tmp_path / "pictures")))
    assert [one.id for one in found.found[kind]] == ["2.jpg"]


def test_a_scorer_finds_captions_of_other_pictures() -> None:
    from tellapart.scorers import load_scorer

    data = open_data("scenes:plain?n=60&split=test")
    texts = {item.id: [item.truth.description] for item in data}
    ids = list(texts)
    scorer = load_scorer("scenes", "cpu")
    clean = check_captions(CaptionFile("captions", texts), data, scorer=scorer)
    assert not {"misfit", "shifted"} & set(clean.alarms())
    moved = texts | {one: texts[other] for one, other in zip(ids[:20], ids[30:50], strict=True)}
    found = check_captions(CaptionFile("captions", moved), data, scorer=scorer)
    assert "misfit" in found.alarms() and {one.id for one in found.found["misfit"]} <= set(ids[:20])
    assert found.facts["estimated shuffled pairs, %"] == pytest.approx(33, abs=15)
    stale = dict(zip(ids[1::2], ids[::2], strict=True))
    cached = CaptionFile("captions", texts | {one: texts[before] for one, before in stale.items()})
    shifted = {one.id for one in check_captions(cached, data, scorer=scorer).found["shifted"]}
    assert len(shifted & set(stale)) > 0.3 * len(stale) and len(shifted - set(stale)) <= 2


def test_a_captioner_doubts_words_of_other_pictures() -> None:
    from tellapart.captioners import load_captioner

    data = open_data("scenes:plain?n=33&split=test")  # one more than a batch
    texts = {item.id: [item.references[0]] for item in data}
    ids = list(texts)
    captioner = load_captioner("scenes", "cpu", "fp32")
    clean = check_captions(CaptionFile("captions", texts), data, captioner=captioner)
    moved = dict(zip(ids, [*texts.values()][5:] + [*texts.values()][:5], strict=True))
    wrong = check_captions(CaptionFile("captions", moved), data, captioner=captioner)
    fact = "doubtful words, %"
    assert wrong.facts[fact] > 2 * clean.facts[fact] and wrong.count("doubtful") > clean.count("doubtful")
    assert "doubtful" in wrong.alarms()
    assert len({one.id for one in wrong.found["doubtful"]}) == wrong.count("doubtful")


def test_models_need_pictures(cli: Cli, tmp_path: Path) -> None:
    captions = write(tmp_path, GOOD)
    done = cli("check", str(captions), "--scorer", "scenes")
    assert done.status == 2 and "requires pictures" in done.err
    assert set(DEFECTS) >= set(SHARES)
