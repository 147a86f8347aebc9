"""Features from files: layouts, what is wrong with one, and a captioner that trains, speaks and goes on with them."""

from __future__ import annotations

import builtins
import json
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from command_line import Cli

from tellapart.bags.feature_shards import FeatureShards
from tellapart.captioners import load_captioner
from tellapart.data import open_data
from tellapart.data.pictures import BytesPicture
from tellapart.errors import MissingExtra, UsageError
from tellapart.features.feature_files import FeatureFiles
from tellapart.inference.caption import caption_pictures
from tellapart.models.decoding import Decoding
from tellapart.recipe.reading import check_recipe
from tellapart.recipe.schema import NewCaptioner, NewScorer
from tellapart.training.new_models import build_captioner, build_scorer
from tellapart.training.runs import train
from tellapart.types import Item

DATA = {part: f"scenes:plain?n={n}&split={part}" for part, n in (("train", 30), ("validation", 12), ("test", 12))}
WIDTH = 5


def array_of(item: Item, regions: int | None = 3) -> np.ndarray:
    rng = np.random.default_rng(int.from_bytes(item.id.encode()[-6:]))
    return rng.normal(size=WIDTH if regions is None else (regions, WIDTH)).astype(np.float32)


@pytest.fixture
def items() -> list[Item]:
    return list(open_data(DATA["test"]))


def save_npz(folder: Path, items: list[Item], key: str = "x") -> Path:
    """As bottom-up-attention programs write them; an object beside the features, which only pickle could read."""
    for n, item in enumerate(items):
        file = folder / f"{item.id}.npz"
        file.parent.mkdir(parents=True, exist_ok=True)
        told: dict[str, Any] = {key: array_of(item, 2 + n % 3), "num_bbox": 2 + n % 3, "info": np.array({"a": 1})}
        np.savez_compressed(file, **told)
    return folder


@pytest.mark.parametrize("key", ["x", "feat", "features"])
def test_a_folder_of_npz_gives_rows_filled_up_with_zeros(items: list[Item], tmp_path: Path, key: str) -> None:
    rows = FeatureFiles.open(save_npz(tmp_path, items, key)).rows(items, WIDTH)
    block = rows[:3]
    assert len(rows) == len(items) and block.shape == (3, 4, WIDTH) and block.dtype == np.float32
    for n in range(3):
        assert np.array_equal(block[n, : 2 + n], array_of(items[n], 2 + n)) and not block[n, 2 + n :].any()
    chosen = rows[np.array([2, 0])]
    assert np.array_equal(chosen[0], block[2]) and np.array_equal(chosen[1, :2], block[0, :2])


def test_npy_files_under_names_without_suffix(tmp_path: Path) -> None:
    items = [Item("a.jpg", None), Item("b.jpg", None)]  # type: ignore[arg-type]
    np.save(tmp_path / "a.npy", np.arange(4.0))
    np.save(tmp_path / "b.jpg.npy", np.ones(4, np.float16))
    assert FeatureFiles.open(tmp_path).rows(items)[:].tolist() == [[0, 1, 2, 3], [1, 1, 1, 1]]


@pytest.mark.parametrize("place", ["{}", "{}_features", "{}/features"])
def test_hdf5_in_its_three_layouts(items: list[Item], tmp_path: Path, place: str) -> None:
    h5py = pytest.importorskip("h5py")
    with h5py.File(tmp_path / "all.h5", "w") as file:
        for item in items:
            file[place.format(item.id)] = array_of(item)
            if place != "{}":
                file[place.format(item.id).replace("features", "boxes")] = np.zeros((3, 4))
    rows = FeatureFiles.open(tmp_path / "all.h5").rows(items, WIDTH)
    assert np.array_equal(rows[:], np.stack([array_of(item) for item in items]))


