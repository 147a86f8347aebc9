"""The simplest captions out of real ones: ``tellapart data simplify``."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from PIL import Image
from typer.testing import CliRunner

from tellapart.cli.whole_app import whole_app
from tellapart.data import open_data
from tellapart.data.caption_files import read_reference_file
from tellapart.errors import UsageError
from tellapart.language.simplify import simplify, simplify_all

pytest.importorskip("HanTa")


@pytest.mark.parametrize(
    ("caption", "subject", "svo"),
    [
        ("a man riding a wave on top of a surfboard", "a man", "a man riding a wave"),
        ("two dogs are playing with a red ball in the snow", "dogs", "dogs playing"),
        ("A young girl holds an umbrella", "a girl", "a girl holds an umbrella"),
        ("there is a large brown bear sitting in the grass", "a bear", "a bear sitting"),
        ("a kitchen with a stove", "a kitchen", "a kitchen"),
        ("A person is holding an open book.", "a person", "a person holding a book"),
        ("a group of people standing around a table", "people", "people standing"),
        ("The bus stops at a station", "a bus", "a bus stops"),
        ("An apple", "an apple", "an apple"),
        ("a man in a uniform", "a man", "a man"),
        ("a unicorn on a hill", "a unicorn", "a unicorn"),
        ("", "", ""),
        ("!!!", "", ""),
    ],
)
def test_subject_and_subject_verb_object(caption: str, subject: str, svo: str) -> None:
    assert simplify(caption, "subject") == subject and simplify(caption, "svo") == svo


def test_what_names_nothing_is_left_out_and_counted() -> None:
    found = simplify_all({"b": ["a cat", "..."], "a": ["!"], "c": ["a dog running on grass"]}, "svo")
    assert found.texts == {"b": ["a cat"], "c": ["a dog running"]}
    assert (found.captions, found.dropped, found.words) == (4, 2, 2.5)


def test_a_coco_file_becomes_one_that_training_reads(tmp_path: Path) -> None:
    """COCO's annotations, with picture files: ids, files and the order of captions stay."""
    coco = {
        "images": [{"id": 7, "file_name": "7.jpg"}, {"id": 9, "file_name": "9.jpg"}],
        "annotations": [
            {"image_id": 7, "caption": "A man riding a wave on a surfboard."},
            {"image_id": 7, "caption": "A surfer in the ocean"},
            {"image_id": 9, "caption": "A black dog is running through the snow"},
        ],
    }
    (tmp_path / "captions.json").write_text(json.dumps(coco))
    out = tmp_path / "simpler.jsonl"
    arguments = ["data", "simplify", str(tmp_path / "captions.json"), "-o", str(out)]
    done = CliRunner().invoke(whole_app(), [*arguments, "--json"])
    told = json.loads(done.stdout)
    assert (told["captions"], told["kept"], told["dropped"]) == (3, 3, 0) and told["words"] == pytest.approx(3.33)
    assert read_reference_file(out).texts == {"7": ["a man riding a wave", "a surfer"], "9": ["a dog running"]}
    assert json.loads(out.read_text().splitlines()[0])["image"] == "7.jpg"
    with out.open("a") as file:
        file.write("\n")
    assert isinstance(CliRunner().invoke(whole_app(), arguments).exception, UsageError), (
        "already exists, and was not written by tellapart or has been"
    )
    shown = CliRunner().invoke(whole_app(), [*arguments, "--overwrite", "--keep", "subject"])
    assert "wrote 3 captions with an average of 2.0 words" in shown.stdout
    assert read_reference_file(out).texts["7"] == ["a man", "a surfer"]
    error = CliRunner().invoke(whole_app(), [*arguments, "--keep", "subjcet"]).exception
    assert isinstance(error, UsageError) and "did you mean 'subject'" in str(error)


