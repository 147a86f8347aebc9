"""Captions are paired with the references of their own pictures, or the pairing is refused or doubted."""

from __future__ import annotations

import json
import random
from pathlib import Path

import pytest
from command_line import Cli
from PIL import Image
from real_data import DATA

from tellapart.check.pairing import measure_fit, misfits
from tellapart.check.run import check_captions
from tellapart.data.caption_file import CaptionFile
from tellapart.data.caption_files import read_caption_file, read_reference_file
from tellapart.errors import UsageError
from tellapart.evaluation.evaluate import evaluate
from tellapart.evaluation.options import EvalOptions
from tellapart.evaluation.run_eval import run_eval

THINGS = ("dog", "cat", "bus", "boat", "horse", "kite", "pizza", "train", "clock", "bed", "wave", "truck")
PLACES = ("on the grass", "in the snow", "by the sea", "in a kitchen", "on a street")
PICTURES = [f"{thing} {place}" for thing in THINGS for place in PLACES]
SAID = {f"p{n}": f"a {text}" for n, text in enumerate(PICTURES)}
TOLD = {f"p{n}": [f"there is a {text}", f"one {text.split()[0]} outside"] for n, text in enumerate(PICTURES)}


def mixed(captions: dict[str, str]) -> dict[str, str]:
    texts = list(captions.values())
    random.Random(3).shuffle(texts)
    return dict(zip(captions, texts, strict=True))


def test_own_captions_fit_and_shuffled_ones_do_not() -> None:
    fit = measure_fit(list(SAID.values()), list(TOLD.values()))
    assert fit is not None and not fit.doubtful and (fit.p, fit.misfits) == (0.005, 0)
    shuffled = measure_fit(list(mixed(SAID).values()), list(TOLD.values()))
    assert shuffled is not None and shuffled.doubtful and shuffled.p > 0.05
    few, alike = list(SAID.values())[:19], ["a dog"] * len(TOLD)
    assert measure_fit(few, list(TOLD.values())[:19]) is None and measure_fit(alike, list(TOLD.values())) is None
    assert misfits(list(SAID.values()), range(len(SAID)), list(TOLD.values())) == []
    assert misfits(few, range(19), list(TOLD.values())[:19]) == []


def test_scripts_without_blanks_are_compared_by_their_characters() -> None:
    said = [f"一只{a}在{b}上奔跑" for a in "狗猫马牛羊" for b in "草雪沙石冰"]
    told = [
        [f"有{a}和{b}"]
        for a in ("一只狗", "一只猫", "一匹马", "一头牛", "一群羊")
        for b in ("草上", "雪上", "沙上", "石上", "冰上")
    ]
    fit = measure_fit(said, told)
    assert fit is not None and not fit.doubtful


def test_eval_says_where_captions_are_those_of_other_pictures() -> None:
    found = evaluate({"own": SAID, "shuffled": mixed(SAID)}, references=TOLD, metrics=["bleu1"], resamples=5)
    [note] = found.notes
    assert note.startswith("shuffled: ") and "than with their own" in note and "same order" in note


def test_check_finds_captions_of_other_pictures() -> None:
    references = CaptionFile("references", TOLD)
    clean = check_captions(CaptionFile("c", {key: [text] for key, text in SAID.items()}), None, references=references)
    assert clean.count("mispaired") == 0
    mixed_up = {key: [text] for key, text in mixed(SAID).items()}
    found = check_captions(CaptionFile("c", mixed_up), None, references=references)
    assert "mispaired" in found.alarms({"mispaired": None}) and 0.3 < found.rate("mispaired") < 0.7
    assert found.found["mispaired"][0].detail.startswith("a reference: there is a ")


@pytest.mark.parametrize("bare", ["captions", "references"])
def test_every_command_refuses_lines_beside_ids(cli: Cli, tmp_path: Path, bare: str) -> None:
    with_ids = "".join(json.dumps({"id": key, "caption": text}) + "\n" for key, text in SAID.items())
    lines = "".join(f"{text}\n" for text in SAID.values())
    for name in ("captions", "references"):
        (tmp_path / f"{name}.txt").write_text(lines if name == bare else with_ids)
    captions, references = tmp_path / "captions.txt", tmp_path / "references.txt"
    for command in (
        ["eval", "--captions", captions, "--references", references, "--metrics", "bleu1"],
        ["eval", "--captions", captions, "--references", references, "--metrics", "bleu1", "--allow-missing"],
        ["check", captions, "--references", references],
        ["eval", "--captions", captions, "--captions", references, "--metrics", "length"],
        ["eval", "--captions", tmp_path / f"{'captions' if bare == 'references' else 'references'}.txt", "--queries",
         tmp_path / f"{bare}.txt", "--metrics", "search_bm25_r1"],
    ):  # fmt: skip
        done = cli(*command)
        assert done.status == 2 and "have no ids" in done.line and "paired by position" in done.line, command


@pytest.mark.data
@pytest.mark.skipif(not DATA.is_dir(), reason=f"{DATA} is absent; set TELLAPART_DATA")
def test_published_captions_with_ids_are_not_scored_against_plain_lines() -> None:
    published = DATA / "published"
    lines = published / "references_coco_karpathy_test.txt"
    with pytest.raises(UsageError, match=r"references.*: the 5,000 entries have no ids"):
        run_eval(EvalOptions([published / "capenrich_coco.json"], lines, metrics=["cider"]))
    captions = {key: texts[0] for key, texts in read_caption_file(published / "clipcap_coco_on_coco.txt").texts.items()}
    shifted = dict(zip(captions, [*list(captions.values())[1:], captions["1"]], strict=True))
    references = list(read_reference_file(lines).texts.values())
    for texts, doubtful in ((captions, False), (shifted, True), (mixed(captions), True)):
        fit = measure_fit(list(texts.values()), references)
        assert fit is not None and fit.doubtful is doubtful


def test_a_metric_without_references_names_what_the_data_left_out(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], cli: Cli
) -> None:
    """The captions of the data may be those that were skipped."""
    Image.new("RGB", (4, 4)).save(tmp_path / "a.png")
    rows = ['{"image": "a.png", "id": "a"}', '{"image": "gone.png", "id": "b", "caption": "a dog"}']
    (tmp_path / "t.jsonl").write_text("\n".join(rows))
    (tmp_path / "c.json").write_text('{"a": "a dog"}')
    done = cli("eval", "--captions", tmp_path / "c.json", "--data", tmp_path / "t.jsonl", "--metrics", "cider")
    assert done.status == 2 and "metric 'cider' requires references" in done.err
    assert "1 of 2 could not be opened and were skipped: " in done.err and "gone.png (no such file)" in done.err
