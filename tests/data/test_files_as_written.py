"""Files as people's programs write them: pandas, datasets, editors, Macs, Windows, WebDataset's writers."""

from __future__ import annotations

import base64
import json
import unicodedata
from pathlib import Path
from typing import Any

import pytest
from reader_help import all_of, draw, ids, png, tar

from tellapart.data import open_data
from tellapart.data.caption_files import read_caption_file, read_reference_file
from tellapart.errors import PictureError, UsageError

RED, BLUE = (255, 0, 0), (0, 0, 255)


def colours(spec: object) -> list[Any]:
    return [item.picture.image().getpixel((0, 0)) for item in open_data(str(spec))]


def lines(path: Path, *records: object) -> Path:
    path.write_text("".join(json.dumps(record) + "\n" for record in records), encoding="utf-8")
    return path


def test_of_a_samples_pictures_the_plain_one_is_captioned(tmp_path: Path) -> None:
    """Members as writers of depth maps, masks and stereo pairs sort them."""
    blue = png("blue")
    maps = [(f"k0.{name}", png()) for name in ("depth.png", "en.txt", "left.jpg", "mask.png")]
    maps[1] = ("k0.en.txt", b"a caption in another language\n")
    shard = tar(tmp_path / "a.tar", *maps, ("k0.jpg", blue), ("k0.txt", b"a dog\n"), ("k1.image.png", blue))
    dataset = open_data(str(shard))
    assert colours(shard) == [BLUE, BLUE] and dataset[0].references == ("a dog",)
    assert [name.rpartition("#")[2] for name, _ in dataset.missing] == ["k0.depth.png", "k0.left.jpg", "k0.mask.png"]
    several = tar(tmp_path / "b.tar", ("k0.depth.png", png()), ("k0.left.png", blue), ("k1.png", blue))
    assert ids(open_data(str(several))) == ["b/k1"]
    assert (
        "several pictures, k0.depth.png, k0.left.png; expected a single one"
        in dict(open_data(str(several)).missing).popitem()[1]
    )
    hidden = tmp_path / "shards"
    hidden.mkdir()
    tar(hidden / "c.tar", ("._k0.png", b"x"), (".ipynb_checkpoints/k9.png", png()), ("k0.png", blue))
    (hidden / "._c.tar").write_bytes(b"\0\5\x16\7")
    for spec in (hidden, hidden / "*.tar"):
        dataset = open_data(f"webdataset:{spec}")
        assert ids(dataset) == ["c/k0"] and not dataset.missing


