"""Captions that are in a file and do not count: empty references, and what VizWiz marks; counted at every border."""

from __future__ import annotations

import csv
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import datasets
import numpy as np
import pyarrow
import pyarrow.parquet
import pytest
from PIL import Image
from reader_help import draw, png, tar

from tellapart.compat import pycocoevalcap as compat
from tellapart.data import open_data
from tellapart.data.caption_files import read_caption_file, read_reference_file
from tellapart.evaluation.evaluate import evaluate
from tellapart.evaluation.matching import match_files
from tellapart.evaluation.options import EvalOptions
from tellapart.evaluation.run_eval import run_eval
from tellapart.metrics import bleu

CAPTIONS = {"a.png": ["a red can", " ", "a can on a table", ""], "b.png": [""]}
TRUE = {"a.png": ("a red can", "a can on a table"), "b.png": ()}


def rows(folder: Path) -> list[dict[str, Any]]:
    return [{"file_name": name, "caption": text} for name, texts in CAPTIONS.items() for text in texts]


def write_csv(folder: Path) -> str:
    with (folder / "t.csv").open("w", newline="") as file:
        table = csv.DictWriter(file, ["file_name", "caption"])
        table.writeheader()
        table.writerows(rows(folder))
    return str(folder / "t.csv")


def write_parquet(folder: Path) -> str:
    columns = {"file_name": list(CAPTIONS), "captions": list(CAPTIONS.values())}
    pyarrow.parquet.write_table(pyarrow.table(columns), folder / "t.parquet")
    return str(folder / "t.parquet")


def write_jsonl(folder: Path) -> str:
    lines = [json.dumps({"image": name, "captions": texts}) for name, texts in CAPTIONS.items()]
    (folder / "t.jsonl").write_text("\n".join(lines))
    return str(folder / "t.jsonl")


def write_list(folder: Path) -> str:
    (folder / "t.json").write_text(json.dumps(rows(folder)))
    return str(folder / "t.json")


def write_coco(folder: Path) -> str:
    numbers = {name: place for place, name in enumerate(CAPTIONS)}
    images = [{"id": place, "file_name": name} for name, place in numbers.items()]
    notes = [{"image_id": numbers[row["file_name"]], "caption": row["caption"]} for row in rows(folder)]
    (folder / "t.json").write_text(json.dumps({"images": images, "annotations": notes}))
    return f"coco:{folder / 't.json'}"


def write_karpathy(folder: Path) -> str:
    images = [{"filename": name, "sentences": [{"raw": text} for text in texts]} for name, texts in CAPTIONS.items()]
    (folder / "t.json").write_text(json.dumps({"images": images}))
    return f"karpathy:{folder / 't.json'}"


def write_metadata(folder: Path) -> str:
    (folder / "metadata.jsonl").write_text("\n".join(json.dumps(row) for row in rows(folder)))
    return str(folder)


def write_saved(folder: Path) -> str:
    columns = {"image": list(CAPTIONS), "captions": list(CAPTIONS.values())}
    datasets.Dataset.from_dict(columns).save_to_disk(folder / "saved")
    return f"hf:{folder / 'saved'}?images={folder}"


WRITERS = [
    *(write_csv, write_parquet, write_jsonl, write_list, write_coco, write_karpathy, write_metadata, write_saved),
]