@pytest.mark.parametrize("layout", ["karpathy", "jsonl"])
def test_splits_stay_and_pictures_are_found_from_another_folder(layout: str, tmp_path: Path) -> None:
    """Else the result trains on test pictures, or on none."""
    (tmp_path / "photos").mkdir()
    captions, rows = {"0.jpg": "A black dog is running through the snow", "1.jpg": "a man riding a wave"}, []
    for (name, text), split in zip(captions.items(), ("train", "test"), strict=True):
        Image.new("RGB", (30, 20)).save(tmp_path / "photos" / name)
        key = "filename" if layout == "karpathy" else "image"
        texts: dict[str, Any] = {"sentences": [{"raw": text}]} if layout == "karpathy" else {"captions": [text]}
        rows.append({key: name, "split": split, **texts})
    source = tmp_path / "photos" / f"list.{'json' if layout == 'karpathy' else 'jsonl'}"
    whole = json.dumps({"images": rows}) if layout == "karpathy" else "\n".join(map(json.dumps, rows))
    source.write_text(whole)
    out = tmp_path / "made" / "simple.jsonl"
    out.parent.mkdir()
    done = CliRunner().invoke(whole_app(), ["data", "simplify", str(source), "-o", str(out)])
    assert done.exit_code == 0, done.exception
    dataset = open_data(f"jsonl:{out}")
    assert [(item.split, item.references, item.picture.image().size) for item in dataset] == [
        ("train", ("a dog running",), (30, 20)),
        ("test", ("a man riding a wave",), (30, 20)),
    ]
    assert len(open_data(f"jsonl:{out}?split=test")) == 1


@pytest.mark.parametrize("folder", ["", "images", "nowhere"])
def test_cocos_karpathy_file_with_its_folders(folder: str, tmp_path: Path) -> None:
    """``filepath`` is the folder of ``filename``; taken for the picture, every one of the split was "val2014"."""
    rows: list[dict[str, Any]] = []
    for number, (split, text) in enumerate(
        [("test", "A black dog is running through the snow"), ("restval", "a man riding a wave")]
    ):
        name = f"COCO_val2014_{391895 + number:012d}.jpg"
        if folder != "nowhere":
            picture = tmp_path / "coco" / folder / "val2014" / name
            picture.parent.mkdir(parents=True, exist_ok=True)
            Image.new("RGB", (30, 20), (200 * number, 0, 0)).save(picture)
        rows.append({"filepath": "val2014", "sentids": [number], "filename": name, "imgid": number, "split": split,
                     "sentences": [{"tokens": text.lower().split(), "raw": text, "imgid": number, "sentid": number}],
                     "cocoid": 391895 + number})  # fmt: skip
    source = tmp_path / "coco" / "dataset_coco.json"
    source.parent.mkdir(exist_ok=True)
    source.write_text(json.dumps({"images": rows, "dataset": "coco"}))
    out = tmp_path / "simpler.jsonl"
    done = CliRunner().invoke(whole_app(), ["data", "simplify", str(source), "-o", str(out)])
    assert done.exit_code == 0, done.exception
    lines = [json.loads(line) for line in out.read_text().splitlines()]
    assert [line["id"] for line in lines] == ["391895", "391896"]
    if folder == "nowhere":  # named so that images=FOLDER finds them
        assert [line["image"] for line in lines] == [f"val2014/COCO_val2014_{n:012d}.jpg" for n in (391895, 391896)]
        return
    dataset = open_data(str(out))
    assert [item.picture.image().getpixel((0, 0))[0] > 100 for item in dataset] == [False, True]
    assert [(item.id, item.split) for item in dataset] == [("391895", "test"), ("391896", "train")]


def test_captions_that_name_nothing_are_an_error(tmp_path: Path) -> None:
    (tmp_path / "captions.txt").write_text("...\n!\n")
    out = tmp_path / "out.jsonl"
    error = (
        CliRunner().invoke(whole_app(), ["data", "simplify", str(tmp_path / "captions.txt"), "-o", str(out)]).exception
    )
    assert (
        isinstance(error, UsageError)
        and "no subject was found in any of 2 captions, so nothing was" in str(error)
        and not out.exists()
    )