def test_what_is_wrong_is_named(items: list[Item], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = save_npz(tmp_path / "good", items)
    with pytest.raises(UsageError, match=r": tiny has 5 numbers per region, but the captioner expects 7$"):
        np.savez(folder / "tiny.npz", x=np.ones((2, WIDTH)))
        FeatureFiles.open(folder).rows([Item("tiny", None)], 7)  # type: ignore[arg-type]
    others = [*items, Item("nobody", None)]  # type: ignore[arg-type]
    with pytest.raises(UsageError, match=r"has no features for 1 of 13 pictures \(first: nobody\); expected them"):
        FeatureFiles.open(folder).rows(others)
    for name, arrays, told in (
        ("nan", {"x": np.full((2, WIDTH), np.nan)}, ": nan contains NaN or infinity; expected"),
        ("deep", {"x": np.ones((2, 2, WIDTH))}, r"deep is float64 \(2, 2, 5\); expected numbers, D or regions × D"),
        ("words", {"x": np.array(["a"])}, "words is <U1"),
        ("two", {"p": np.ones(3), "q": np.ones(3)}, "two.npz contains p, q; expected features under one of"),
    ):
        np.savez(folder / f"{name}.npz", **arrays)
        with pytest.raises(UsageError, match=told):
            FeatureFiles.open(folder).read(name)
    np.savez(folder / "object.npz", x=np.array({"a": 1}))
    with pytest.raises(UsageError, match=r"cannot read .*object.npz as a numpy file: Object arrays cannot be loaded"):
        FeatureFiles.open(folder).read("object")
    (folder / "torn.npz").write_bytes((folder / "two.npz").read_bytes()[:40])
    with pytest.raises(UsageError, match=r"cannot read .*torn.npz as a numpy file:"):
        FeatureFiles.open(folder).read("torn")
    with pytest.raises(UsageError, match=r"features nowhere do not exist; expected a folder of .npz or"):
        FeatureFiles.open("nowhere")
    (tmp_path / "a.txt").write_text("x")
    with pytest.raises(UsageError, match=r"a.txt: expected a folder of .npz or .npy"):
        FeatureFiles.open(tmp_path / "a.txt")
    (tmp_path / "a.h5").write_text("x")
    with pytest.raises(UsageError, match=r"a.h5 is not an HDF5 file \("):
        FeatureFiles.open(tmp_path / "a.h5")
    plain = builtins.__import__

    def without(name: str, *rest: Any) -> Any:
        if name == "h5py":
            raise ImportError(name)
        return plain(name, *rest)

    monkeypatch.setattr(builtins, "__import__", without)
    with pytest.raises(MissingExtra, match=r"pip install 'tellapart\[regions\]'"):
        FeatureFiles.open(tmp_path / "a.h5")


@pytest.mark.long
def test_damaged_headers_of_npy_files_are_one_line(tmp_path: Path) -> None:
    """Any byte turned over, or other brackets, types and sizes: NumPy answers with almost any exception."""
    np.save(tmp_path / "a.npy", np.ones((4, 3), np.float32))
    whole, errors = (tmp_path / "a.npy").read_bytes(), set[str]()
    headers = [whole[:at] + bytes([whole[at] ^ 1 << bit]) + whole[at + 1 :] for at in range(128) for bit in range(8)]
    shapes = (b"(-4,-3)", b"((((((((", b"(4e9, 3)", b"9**9**9,", b"(4,3)+")
    headers += [whole.replace(b"(4, 3), ", text) for text in shapes]
    item = Item("a", BytesPicture(b"", "a"))
    for data in headers:
        (tmp_path / "a.npy").write_bytes(data)
        for read in (partial(FeatureFiles.open(tmp_path).rows, [item], None), partial(FeatureShards.open, tmp_path)):
            try:
                read()
            except UsageError as error:
                errors.add(str(error))
    assert len(errors) > 20 and all(str(tmp_path) in error and "\n" not in error for error in errors)


@pytest.mark.long
def test_a_captioner_trains_and_speaks_with_features_from_files(
    items: list[Item], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """No picture is opened, one picture without features is left out and named, and the model goes on from its run."""
    everything = [item for spec in DATA.values() for item in open_data(spec)]
    folder = save_npz(tmp_path / "features", everything)
    lost = next(iter(open_data(DATA["train"]))).id
    (folder / f"{lost}.npz").unlink()
    table = {
        "name": "regions",
        "data": DATA,
        "captioner": {
            "new": {"kind": "recurrent", "attention": True, "width": 16, "min_count": 1},
            "features": str(folder),
        },
        "objective": {"kind": "mle"},
        "training": {"steps": 4, "batch_size": 10, "learning_rate": 1e-2, "log_every": 1, "checkpoint_every": 2},
        "validation": {"every": 2, "select": "loss", "decoding": {"max_tokens": 6}},
        "evaluation": {"decoding": {"max_tokens": 6}, "gallery": 0},
    }
    run = train(check_recipe(table, "test"), tmp_path / "run")
    assert f"1 of 30 pictures could not be read: {lost} (no features in" in capsys.readouterr().err
    said = [json.loads(line) for line in (run.folder / "captions" / "after.jsonl").read_text().splitlines()]
    assert [line["id"] for line in said] == [item.id for item in items]
    captioner = load_captioner(str(run.folder))
    assert captioner.processor is None and captioner.model.config.visual_size == WIDTH
    out = tmp_path / "captions.jsonl"
    told = caption_pictures(
        captioner, open_data(DATA["test"]), out, decoding=Decoding(max_tokens=6), features=str(folder), progress=False
    )
    assert told.written == len(items)
    again = {
        json.loads(line)["id"]: json.loads(line)["caption"] for line in out.read_text().splitlines() if '"id"' in line
    }
    assert again == {line["id"]: line["caption"] for line in said}
    truthful = tmp_path / "truthful.jsonl"
    caption_pictures(
        captioner, open_data(DATA["test"]), truthful, decoding=Decoding(max_tokens=6), features=str(folder),
        drop_guesses=True, batch_size=5, progress=False,
    )  # fmt: skip
    assert len(truthful.read_text().splitlines()) == len(items)
    with pytest.raises(UsageError, match="has no vision encoder and reads features from files; in a"):
        caption_pictures(captioner, open_data(DATA["test"]), tmp_path / "x.jsonl", decoding=Decoding())


def test_a_clipcap_refuses_different_numbers_of_regions(items: list[Item], tmp_path: Path, cli: Cli) -> None:
    """It does not know which rows only fill up, so its captions would depend on the other pictures of the batch."""
    torch.manual_seed(0)
    scorer = build_scorer(NewScorer(image_size=32, width=4, text_width=16, text_heads=2, projection=16), ["a"], "tiny")
    new = NewCaptioner(vision="tiny", visual="cells", mapper="linear", width=16, heads=2, layers=1)
    captioner = build_captioner(new, ["a red dog"], scorer.model.vision_model, scorer.processor, "tiny")
    captioner.save(tmp_path / "clipcap")
    width = captioner.model.config.visual_size
    for n, item in enumerate(items):
        (tmp_path / "same").mkdir(exist_ok=True)
        (tmp_path / "many").mkdir(exist_ok=True)
        np.save(tmp_path / "same" / f"{item.id}.npy", np.ones((3, width), np.float32) * n)
        np.save(tmp_path / "many" / f"{item.id}.npy", np.ones((3 + n // 6, width), np.float32) * n)
    model, options = f"{tmp_path}/clipcap?features={tmp_path}", ("--max-tokens", 6, "--beams", 1, "--batch-size", 6)
    done = cli("caption", f"{model}/same", DATA["test"], *options, "-o", tmp_path / "same.jsonl")
    assert done.status == 0, done.err
    done = cli("caption", f"{model}/many", DATA["test"], *options, "-o", tmp_path / "many.jsonl")
    assert done.status == 2 and f"has shape (3, {width}) but {items[6].id} has (4, {width})" in done.line, done.err


def test_pictures_of_equal_names_in_two_folders_do_not_share_features(tmp_path: Path) -> None:
    items = [Item("a/1.jpg", None), Item("b/1.jpg", None)]  # type: ignore[arg-type]
    np.save(tmp_path / "1.npy", np.ones(4))
    with pytest.raises(UsageError, match=r": a/1.jpg and b/1.jpg would share the features '1'; .*including folders"):
        FeatureFiles.open(tmp_path).rows(items)
    for number, folder in enumerate("ab"):
        (tmp_path / folder).mkdir()
        np.save(tmp_path / folder / "1.npy", np.full(2, number))
    assert FeatureFiles.open(tmp_path).rows(items)[:].tolist() == [[0, 0], [1, 1]]
