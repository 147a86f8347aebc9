"""File names that are no text: every picture is captioned, ids are percent-encoded, and paths stay as they are."""

from __future__ import annotations

import io
import json
import os
import tarfile
from pathlib import Path

import pytest
from command_line import Cli
from PIL import Image

from tellapart.data import open_data
from tellapart.data.path_ids import path_id

NAMES = {
    b"100%.png": "100%.png",
    b"caf\xe8.png": "caf%E8.png",
    b"caf\xe9.png": "caf%E9.png",
    "café.png".encode(): "café.png",
    b"d\xff/50%\xfe.png": "d%FF/50%25%FE.png",
    b"line\nbreak.png": "line%0Abreak.png",
}


@pytest.fixture
def photos(tmp_path: Path) -> str:
    """3:2 photos in a folder whose own name is no text either."""
    folder = tmp_path / os.fsdecode(b"ph\xf6tos")
    try:
        for number, name in enumerate(NAMES):
            path = folder / os.fsdecode(name)
            path.parent.mkdir(parents=True, exist_ok=True)
            Image.new("RGB", (60, 40), (40 * number, 90, 200 - 30 * number)).save(path, "PNG")
        (folder / os.fsdecode(b"caf\xe9.txt")).write_text("a red square\n")
    except OSError:
        pytest.skip("this file system takes no such names")
    return str(folder)


def test_ids_are_percent_encoded_and_differ(photos: str) -> None:
    data = open_data(f"folder:{photos}")
    assert sorted(item.id for item in data) == sorted(NAMES.values())
    assert {item.id: item.references for item in data}["caf%E9.png"] == ("a red square",)
    assert all(item.picture.image().size == (60, 40) for item in data)
    assert path_id("plain/100%.jpg") == "plain/100%.jpg" and path_id("\ud83d.jpg") == "%ED%A0%BD.jpg"


def test_a_picture_whose_id_is_that_of_another_is_named_and_left_out(photos: str) -> None:
    Image.new("RGB", (60, 40)).save(Path(photos) / "caf%E9.png")
    data = open_data(f"folder:{photos}")
    assert sorted(item.id for item in data) == sorted(NAMES.values())
    ((name, reason),) = list(data.missing)
    assert "caf" in name and "'; rename one of them" in reason and "'caf%E9.png'; rename one" in reason


@pytest.mark.parametrize("out", [b"c\xe9.jsonl", b"c.csv", None], ids=["jsonl", "csv", "txt"])
def test_caption_never_stops(
    cli: Cli, photos: str, tiny_captioner: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, out: bytes | None
) -> None:
    monkeypatch.chdir(tmp_path)
    where = ("--format", "txt") if out is None else ("-o", os.fsdecode(out))
    command = ("caption", tiny_captioner, Path(photos).name, *where, "--max-tokens", 3)
    done = cli(*command)
    expected = len(NAMES) - (out is None)  # caf\xe9.txt was there
    assert done.status == 0 and f"{expected} captions written" in done.err
    assert f"0 captions written, {len(NAMES)} already done" in cli(*command).err
    if out is None:
        texts = [name for _, _, files in os.walk(os.fsencode(photos)) for name in files if name.endswith(b".txt")]
        assert len(texts) == len(NAMES) and b"50%\xfe.txt" in texts
    elif out.endswith(b".jsonl"):
        lines = Path(os.fsdecode(out)).read_text(encoding="utf-8").splitlines()
        assert sorted(json.loads(line)["id"] for line in lines) == sorted(NAMES.values())


def test_captions_are_found_again_by_eval(
    cli: Cli, photos: str, tiny_captioner: Path, tiny_scorer: Path, tmp_path: Path
) -> None:
    captions = tmp_path / "c.jsonl"
    ids = [item.id for item in open_data(f"folder:{photos}")]
    captions.write_text("".join(json.dumps({"id": id_, "caption": "a red square"}) + "\n" for id_ in ids))
    about = ("--data", photos, "--scorer", tiny_scorer, "--metrics", "clipscore")
    done = cli("eval", "--captions", captions, *about, "--json")
    assert done.status == 0, done.err
    assert json.loads(done.out)["systems"]["c"]["clipscore"]["n"] == len(NAMES)


def test_members_of_an_archive(tmp_path: Path) -> None:
    pixels = io.BytesIO()
    Image.new("RGB", (60, 40)).save(pixels, "PNG")
    with tarfile.open(tmp_path / "shard.tar", "w", format=tarfile.GNU_FORMAT) as archive:
        for name in (b"caf\xe8.png", b"caf\xe9.png"):
            member = tarfile.TarInfo(os.fsdecode(name))
            member.size = len(pixels.getvalue())
            archive.addfile(member, io.BytesIO(pixels.getvalue()))
    data = open_data(f"webdataset:{tmp_path}/shard.tar")
    assert [item.id for item in data] == ["shard/caf%E8", "shard/caf%E9"]
    assert all(item.picture.image().size == (60, 40) for item in data)
