"""Manifests: each shard opened by itself gives, in order, what the plain data set has."""

from __future__ import annotations

import json
import tarfile
from collections.abc import Sequence
from io import BytesIO
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from tellapart.data import open_many
from tellapart.errors import UsageError
from tellapart.jobs.manifest import Manifest, make_manifest, read_manifest
from tellapart.jobs.shard import Shard, open_shard
from tellapart.jobs.splitting import cut_lines
from tellapart.jobs.storage import DiskFolder
from tellapart.types import Item

COUNT = 23


def photo(number: int, width: int = 30, height: int = 20) -> bytes:
    """A 3:2 photo of noise, as JPEG."""
    made = BytesIO()
    noise = np.random.default_rng(number).integers(0, 255, (height, width, 3), dtype=np.uint8)
    Image.fromarray(noise).save(made, "JPEG")
    return made.getvalue()


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The same photos as a folder, as JSON lines, as tars and as Parquet."""
    import pyarrow
    import pyarrow.parquet

    root = tmp_path_factory.mktemp("data")
    (root / "photos" / "more").mkdir(parents=True)
    lines = []
    for number in range(COUNT):
        name = f"{'more/' if number % 3 else ''}{number}.jpg"
        (root / "photos" / name).write_bytes(photo(number))
        (root / "photos" / name).with_suffix(".txt").write_text(f"photo {number}\nein Café {number}\n")
        split = "test" if number % 4 == 0 else "train"
        lines.append(
            json.dumps({"id": f"n{number}", "image": f"photos/{name}", "caption": "é" * number, "split": split})
        )
    (root / "data.jsonl").write_text("\ufeff" + "\n".join(lines[:10]) + "\n\n" + "\n".join(lines[10:]), "utf-8")
    (root / "tars").mkdir()
    for shard in range(3):
        with tarfile.open(root / "tars" / f"part-{shard}.tar", "w") as tar:
            for number in range(shard * 5, shard * 5 + 5):
                for suffix, data in ((".jpg", photo(number)), (".txt", f"photo {number}".encode())):
                    member = tarfile.TarInfo(f"{number:04d}{suffix}")
                    member.size = len(data)
                    tar.addfile(member, BytesIO(data))
    for part in range(2):
        rows = [
            {"image": {"bytes": photo(n), "path": None}, "text": f"photo {n}"} for n in range(part * 4, part * 4 + 4)
        ]
        pyarrow.parquet.write_table(pyarrow.Table.from_pylist(rows), root / f"train-{part}.parquet")
    return root


def made(specs: Sequence[str], tmp_path: Path, size: int = 4) -> tuple[Manifest, list[Shard]]:
    manifest = make_manifest(specs, tmp_path, size)
    return manifest, list(read_manifest(DiskFolder(tmp_path).lines("manifest.jsonl")))


def content(items: Sequence[Item]) -> list[tuple[str, tuple[str, ...], str, str]]:
    return [(item.id, item.references, item.split, item.picture.key()) for item in items]


SPECS = {
    "folder": ["{}/photos"],
    "lines": ["{}/data.jsonl"],
    "a split of lines": ["{}/data.jsonl?split=test"],
    "a part of lines": ["{}/data.jsonl?part=1/2"],
    "tars": ["webdataset:{}/tars"],
    "a pattern of tars": ["{}/tars/part-{{0..1}}.tar"],
    "parquet": ["{}/train-*.parquet"],
    "scenes": ["scenes:plain?n=11"],
    "two folders and a file": ["{}/photos/more", "{}/tars", "{}/photos/0.jpg"],
}


@pytest.mark.parametrize("name", SPECS)
def test_the_shards_hold_what_the_data_set_holds(name: str, folder: Path, tmp_path: Path) -> None:
    specs = [spec.format(folder) for spec in SPECS[name]]
    manifest, shards = made(specs, tmp_path)
    found = []
    for shard in shards:
        with open_shard(shard, DiskFolder(tmp_path)) as dataset:
            assert shard.count is None or len(dataset) <= shard.count
            found += content(dataset)
    assert len(shards) == manifest.shards > 1
    assert found == content(open_many(specs))


def test_shards_are_in_the_order_of_the_data(folder: Path, tmp_path: Path) -> None:
    url = f"file://{folder}/tars/part-0.tar"
    _, shards = made([f"{folder}/photos/0.jpg", url, f"{folder}/photos/3.jpg"], tmp_path)
    assert [shard.path for shard in shards] == ["lists/000000.jsonl", url, "lists/000001.jsonl"]


def test_a_url_must_name_files_of_one_kind(folder: Path, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"end in \.tar, got 2 other files"):
        made([f"webdataset:file://{folder}/{{train-*.parquet,tars/*}}"], tmp_path)


def test_a_shard_of_lines_says_where_it_is_wrong(folder: Path, tmp_path: Path) -> None:
    lines = (folder / "data.jsonl").read_text("utf-8").splitlines()
    lines[9] = "{"
    (tmp_path / "bad.jsonl").write_text("\n".join(lines), "utf-8")
    _, shards = made([str(tmp_path / "bad.jsonl")], tmp_path)
    with (
        pytest.raises(UsageError, match=r"bad.jsonl, line 2 after byte \d+: invalid JSON"),
        open_shard(shards[2], DiskFolder(tmp_path)),
    ):
        pass


def test_tars_of_one_name_are_refused(folder: Path, tmp_path: Path) -> None:
    (tmp_path / "again").mkdir()
    (tmp_path / "again" / "part-0.tar").write_bytes((folder / "tars" / "part-0.tar").read_bytes())
    with pytest.raises(UsageError, match="have the same name, which is part of the ids; rename one of"):
        make_manifest([f"{folder}/tars/part-0.tar", f"{tmp_path}/again/part-0.tar"], tmp_path)


def test_a_changed_file_makes_another_manifest(folder: Path, tmp_path: Path) -> None:
    copy = tmp_path / "data.jsonl"
    copy.write_bytes((folder / "data.jsonl").read_bytes())
    before, _ = made([str(copy)], tmp_path)
    same, _ = made([str(copy)], tmp_path)
    copy.write_bytes((folder / "data.jsonl").read_bytes().replace(b"n1", b"m1"))
    assert made([str(copy)], tmp_path)[0].digest != before.digest == same.digest


@pytest.mark.parametrize("chunk", [1, 3, 1000])
def test_lines_are_cut_where_they_end(chunk: int) -> None:
    text = b"a\nbb\n\nccc\nd\nee\nf"
    chunks = iter([text[start : start + chunk] for start in range(0, len(text), chunk)])
    spans = list(cut_lines(chunks, 3))
    assert [text[start:stop] for start, stop, _ in spans] == [b"a\nbb\n\n", b"ccc\nd\nee\n", b"f"]
    assert [count for *_, count in spans] == [3, 3, 1]