def test_files_of_the_system_are_no_captions(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A Mac's ``._`` files, Jupyter's copies, and texts about the folder, beside pictures and without them."""
    (tmp_path / ".ipynb_checkpoints").mkdir()
    for name in ("p0.txt", "p1.txt", ".ipynb_checkpoints/p0-checkpoint.txt", "._p1.txt", "README.txt", "LICENSE.txt"):
        (tmp_path / name).write_bytes(b"\0\5\x16\7" if name.startswith("._") else f"of {name}\n".encode())
    assert read_caption_file(tmp_path).texts == {"p0": ["of p0.txt"], "p1": ["of p1.txt"]}
    for name in ("p0.jpg", "p1.jpg"):
        draw(tmp_path / name)
    (tmp_path / "notes.txt").write_text("call Anna\n")
    assert read_caption_file(tmp_path).texts == {"p0": ["of p0.txt"], "p1": ["of p1.txt"]}
    assert "ignored 3 text files without a picture of the same name" in capsys.readouterr().err
    for name in ("p0.txt", "p1.txt", "notes.txt"):
        (tmp_path / name).unlink()
    (tmp_path / "p0.json").write_text('{"caption": "a dog"}')
    assert read_caption_file(tmp_path).texts == {"p0": ["a dog"]}
    metadata = tmp_path / ".ipynb_checkpoints" / "metadata.jsonl"
    lines(metadata, {"file_name": "p0.jpg", "text": "old"})
    assert read_caption_file(tmp_path).texts == {"p0": ["a dog"]}


def test_folders_that_systems_keep_for_themselves_hold_no_pictures(tmp_path: Path) -> None:
    """Thumbnails of a Synology, a Mac's half of a zip file, and bins."""
    for folder in ("@eaDir/p0.png", "__MACOSX", "#recycle", "$RECYCLE.BIN/S-1", ".thumbnails"):
        (tmp_path / folder).mkdir(parents=True)
        draw(tmp_path / folder / "t.png")
        (tmp_path / folder / "t.txt").write_text("a thumbnail\n")
    draw(tmp_path / "p0.png")
    (tmp_path / "p0.txt").write_text("a dog\n")
    assert ids(open_data(str(tmp_path))) == ["p0.png"]
    assert read_caption_file(tmp_path).texts == {"p0": ["a dog"]}
    shard = tar(tmp_path / "a.tar", ("@eaDir/k0/t.png", png()), ("__MACOSX/k1.png", png()), ("k0.png", png("blue")))
    assert ids(open_data(str(shard))) == ["a/k0"]


@pytest.mark.parametrize("name", ["shot.png.txt", "shot.TXT", "shot.png.caption", "shot.png.TXT", "shot.Caption"])
def test_texts_beside_pictures_whatever_program_named_them(name: str, tmp_path: Path) -> None:
    draw(tmp_path / "shot.png")
    (tmp_path / name).write_text("a dog\n")
    assert all_of(open_data(str(tmp_path))) == [("shot.png", ("a dog",), "")]
    assert open_data(str(tmp_path / "shot.png"))[0].references == ("a dog",)
    assert list(read_caption_file(tmp_path).texts.values()) == [["a dog"]]


@pytest.mark.parametrize("disk", ["NFC", "NFD"])
def test_names_with_accents_are_the_same_however_composed(disk: Any, tmp_path: Path) -> None:
    """A Mac's disk has é as two characters, and lists written elsewhere as one."""
    other: Any = "NFD" if disk == "NFC" else "NFC"
    folder, listed = unicodedata.normalize(disk, "café"), unicodedata.normalize(other, "café/é.png")
    draw(tmp_path / folder / unicodedata.normalize(disk, "é.png"))
    (tmp_path / folder / unicodedata.normalize(other, "é.txt")).write_text("a dog\n")
    assert open_data(f"folder:{tmp_path}")[0].references == ("a dog",)
    (tmp_path / folder / unicodedata.normalize(other, "é.txt")).unlink()
    lines(tmp_path / "d.jsonl", {"image": listed, "caption": "a dog"})
    (tmp_path / "d.csv").write_text(f"image,caption\n{listed},a dog\n", encoding="utf-8")
    images = [{"id": 1, "file_name": listed}]
    coco = {"images": images, "annotations": [{"image_id": 1, "caption": "a dog"}]}
    (tmp_path / "captions.json").write_text(json.dumps(coco))
    write_parquet(tmp_path / "d.parquet", image=[listed], caption=["a dog"])
    lines(tmp_path / "metadata.jsonl", {"file_name": listed, "text": "a dog"})
    for spec in ("d.jsonl", "d.csv", "coco:captions.json", "d.parquet", "folder:."):
        kind, colon, name = spec.rpartition(":")
        dataset = open_data(f"{kind}{colon}{tmp_path / name}")
        assert colours(dataset.spec) == [RED] and dataset[0].references == ("a dog",), spec
        assert not dataset.missing, spec


def test_paths_with_backslashes(tmp_path: Path) -> None:
    draw(tmp_path / "sub" / "a.png")
    lines(tmp_path / "d.jsonl", {"image": "sub\\a.png"})
    (tmp_path / "d.csv").write_text("image,caption\nsub\\a.png,a dog\n")
    coco = {"images": [{"id": 1, "file_name": "sub\\a.png"}], "annotations": []}
    (tmp_path / "captions.json").write_text(json.dumps(coco))
    for spec in (tmp_path / "d.jsonl", tmp_path / "d.csv", f"coco:{tmp_path / 'captions.json'}"):
        assert colours(spec) == [RED]


@pytest.mark.parametrize("encoding", ["utf-8-sig", "utf-16"])
def test_text_with_a_byte_order_mark(encoding: str, tmp_path: Path) -> None:
    draw(tmp_path / "a.png")
    draw(tmp_path / "b.png")
    (tmp_path / "a.txt").write_text("Müller\nä dog\n", encoding=encoding)
    (tmp_path / "b.txt").write_text("a cat\n")
    assert [item.references for item in open_data(str(tmp_path))] == [("Müller", "ä dog"), ("a cat",)]
    assert read_reference_file(tmp_path).texts == {"a": ["Müller", "ä dog"], "b": ["a cat"]}
    (tmp_path / "d.csv").write_text("image,caption\na.png,Müller\nb.png,a cat\n", encoding=encoding)
    lines_of = "".join(json.dumps({"image": f"{n}.png", "caption": "Müller"}, ensure_ascii=False) + "\n" for n in "ab")
    (tmp_path / "d.jsonl").write_text(lines_of, encoding=encoding)
    assert [item.references for item in open_data(str(tmp_path / "d.csv"))] == [("Müller",), ("a cat",)]
    assert [item.references for item in open_data(str(tmp_path / "d.jsonl"))] == [("Müller",)] * 2
    shard = tar(tmp_path / "a.tar", ("1.png", png()), ("1.txt", "Müller".encode(encoding)))
    assert open_data(str(shard))[0].references == ("Müller",)


def test_text_in_another_encoding_is_refused_by_its_name(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    draw(tmp_path / "a.png")
    (tmp_path / "a.txt").write_bytes("grüße".encode("latin-1"))
    (tmp_path / "d.csv").write_bytes("image,caption\na.png,Müller\n".encode("cp1252"))
    (item,) = open_data(f"folder:{tmp_path}")
    assert item.references == () and "1 of 1 text files next to pictures cannot be read" in capsys.readouterr().err
    for path in (tmp_path, tmp_path / "d.csv"):
        with pytest.raises(UsageError, match="not valid UTF-8") as caught:
            read_caption_file(path)
        assert ("a.txt" if path.is_dir() else "d.csv") in str(caught.value)


NAN = float("nan")


@pytest.mark.parametrize("empty", [None, NAN, "", [], [None], [NAN], "nan", "None", "NULL"], ids=repr)
def test_a_picture_without_a_caption_is_one_everywhere(empty: Any, tmp_path: Path) -> None:
    """pandas, datasets and annotation tools write null, NaN or nothing."""
    for name in ("a.png", "b.png"):
        draw(tmp_path / name)
    lines(tmp_path / "d.jsonl", {"image": "a.png", "caption": empty}, {"image": "b.png", "caption": "a dog"})
    annotations = [{"image_id": 1, "caption": empty}, {"image_id": 2, "caption": "a dog"}]
    coco = {"images": [{"id": 1, "file_name": "a.png"}, {"id": 2, "file_name": "b.png"}], "annotations": annotations}
    (tmp_path / "captions.json").write_text(json.dumps(coco))
    images = [
        {"filename": "a.png", "sentences": [{"raw": empty}]},
        {"filename": "b.png", "sentences": [{"raw": "a dog"}]},
    ]
    (tmp_path / "k.json").write_text(json.dumps({"images": images}))
    records = [json.dumps({"caption": caption}).encode() for caption in (empty, "a dog")]
    tar(tmp_path / "a.tar", ("1.png", png()), ("1.json", records[0]), ("2.png", png()), ("2.json", records[1]))
    specs = [tmp_path / "d.jsonl", f"coco:{tmp_path}/captions.json", f"karpathy:{tmp_path}/k.json", tmp_path / "a.tar"]
    if not isinstance(empty, list):
        write_parquet(tmp_path / "d.parquet", image=["a.png", "b.png"], caption=[empty, "a dog"])
        specs.append(tmp_path / "d.parquet")
    for spec in specs:
        assert [item.references for item in open_data(str(spec))] == [(), ("a dog",)], spec


def write_parquet(path: Path, **columns: list[Any]) -> Path:
    """As pandas does."""
    pandas = pytest.importorskip("pandas")
    pytest.importorskip("pyarrow")
    pandas.DataFrame(columns).to_parquet(path)
    return path


def in_base64(data: bytes) -> dict[str, str]:
    plain = base64.b64encode(data).decode()
    return {
        "plain": plain,
        "url": base64.urlsafe_b64encode(data).decode().rstrip("="),
        "uri": f"data:image/png;base64,{plain}",
    }


@pytest.mark.parametrize("form", ["plain", "url", "uri"])
def test_pictures_in_base64(form: str, tmp_path: Path) -> None:
    cells = [in_base64(png(colour, 8))[form] for colour in ("red", "blue")]
    lines(tmp_path / "d.jsonl", *({"image": cell, "caption": "a dog"} for cell in cells))
    (tmp_path / "d.json").write_text(json.dumps([{"image": cell, "caption": "a dog"} for cell in cells]))
    (tmp_path / "d.csv").write_text("image,caption\n" + "".join(f'"{cell}",a dog\n' for cell in cells))
    write_parquet(tmp_path / "d.parquet", image=cells, caption=["a dog"] * 2)
    write_parquet(tmp_path / "list.parquet", images=[[cell] for cell in cells], caption=["a dog"] * 2)
    for name in ("d.jsonl", "d.json", "d.csv", "d.parquet", "list.parquet"):
        assert colours(tmp_path / name) == [RED, BLUE], name
        assert all(len(id_) < 40 for id_ in ids(open_data(str(tmp_path / name)))), name


def test_damaged_base64_is_not_printed(tmp_path: Path) -> None:
    lines(tmp_path / "d.jsonl", {"image": in_base64(png("red", 64))["plain"][:-4] * 20 + "!!", "caption": "a dog"})
    with pytest.raises(UsageError, match="no items") as caught:
        open_data(str(tmp_path / "d.jsonl"))
    assert len(str(caught.value)) < 600


def test_columns_of_lists_of_one_picture(tmp_path: Path) -> None:
    """As TRL, verl and ms-swift have pictures: ``images: [one]``, of paths, bytes or Hugging Face's mapping."""
    for name in ("a.png", "b.png"):
        draw(tmp_path / name, "red" if name == "a.png" else "blue")
    names, data = ["a.png", "b.png"], [png("red"), png("blue")]
    cells = {
        "paths": [[name] for name in names],
        "bytes": [[each] for each in data],
        "mappings": [[{"bytes": each, "path": None}] for each in data],
        "files": [[{"bytes": None, "path": name}] for name in names],
    }
    for kind, values in cells.items():
        assert colours(write_parquet(tmp_path / f"{kind}.parquet", images=values, text=["x", "y"])) == [RED, BLUE], kind
    lines(tmp_path / "d.jsonl", {"images": ["a.png"]}, {"images": [{"path": "b.png"}]}, {"images": ["a.png", "b.png"]})
    assert colours(tmp_path / "d.jsonl") == [RED, BLUE]
    assert dict(open_data(str(tmp_path / "d.jsonl")).missing) == {
        f"{tmp_path / 'd.jsonl'}, line 3": "expected one picture per row, got 2"
    }
    several = write_parquet(tmp_path / "s.parquet", images=[data], text=["x"])
    with pytest.raises(PictureError, match="expected one picture per row, got 2"):
        open_data(str(several))[0].picture.image()


@pytest.mark.parametrize("kind", ["images", "strings", "structs"])
def test_saved_data_sets_with_lists_of_one_picture(kind: str, tmp_path: Path) -> None:
    datasets = pytest.importorskip("datasets")
    features, data = None, [png("red", 8), png("blue", 8)]
    rows: list[Any] = [[{"bytes": each, "path": None}] for each in data]
    if kind == "images":
        features = datasets.Features({"images": datasets.Sequence(datasets.Image()), "text": datasets.Value("string")})
    if kind == "strings":
        rows = [in_base64(each)["plain"] for each in data]
    datasets.Dataset.from_dict({"images": rows, "text": ["x", "y"]}, features=features).save_to_disk(tmp_path / "d")
    assert colours(tmp_path / "d") == [RED, BLUE]


def test_splits_as_keys_are_no_ids(tmp_path: Path) -> None:
    for name in ("a.png", "b.png"):
        draw(tmp_path / name)
    content = {"train": [{"image": "a.png", "caption": "a dog"}], "test": [{"image": "b.png", "caption": "a cat"}]}
    (tmp_path / "d.json").write_text(json.dumps(content))
    assert all_of(open_data(str(tmp_path / "d.json"))) == [
        ("a.png", ("a dog",), "train"),
        ("b.png", ("a cat",), "test"),
    ]
    assert read_caption_file(tmp_path / "d.json").texts == {"a.png": ["a dog"], "b.png": ["a cat"]}
    (tmp_path / "ids.json").write_text(json.dumps({"train": ["a train", "a red train"]}))
    assert read_reference_file(tmp_path / "ids.json").texts == {"train": ["a train", "a red train"]}


def test_ids_that_pandas_made_floats(tmp_path: Path) -> None:
    draw(tmp_path / "a.png")
    write_parquet(tmp_path / "d.parquet", id=[391895.0, NAN], image=["a.png", "a.png"], caption=["a dog", "a cat"])
    assert ids(open_data(str(tmp_path / "d.parquet"))) == ["391895", "a.png"]