@pytest.mark.parametrize("write", WRITERS)
def test_data_sets_count_empty_references(
    write: Callable[[Path], str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for name in CAPTIONS:
        draw(tmp_path / name)
    spec = write(tmp_path)
    dataset = open_data(spec)
    assert {item.picture.name.rpartition("/")[2]: item.references for item in dataset} == TRUE
    assert "ignoring 3 empty captions; the first is in" in capsys.readouterr().err
    assert [item.references for item in dataset] == list(TRUE.values())  # rows that are read again are not counted
    assert not capsys.readouterr().err


def test_a_rejected_caption_may_be_a_file_name(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Spam in VizWiz; it is not used, so that it is no reason to refuse the picture or the file."""
    draw(tmp_path / "a.png")
    spam = {"image_id": 1, "caption": "IMG_0012.jpg", "is_rejected": True}
    notes = [spam, {"image_id": 1, "caption": "a can", "is_rejected": False}]
    (tmp_path / "t.json").write_text(json.dumps({"images": [{"id": 1, "file_name": "a.png"}], "annotations": notes}))
    record = {"image": "a.png", "captions": ["IMG_0012.jpg", "a can"], "is_rejected": [1, 0]}
    (tmp_path / "t.jsonl").write_text(json.dumps(record))
    for spec in (f"coco:{tmp_path / 't.json'}", str(tmp_path / "t.jsonl")):
        assert [item.references for item in open_data(spec)] == [("a can",)]
        assert "ignoring 1 captions, as VizWiz does (is_rejected: 1)" in capsys.readouterr().err


def test_empty_text_files_beside_pictures_count(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for name in ("a.png", "b.png", "c.png"):
        draw(tmp_path / name)
    (tmp_path / "a.txt").write_text("a dog\n\nthe dog\n")  # a blank line is no caption, not an empty one
    (tmp_path / "b.txt").write_text("\n")
    assert [item.references for item in open_data(str(tmp_path))] == [("a dog", "the dog"), (), ()]
    said = capsys.readouterr().err
    assert "ignoring 1 empty captions; the first is in" in said
    shard = tar(tmp_path / "s.tar", ("0.png", png()), ("0.txt", b"\n"), ("1.png", png()), ("1.txt", b"a dog\n\n"))
    assert [item.references for item in open_data(str(shard))] == [(), ("a dog",)]
    assert "ignoring 1 empty captions" in capsys.readouterr().err


def test_references_without_a_word_are_empty(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Tokenizers leave nothing of them, so that they lower CIDEr as empty ones do."""
    draw(tmp_path / "a.png")
    texts = ["a dog", ".", " \u200b ", "…", "🐕", "3"]
    (tmp_path / "t.jsonl").write_text(json.dumps({"image": "a.png", "captions": texts}) + "\n")
    assert open_data(str(tmp_path / "t.jsonl"))[0].references == ("a dog", "🐕", "3")
    assert "ignoring 3 empty captions" in capsys.readouterr().err
    (tmp_path / "r.json").write_text(json.dumps({"a": texts, "b": ["a cat"]}))
    (tmp_path / "c.json").write_text(json.dumps({"a": "a dog", "b": "a cat"}))
    _, references, notes = read_and_match(tmp_path / "c.json", tmp_path / "r.json")
    assert references == {"a": ["a dog", "🐕", "3"], "b": ["a cat"]}
    assert any("ignoring 3 empty references" in note for note in notes)


def read_and_match(captions: Path, references: Path) -> Any:
    return match_files({"c": read_caption_file(captions)}, read_reference_file(references), None, False, 0.0)


@pytest.mark.parametrize("write", [write_csv, write_parquet, write_jsonl])
def test_texts_for_missing_values_are_no_captions_and_named(
    write: Callable[[Path], str], tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """``str(nan)`` and ``na_rep`` of pandas, Excel's ``#N/A``, which pandas reads as missing, too."""
    texts = {"a.png": ["NA", "a dog"], "b.png": ["nan"], "c.png": ["a null sign"], "d.png": ["#N/A"]}
    monkeypatch.setitem(globals(), "CAPTIONS", texts)
    for name in texts:
        draw(tmp_path / name)
    spec = write(tmp_path)
    assert [item.references for item in open_data(spec)] == [("a dog",), (), ("a null sign",), ()]
    assert "ignoring 3 captions that stand for a missing value ('NA', 'nan', 'null', …)" in capsys.readouterr().err
    references = read_reference_file(spec).texts
    assert [[text for text in own if text] for own in references.values()] == [["a dog"], [], ["a null sign"], []]


FLAGGED = [
    ("a.png", "a red can", False, False),
    ("a.png", "buy my pills", True, False),
    ("a.png", "Quality issues are too severe to recognize visual content.", False, True),
    ("b.png", "nothing", True, False),
]
NAMES = ("file_name", "caption", "is_rejected", "is_precanned")
BY_PICTURE = [
    {
        "image": name,
        "caption": [row[1] for row in FLAGGED if row[0] == name],
        "is_rejected": [row[2] for row in FLAGGED if row[0] == name],
        "is_precanned": [row[3] for row in FLAGGED if row[0] == name],
    }
    for name in ("a.png", "b.png")
]


def flagged_csv(folder: Path, tool: str) -> str:
    written = {"pandas": str, "numbers": lambda flag: f"{float(flag)}", "capitals": lambda flag: str(flag).upper()}[
        tool
    ]
    with (folder / "t.csv").open("w", newline="") as file:
        table = csv.writer(file)
        table.writerow(NAMES)
        table.writerows((name, text, written(spam), written(ready)) for name, text, spam, ready in FLAGGED)
    return str(folder / "t.csv")


def flagged_lists(folder: Path) -> str:
    """A picture a row, lists as pandas writes them."""
    with (folder / "t.csv").open("w", newline="") as file:
        table = csv.DictWriter(file, list(BY_PICTURE[0]))
        table.writeheader()
        table.writerows(BY_PICTURE)
    return str(folder / "t.csv")


def flagged_parquet(folder: Path, by_picture: bool) -> str:
    table = [dict(zip(NAMES, row, strict=True)) for row in FLAGGED]
    pyarrow.parquet.write_table(pyarrow.Table.from_pylist(BY_PICTURE if by_picture else table), folder / "t.parquet")
    return str(folder / "t.parquet")


def flagged_hub(folder: Path) -> str:
    """As a hub data set is: pictures in the rows, lists beside them."""
    columns = {key: [row[key] for row in BY_PICTURE] for key in BY_PICTURE[0]}
    columns["image"] = [Image.open(folder / name) for name in columns["image"]]
    datasets.Dataset.from_dict(columns).save_to_disk(folder / "saved")
    return f"hf:{folder / 'saved'}"


def flagged_packed(folder: Path) -> str:
    packed = [{**row, "image": {"bytes": png(), "path": row["image"]}} for row in BY_PICTURE]
    pyarrow.parquet.write_table(pyarrow.Table.from_pylist(packed), folder / "t.parquet")
    return str(folder / "t.parquet")


def flagged_tar(folder: Path) -> str:
    members = [(f"{row['image'][0]}.json", json.dumps(row).encode()) for row in BY_PICTURE]
    pictures = [(str(row["image"]), png()) for row in BY_PICTURE]
    return str(tar(folder / "t.tar", *sorted([*members, *pictures])))


FLAGGED_WRITERS: dict[str, Callable[[Path], str]] = {
    "CSV": lambda folder: flagged_csv(folder, "pandas"),
    "CSV of numbers": lambda folder: flagged_csv(folder, "numbers"),
    "CSV in capitals": lambda folder: flagged_csv(folder, "capitals"),
    "CSV of lists": flagged_lists,
    "Parquet": lambda folder: flagged_parquet(folder, by_picture=False),
    "Parquet of lists": lambda folder: flagged_parquet(folder, by_picture=True),
    "packed Parquet": flagged_packed,
    "hub": flagged_hub,
    "WebDataset": flagged_tar,
}


@pytest.mark.parametrize("layout", FLAGGED_WRITERS)
def test_rows_that_vizwiz_marks_are_ignored(layout: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for name in ("a.png", "b.png"):
        draw(tmp_path / name)
    spec = FLAGGED_WRITERS[layout](tmp_path)
    assert [item.references for item in open_data(spec)] == [("a red can",), ()]
    assert "ignoring 3 captions, as VizWiz does (is_rejected: 2, is_precanned: 1)" in capsys.readouterr().err
    if layout.startswith(("CSV", "Parquet")):
        for read in (read_reference_file, read_caption_file):
            assert list(read(spec).texts.values()) == [["a red can"], []]


def test_a_column_without_a_name_is_no_flag(tmp_path: Path) -> None:
    """The index that pandas writes."""
    draw(tmp_path / "a.png")
    (tmp_path / "t.csv").write_text(",file_name,caption\n1,a.png,a red can\n")
    assert open_data(str(tmp_path / "t.csv"))[0].references == ("a red can",)
    assert read_reference_file(tmp_path / "t.csv").texts == {"a.png": ["a red can"]}


def test_flags_that_fit_no_caption_leave_the_row_out(tmp_path: Path) -> None:
    draw(tmp_path / "a.png")
    rows = [{"image": "a.png", "captions": ["a dog", "a cat"], "is_rejected": [True]}]
    (tmp_path / "t.json").write_text(json.dumps(rows))
    (tmp_path / "t.jsonl").write_text(json.dumps(rows[0]) + '\n{"image": "a.png", "id": "b", "caption": "a dog"}')
    dataset = open_data(str(tmp_path / "t.jsonl"))
    assert [item.id for item in dataset] == ["b"]
    [(_, reason)] = dataset.missing
    assert reason == "'is_rejected' has 1 values for 2 captions; expected one per caption"


def test_functions_score_the_texts_that_they_are_given_and_evaluations_drop_empty_ones(tmp_path: Path) -> None:
    """An empty reference can be the closest in length to a short caption: no brevity penalty, as in pycocoevalcap."""
    captions = {"1": "a dog on the grass", "2": "two men are standing there"}
    references = {"1": ["a dog on the grass beside a very old oak tree", ""], "2": ["two men are standing there"]}
    texts, first = list(captions.values()), [own[:1] for own in references.values()]
    assert bleu(texts, list(references.values()))[0] == pytest.approx(1)
    assert bleu(texts, first)[0] < 0.7

    cut = compat.PTBTokenizer()
    gts = cut.tokenize({key: [{"caption": text} for text in own] for key, own in references.items()})
    res = cut.tokenize({key: [{"caption": text}] for key, text in captions.items()})
    theirs = pytest.importorskip("pycocoevalcap.bleu.bleu").Bleu(4)
    for tool in (compat.Bleu(), theirs):
        np.testing.assert_allclose(tool.compute_score(gts, res, verbose=0)[0], 1, atol=1e-6)

    (tmp_path / "c.json").write_text(json.dumps(captions))
    (tmp_path / "r.json").write_text(json.dumps(references))
    options = EvalOptions([tmp_path / "c.json"], tmp_path / "r.json", metrics=["bleu4"])
    for found in (evaluate({"c": captions}, references=references, metrics=["bleu4"]), run_eval(options)):
        assert "references: ignoring 1 empty references ('1')" in found.notes
        assert found.systems["c"]["bleu4"].value == pytest.approx(100 * bleu(texts, first)[0])
