"""Tables of the papers on drawn pictures in the authors' layouts, with what such data have wrong: pictures that cannot
be read or have no reference, captions that are empty or look like lists, bags across two splits."""

from __future__ import annotations

import csv
import json
import os
import shlex
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from command_line import Cli
from PIL import Image

COLOURS = ("red", "green", "blue", "grey", "pink", "brown", "white", "black", "orange", "purple")


def draw(path: Path, number: int) -> None:
    """A 3:2 photo of noise, each number another."""
    path.parent.mkdir(parents=True, exist_ok=True)
    noise_HWC = np.random.default_rng(number).integers(0, 255, (4, 6, 3), dtype=np.uint8)
    Image.fromarray(noise_HWC).resize((48, 32), Image.Resampling.NEAREST).save(path)


def cut(path: Path) -> None:
    """Half a file, as an interrupted download leaves it."""
    content = path.read_bytes()
    path.write_bytes(content[: len(content) // 2])


def say(number: int, place: int = 0) -> str:
    where = ("near", "under", "on", "beside", "by")[place % 5]
    return f"A {COLOURS[number % 10]} box {where} a {COLOURS[number // 10 % 10]} one."


def dump(path: Path, value: Any) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(value), encoding="utf-8")


def karpathy(home: Path, splits: list[str], first: int, coco: bool) -> list[dict[str, Any]]:
    """Writes Karpathy's JSON of COCO (numbers, folders by year) or Flickr30k, and its pictures."""
    images = []
    for number, split in enumerate(splits, first):
        folder, name = ("val2014", f"COCO_val2014_{number:012d}.jpg") if coco else ("flickr30k-images", f"{number}.jpg")
        draw(home / folder / name, number)
        texts = [{"raw": say(number, place), "tokens": say(number, place).split()} for place in range(5)]
        places = {"filepath": folder, "cocoid": number} if coco else {}
        images.append({"filename": name, "split": split, "sentences": texts, "imgid": number, **places})
    images[-1]["sentences"] = []  # a picture without references
    cut(home / folder / images[-3]["filename"])
    dump(home / f"dataset_{home.name}.json", {"images": images, "dataset": home.name})
    return images


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of the authors' data; test sets have a hundred pictures that can be read, and a few more."""
    home = tmp_path_factory.mktemp("data")
    images = karpathy(home / "coco", ["val"] * 8 + ["test"] * 103, 0, coco=True)
    for size in (3, 5, 7):  # every bag has pictures of both splits
        dump(home / f"truematch/{size}.json", [[start, *range(8 + start, 7 + start + size)] for start in range(4)])
    karpathy(home / "flickr30k", ["test"] * 103, 200, coco=False)
    nocaps, captions = [], []
    for number in range(205):
        draw(home / f"nocaps/images/{number:016x}.jpg", 400 + number)
        domain = "near-domain" if number % 2 else "out-domain"
        nocaps.append({"id": number, "file_name": f"{number:016x}.jpg", "domain": domain, "width": 48, "height": 32})
        captions += [{"image_id": number, "id": 10 * number + k, "caption": say(number, k)} for k in range(10)]
    (home / f"nocaps/images/{3:016x}.jpg").write_bytes(b"")
    dump(home / "nocaps/nocaps_val_4500_captions.json", {"images": nocaps, "annotations": captions})
    wiki = []
    for number in range(103):
        draw(home / f"concadia/resized/{number}.jpg", 700 + number)
        texts = {"caption": {"raw": "By the river, 1908"}, "description": {"raw": say(number)}}
        wiki.append({"filename": f"{number}.jpg", "split": "test", **texts})
    wiki[5]["description"] = {"raw": "Photo5.jpg"}  # an alternative text that is a file name
    wiki[6]["description"] = {"raw": ""}
    dump(home / "concadia/wiki_split.json", {"images": wiki})
    lines = []
    for number in range(105):
        lines.append(f"{say(number).lower()}\thttps://example.org/pictures/{number}.jpg\n")
        if number % 40 != 7:  # the others are gone
            draw(home / f"conceptual/validation/{number:08d}.jpg", 900 + number)
    (home / "conceptual/validation/00000009.jpg").write_text("<html>404</html>")
    (home / "conceptual/Validation_GCC-1.1.0-Validation.tsv").write_text("".join(lines))
    sets = {}
    for number in range(4):
        for place in range(10):
            draw(home / f"imagecode/image-sets/set-{number}/img{place}.jpg", 1100 + 10 * number + place)
        sets[f"set-{number}"] = {str(number): say(number), "7": say(number, 1)}
    cut(home / "imagecode/image-sets/set-2/img9.jpg")
    dump(home / "imagecode/valid_data.json", sets)
    odd = {10: "", 11: "[[[[ answer [[ the dog", 12: "['a', 'list'"}
    said = {image["cocoid"]: odd.get(image["cocoid"], say(image["cocoid"], 2)) for image in images}
    files = {number: images[number]["filename"] for number in said}
    (home / "ofa.jsonl").write_text(
        "".join(json.dumps({"image": files[number], "caption": text}) + "\n" for number, text in said.items())
    )
    dump(home / "cambrian.json", [{"image_id": number, "caption": text} for number, text in said.items()])
    dump(home / "visualcap.json", {str(number): say(number, 3) for number in said})
    with (home / "coca.csv").open("w", newline="") as file:
        csv.writer(file).writerows(
            [("file_name", "caption"), *((files[number], text) for number, text in said.items())]
        )
    return home


@pytest.fixture(autouse=True)
def here(data: Path, tiny_scorer: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """The folder where commands are typed, with the scorer that they name."""
    shutil.copytree(tiny_scorer, tmp_path / "openai/clip-vit-base-patch32")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("TELLAPART_DATA", str(data))
    yield


def typed(cli: Cli, *options: str) -> dict[str, Any]:
    """Types each command that a table prints, and returns the table that is printed then."""
    done = cli("tables", *options, "--dry-run", "--json")
    assert done.status == 0, done.err
    (planned,) = json.loads(done.out)["tables"]
    assert planned["needs"] == {}
    for command in planned["commands"]:
        words = shlex.split(os.path.expandvars(command["command"]))
        assert cli(*words[1:]).status == 0, command["command"]
    done = cli("tables", *options, "--json")
    assert done.status == 0 and "command 1" not in done.err, done.err
    (table,) = json.loads(done.out)["tables"]
    return dict(table)


def ours(table: dict[str, Any]) -> dict[str, list[float | None]]:
    return {" ".join(row["labels"].values()).strip(): list(row["ours"].values()) for row in table["rows"]}


def test_pictures_that_cannot_be_read_leave_a_hard_pool(cli: Cli, data: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Be they its candidates alone or captioned, too, in a file that says something of every picture."""
    monkeypatch.setenv("TELLAPART_CACHE", str(Path.cwd() / "cache"))
    cut_one = data / "coco/val2014" / f"COCO_val2014_{2:012d}.jpg"
    whole = cut_one.read_bytes()
    cut(cut_one)
    pool = [str(number) for number in range(111)]
    dump(Path("pool.json"), pool)
    spec = f"karpathy:{data}/coco/dataset_coco.json?split=test"
    done = cli("eval", "--data", spec, "--scorer", "openai/clip-vit-base-patch32", "--metrics", "recall@1.hard",
               "--captions", data / "ofa.jsonl", "--distractors", "pool.json", "--allow-missing", "--json")  # fmt: skip
    cut_one.write_bytes(whole)
    assert done.status == 0, done.err
    results = json.loads(done.out)
    assert "hard: 2 pictures cannot be read, such as '108'; 109 pictures remain" in results["notes"]
    assert results["systems"]["ofa"]["recall@1.hard"]["n"] == 102
    assert "distractors:7@" in done.out  # of its signature


def test_captions_of_others_on_bags_across_two_splits(cli: Cli, data: Path) -> None:
    """Empty captions and captions that look like lists are captions: the systems that say the same have one result."""
    files = {"ofa": "ofa.jsonl", "coca": "coca.csv", "cambrian-3b": "cambrian.json"}
    brought = [word for name, file in files.items() for word in ("--captions", f"{name}={data / file}")]
    found = ours(typed(cli, "2:1", "--rows", ",".join(files), *brought))
    assert len(found) == 3 and len({tuple(row) for row in found.values()}) == 1
    assert all(0 < value < 100 for row in found.values() for value in row if value is not None)
    assert all(value is not None for row in found.values() for value in row)


@pytest.mark.parametrize(
    ("table", "rows", "brought", "cells"),
    [
        ("2:2", "human,visualcap", ["visualcap=visualcap.json"], 2 * 5),
        ("3:1", "human", [], 6),
        ("3:11", "human", [], 1),
    ],
)
def test_people_in_every_layout(table: str, rows: str, brought: list[str], cells: int, cli: Cli, data: Path) -> None:
    files = [word for name in brought for word in ("--captions", name.replace("=", f"={data}/"))]
    found = ours(typed(cli, table, "--rows", rows, *files))
    values = [value for row in found.values() for value in row]
    assert len(values) == cells and all(value is not None for value in values), found
