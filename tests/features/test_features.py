"""The feature store: once for each picture, right rows, whole under kill -9, full disks and company."""

from __future__ import annotations

import json
import os
import resource
import signal
import sqlite3
import subprocess
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from command_line import Cli
from forked import finish, fork
from PIL import Image

from tellapart.captioners import load_captioner
from tellapart.data import Skipped, open_data
from tellapart.data.pictures import BytesPicture, ClipFile, FilePicture
from tellapart.errors import PictureError, TellapartError, UsageError
from tellapart.features import filling
from tellapart.features.row_makers import RowMaker, decodable, encoder_rows
from tellapart.features.store import FeatureStore
from tellapart.features.views import StreamedRows
from tellapart.scorers import load_scorer
from tellapart.types import Encoder, Item

COUNT = 12


class Counting:
    """A real, if small, encoder (mean colour times a matrix) that counts the pictures it is given."""

    def __init__(self, fingerprint: str = "mean colour", shape: tuple[int, ...] = (5,)) -> None:
        self.encoded = 0
        self.shape = shape
        self.matrix = torch.arange(3.0 * int(np.prod(shape))).reshape(3, -1) / 7
        self.encoder = Encoder(fingerprint, self._pixels, self._encode)

    def _pixels(self, images: Sequence[Image.Image]) -> torch.Tensor:
        return torch.stack([torch.from_numpy(np.array(image)).permute(2, 0, 1) / 255 for image in images])

    def _encode(self, pixels: torch.Tensor) -> torch.Tensor:
        self.encoded += len(pixels)
        return (pixels.mean((2, 3)) @ self.matrix).unflatten(1, self.shape)

    def expected(self, item: Item) -> np.ndarray:
        return self._encode(self._pixels([item.picture.image()]))[0].numpy()


def paint(folder: Path, count: int = COUNT, first: int = 0) -> list[Item]:
    folder.mkdir(exist_ok=True)
    items = []
    for number in range(first, first + count):
        path = folder / f"{number}.png"
        Image.new("RGB", (6, 6), (number * 5 % 256, 255 - number, number * number % 256)).save(path)
        os.utime(path, ns=(10**18, 10**18 + number))  # long settled
        items.append(Item(path.name, FilePicture(path)))
    return items


@pytest.fixture
def items(tmp_path: Path) -> list[Item]:
    return paint(tmp_path / "pictures")


@pytest.fixture
def store(tmp_path: Path) -> FeatureStore:
    return FeatureStore(tmp_path / "cache")


@pytest.mark.parametrize("shape", [(5,), (4, 3)])
def test_rows_are_the_encoders_in_the_order_of_the_items(
    store: FeatureStore, items: list[Item], shape: tuple[int, ...]
) -> None:
    counting = Counting(shape=shape)
    for order in (items, items[::-1], items[3:7], [items[4], items[1], items[4]]):
        features = store.features(order, counting.encoder)
        assert features.shape == (len(order), *shape) and features.dtype == np.float32
        np.testing.assert_allclose(features, [Counting(shape=shape).expected(item) for item in order], rtol=1e-6)
    assert counting.encoded == COUNT  # once, for all of these


def test_rows_are_read_when_asked_for_and_cannot_be_written_through(store: FeatureStore, items: list[Item]) -> None:
    counting = Counting()
    features = store.features(items, counting.encoder)
    before = np.asarray(features)
    for chosen in (slice(2, 9, 3), [4, 0, 4], np.array([11]), np.arange(0)):
        np.testing.assert_array_equal(features[chosen], before[chosen])
    assert features[3].shape == (5,) and np.array_equal(np.stack(list(features)), before)
    assert (features.ndim, features.nbytes) == (2, before.nbytes) and np.asarray(features, np.float64).dtype == float
    np.testing.assert_array_equal(features * 2 - features, before)
    assert (features == store.features(items, counting.encoder)).all()
    features[:][:] = 0
    np.testing.assert_array_equal(store.features(items, counting.encoder), before)


def test_a_second_store_and_more_pictures_encode_only_what_is_new(tmp_path: Path, items: list[Item]) -> None:
    counting = Counting()
    FeatureStore(tmp_path / "cache").features(items, counting.encoder)
    more = items + paint(tmp_path / "pictures", 3, first=COUNT)
    FeatureStore(tmp_path / "cache").features(more, counting.encoder)
    assert counting.encoded == COUNT + 3


def test_content_decides_not_the_name(store: FeatureStore, items: list[Item], tmp_path: Path) -> None:
    counting = Counting()
    first = np.asarray(store.features(items[:2], counting.encoder))
    path = items[0].picture.path
    copy = path.rename(tmp_path / "renamed.png")
    data = copy.read_bytes()
    again = [Item("0", FilePicture(copy)), Item("1", BytesPicture(data, "bytes"))]
    np.testing.assert_array_equal(store.features(again, counting.encoder), first[[0, 0]])
    assert counting.encoded == 2
    Image.new("RGB", (6, 6), "white").save(path)  # another content under the old name
    assert not np.allclose(store.features(items[:1], counting.encoder), first[:1])
    assert counting.encoded == 3


@pytest.mark.parametrize("batch_size", [1, 64])
def test_equal_pictures_are_encoded_once_within_a_pass(store: FeatureStore, items: list[Item], batch_size: int) -> None:
    counting = Counting()
    twice = [Item(name, BytesPicture(items[1].picture.path.read_bytes(), name)) for name in "ab"]
    features = store.features([items[1], *twice], counting.encoder, batch_size=batch_size)
    assert counting.encoded == 1 and (np.asarray(features) == features[0]).all()


def test_unchanged_files_are_not_even_opened(
    store: FeatureStore, items: list[Item], monkeypatch: pytest.MonkeyPatch
) -> None:
    counting = Counting()
    reads = []
    read = FilePicture.read
    monkeypatch.setattr(FilePicture, "read", lambda self: reads.append(self.name) or read(self))
    store.features(items, counting.encoder)
    assert len(reads) == COUNT  # hashed and decoded from one read
    store.features(items, counting.encoder)
    assert len(reads) == COUNT
    data = items[0].picture.path.read_bytes()
    items[0].picture.path.write_bytes(data)  # just changed: the clock's grain may hide another change
    for expected in (1, 2):
        store.features(items, counting.encoder)
        assert len(reads) == COUNT + expected
    assert counting.encoded == COUNT


def test_each_encoder_has_its_own_rows(store: FeatureStore, items: list[Item]) -> None:
    first, second = Counting("one"), Counting("two", shape=(2,))
    store.features(items, first.encoder)
    assert store.features(items, second.encoder).shape == (COUNT, 2)
    assert sorted((use.label, use.pictures, use.bytes) for use in store.usage()) == [
        ("features one", COUNT, COUNT * 5 * 4),
        ("features two", COUNT, COUNT * 2 * 4),
    ]


def test_unreadable_pictures(store: FeatureStore, items: list[Item], tmp_path: Path) -> None:
    (tmp_path / "pictures" / "bad.jpg").write_text("no picture")
    dataset = open_data(str(tmp_path / "pictures"))
    assert len(dataset) == COUNT + 1
    counting = Counting()
    with pytest.raises(
        PictureError, match=r"1 of 13 pictures could not be read: .*bad\.jpg: not a supported picture format"
    ):
        store.features(dataset, counting.encoder)
    skipped = Skipped()
    kept = store.readable(dataset, counting.encoder, skipped=skipped)
    assert [item.id for item in kept] == [item.id for item in items]
    assert [name for name, _ in skipped] == [str(tmp_path / "pictures" / "bad.jpg")]
    assert len(store.features(kept, counting.encoder)) == COUNT
    assert counting.encoded == COUNT
    items[3].picture.path.unlink()
    with pytest.raises(PictureError, match=r"3\.png: no such file"):
        store.features(items, counting.encoder)


def test_encoders_that_are_wrong(store: FeatureStore, items: list[Item]) -> None:
    store.features(items[:2], Counting(shape=(5,)).encoder)
    with pytest.raises(TellapartError, match="same fingerprint"):
        store.features(items, Counting(shape=(6,)).encoder)
    counting = Counting("nan")
    counting.matrix[0, 0] = torch.nan
    with pytest.raises(TellapartError, match=r"NaN or infinity for .*0\.png"):
        store.features(items, counting.encoder)
    assert [use.label for use in store.usage()] == ["features mean colour"]
    with pytest.raises(TellapartError, match="No pictures"):
        store.features([], counting.encoder)


def test_rows_of_another_maker(store: FeatureStore, tmp_path: Path) -> None:
    wide = np.zeros((10, 30, 3), np.uint8)
    wide[:, 10:20] = (9, 200, 30)
    Image.fromarray(wide).save(tmp_path / "wide.png")
    item = Item("wide", FilePicture(tmp_path / "wide.png"))
    corners = RowMaker("corners", lambda images: np.asarray(images[0])[:1, ::10], np.stack)
    rows = store.rows([item], corners)
    assert rows.dtype == np.uint8 and rows[0, 0].tolist() == [[0, 0, 0], [9, 200, 30], [0, 0, 0]]
    assert store.readable([item], corners) == [item]


def test_least_recently_used_goes_first(tmp_path: Path, items: list[Item]) -> None:
    one_table = COUNT * 5 * 4
    store = FeatureStore(tmp_path / "cache", limit_gb=2.5 * one_table / 1e9)
    encoders = {name: Counting(name) for name in "abc"}
    held = store.features(items, encoders["a"].encoder)
    store.features(items, encoders["b"].encoder)
    store.features(items, encoders["a"].encoder)  # now b is the older one
    store.features(items, encoders["c"].encoder)
    assert [use.label for use in store.usage()] == ["features c", "features a"]
    assert len(list((tmp_path / "cache").glob("features/*.bin"))) == 2
    np.testing.assert_allclose(held[0], Counting().expected(items[0]), rtol=1e-6)
    store.features(items, encoders["b"].encoder)
    assert [encoders[name].encoded for name in "abc"] == [COUNT, 2 * COUNT, COUNT]
    # What is mapped stays readable though its file is gone, and the one in use is kept beyond the limit.
    np.testing.assert_allclose(held[-1], Counting().expected(items[-1]), rtol=1e-6)
    tight = FeatureStore(tmp_path / "cache", limit_gb=0)
    assert len(tight.features(items, encoders["a"].encoder)) == COUNT
    assert [use.label for use in tight.usage()] == ["features a"]


def test_empty(store: FeatureStore, items: list[Item]) -> None:
    assert store.empty() == 0 and store.usage() == []
    counting = Counting()
    store.features(items, counting.encoder)
    (store.folder / "mine.txt").write_text("not the cache's")
    assert store.empty() == COUNT * 5 * 4
    assert store.usage() == [] and (store.folder / "mine.txt").exists()
    store.features(items, counting.encoder)
    assert counting.encoded == 2 * COUNT


def test_a_damaged_index_says_what_to_type_and_empties(store: FeatureStore, items: list[Item]) -> None:
    counting = Counting()
    store.features(items, counting.encoder)
    (store.folder / "features" / "index.sqlite").write_bytes(b"no database" * 1000)
    with pytest.raises(TellapartError, match=r"damaged.*tellapart cache --empty"):
        store.features(items, counting.encoder)
    store.empty()
    assert len(store.features(items, counting.encoder)) == COUNT


def test_a_lost_row_file_is_made_again(store: FeatureStore, items: list[Item]) -> None:
    counting = Counting()
    before = np.asarray(store.features(items, counting.encoder))
    for file in store.folder.glob("features/*.bin"):
        file.unlink()
    np.testing.assert_array_equal(store.features(items, counting.encoder), before)
    assert counting.encoded == 2 * COUNT


def test_settings_from_the_environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TELLAPART_CACHE", str(tmp_path / "here"))
    assert FeatureStore().folder == tmp_path / "here"
    monkeypatch.setenv("TELLAPART_CACHE_GB", "much")
    with pytest.raises(UsageError, match="TELLAPART_CACHE_GB must be a number of gigabytes such as 20; got 'much'"):
        FeatureStore()
    monkeypatch.setenv("TELLAPART_CACHE_GB", "")
    (tmp_path / "file").write_text("x")
    with pytest.raises(TellapartError, match="TELLAPART_CACHE"):
        FeatureStore(tmp_path / "file").features([Item("x", BytesPicture(b"", "x"))], Counting().encoder)


def test_an_index_of_another_version(store: FeatureStore, items: list[Item]) -> None:
    store.features(items, Counting().encoder)
    index = sqlite3.connect(store.folder / "features" / "index.sqlite")
    index.execute("PRAGMA user_version = 99")
    index.close()
    with pytest.raises(TellapartError, match="another version"):
        store.usage()


def test_damaged_rows_are_told_and_encoded_again(
    store: FeatureStore, items: list[Item], capsys: pytest.CaptureFixture[str]
) -> None:
    counting = Counting()
    features = np.array(store.features(items, counting.encoder))
    (file,) = store.folder.glob("features/*.bin")
    whole = bytearray(file.read_bytes())
    half = len(whole) // 2
    file.write_bytes(bytes(half) + whole[half:])
    capsys.readouterr()
    again = FeatureStore(store.folder)
    assert np.array_equal(again.features(items, counting.encoder), features)
    damaged = COUNT // 2 - 1 if not features[0].any() else COUNT // 2
    assert f": {damaged} cached rows are damaged; encoding them again" in capsys.readouterr().err
    assert counting.encoded == COUNT + damaged
    assert np.array_equal(FeatureStore(store.folder).features(items, counting.encoder), features)
    assert "damaged" not in capsys.readouterr().err and counting.encoded == COUNT + damaged


def test_a_damaged_array_that_was_kept_is_made_again(store: FeatureStore) -> None:
    made = np.arange(20.0).reshape(4, 5)
    store.cached("neighbours", lambda: made)
    (file,) = store.folder.glob("features/*.bin")
    data = bytearray(file.read_bytes())
    data[50] ^= 1
    file.write_bytes(data)
    assert np.array_equal(FeatureStore(store.folder).cached("neighbours", lambda: made), made)
    assert np.array_equal(FeatureStore(store.folder).cached("neighbours", lambda: made[:0]), made)


def test_one_encoders_rows_are_removed_by_name(
    cli: Cli, store: FeatureStore, items: list[Item], monkeypatch: pytest.MonkeyPatch
) -> None:
    first, second = Counting("one"), Counting("two", shape=(2,))
    store.features(items, replace(first.encoder, name="runs/a"))
    store.features(items, replace(second.encoder, name="runs/b"))
    monkeypatch.setenv("TELLAPART_CACHE", str(store.folder))
    shown = json.loads(cli("cache", "--json").out)["encoders"]
    assert {(each["name"], each["bytes"]) for each in shown} == {("runs/a", COUNT * 20), ("runs/b", COUNT * 8)}
    assert "runs/a" in cli("cache").out
    done = cli("cache", "--remove", "runs/c")
    assert done.status == 2 and "no encoder 'runs/c'; did you mean 'runs/" in done.line
    assert "no encoder 'x'; run tellapart cache to list all 2" in cli("cache", "--remove", "x").line
    assert json.loads(cli("cache", "--remove", "runs/a", "--json").out)["freed_bytes"] == COUNT * 20
    assert [use.name for use in store.usage()] == ["runs/b"] and len(list(store.folder.glob("features/*.bin"))) == 1
    store.features(items, second.encoder)
    assert second.encoded == COUNT
    assert "one of them" in cli("cache", "--empty", "--remove", "runs/b").line


# -- other processes, kill -9, full disks


def encode_slowly(folder: Path, delay: float, go: Path | None = None) -> None:
    """Encodes the pictures, two at a time, and saves each pair at once; ``go``: once this file is there."""
    filling.APPEND_SECONDS = 0.0
    items = open_data(str(folder / "pictures"))
    counting = Counting()

    def slow(pixels: torch.Tensor) -> torch.Tensor:
        time.sleep(delay)
        return counting._encode(pixels)

    encoder = Encoder("mean colour", counting._pixels, slow)
    print("ready", flush=True)
    while go is not None and not go.exists():
        time.sleep(0.001)
    FeatureStore(folder / "cache").features(items, encoder, batch_size=2)
    print("encoded", counting.encoded, flush=True)


@pytest.mark.long
def test_kill_9_leaves_only_whole_rows(tmp_path: Path, items: list[Item], store: FeatureStore) -> None:
    process = fork(encode_slowly, tmp_path, 0.1, printed=tmp_path / "printed")
    deadline = time.monotonic() + 60
    while not (store.usage() and store.usage()[0].pictures >= 4):
        assert time.monotonic() < deadline and process.exitcode is None
        time.sleep(0.02)
    process.kill()
    process.join()
    assert process.exitcode == -signal.SIGKILL
    kept = store.usage()[0].pictures
    assert 4 <= kept < COUNT
    with (next(store.folder.glob("features/*.bin"))).open("ab") as file:
        file.write(b"half a row")  # as a kill between the bytes and the index leaves it
    counting = Counting()
    features = store.features(items, counting.encoder)
    assert counting.encoded == COUNT - kept
    np.testing.assert_allclose(features, [Counting().expected(item) for item in items], rtol=1e-6)


@pytest.mark.long
def test_two_processes_at_once_store_every_row_once(tmp_path: Path, items: list[Item], store: FeatureStore) -> None:
    outputs = [tmp_path / "first", tmp_path / "second"]
    pair = [fork(encode_slowly, tmp_path, 0.05, tmp_path / "go", printed=output) for output in outputs]
    deadline = time.monotonic() + 60
    while not all(output.is_file() and output.read_text() == "ready\n" for output in outputs):
        assert time.monotonic() < deadline and not any(process.exitcode for process in pair)
        time.sleep(0.02)
    (tmp_path / "go").touch()
    for process, output in zip(pair, outputs, strict=True):
        finish([process], output)
    assert COUNT <= sum(int(output.read_text().split()[-1]) for output in outputs) <= 2 * COUNT
    [use] = store.usage()
    assert (use.pictures, use.bytes) == (COUNT, COUNT * 5 * 4)
    counting = Counting()
    features = store.features(items, counting.encoder)
    assert counting.encoded == 0
    np.testing.assert_allclose(features, [Counting().expected(item) for item in items], rtol=1e-6)


# -- batches, precision, order, streaming


HISTORIES = {
    "all at once": [slice(None)],
    "some before": [slice(3, 8), slice(None)],
    "one by one": [*(slice(n, n + 1) for n in reversed(range(9))), slice(None)],
}


@pytest.mark.parametrize("part", ["scorer", "captioner"])
def test_features_do_not_depend_on_what_was_encoded_before(
    part: str, tiny_scorer: Path, tiny_captioner: Path, tmp_path: Path
) -> None:
    scenes = list(open_data("scenes:plain?n=40"))
    encoder = load_scorer(str(tiny_scorer)).encoder if part == "scorer" else load_captioner(str(tiny_captioner)).encoder
    rows = []
    for name, history in HISTORIES.items():
        store = FeatureStore(tmp_path / name)
        rows += [np.asarray(store.features(scenes[chosen], encoder)) for chosen in history][-1:]
    assert all(np.array_equal(rows[0], other) for other in rows[1:])


def test_another_order_is_no_second_copy(store: FeatureStore, items: list[Item]) -> None:
    counting = Counting()
    whole = np.asarray(store.features(items, counting.encoder, batch_size=5))
    order = np.random.default_rng(0).permutation(COUNT)
    before = sorted(store.folder.rglob("*"))
    shuffled = store.features([items[n] for n in order], counting.encoder)
    assert np.array_equal(shuffled, whole[order]) and np.array_equal(shuffled[5:2:-1], whole[order][5:2:-1])
    assert sorted(store.folder.rglob("*")) == before and counting.encoded == COUNT


@pytest.mark.parametrize(("precision", "dtype"), [("bf16", torch.bfloat16), ("fp16", torch.float16)])
def test_half_precision_is_kept_in_half_the_bytes_and_no_bit_is_lost(
    store: FeatureStore, items: list[Item], precision: str, dtype: torch.dtype
) -> None:
    counting = Counting()

    def half(pixels: torch.Tensor) -> torch.Tensor:
        return counting._encode(pixels).to(dtype)

    encoder = Encoder("mean colour", counting._pixels, half, precision=precision)
    store.features(items, counting.encoder)  # the same weights in full precision have rows of their own
    rows = store.features(items, encoder)
    assert rows.dtype == np.float32 and {use.label: use.bytes for use in store.usage()} == {
        "features mean colour": COUNT * 5 * 4, f"features mean colour {precision}": COUNT * 5 * 2,
    }  # fmt: skip
    expected = half(torch.cat([counting._pixels([item.picture.image()]) for item in items])).float()
    assert np.array_equal(FeatureStore(store.folder).features(items[::-1], encoder), expected.numpy()[::-1])
    full = Encoder("normalised", counting._pixels, counting._encode, precision=precision)
    assert np.array_equal(store.features(items, full), store.features(items, counting.encoder)), "kept as they are"


def test_the_estimate_is_told_before_the_rest_is_encoded(
    tmp_path: Path, items: list[Item], capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    counting = Counting(shape=(7, 5))
    told: list[tuple[int, str]] = []
    monkeypatch.setattr(filling, "say", lambda line: told.append((counting.encoded, line)))
    FeatureStore(tmp_path / "cache", limit_gb=1e-6).features(items, counting.encoder, batch_size=4)
    [(encoded, line)] = told
    assert encoded == 4 and "at most 12 pictures × 7×5 float32 = 0.0 GB to store; 0.0 of 1e-06 GB are used" in line
    assert line.endswith('raise TELLAPART_CACHE_GB, or disable storing with features = "off"')
    FeatureStore(tmp_path / "roomy").features(items, counting.encoder)
    assert len(told) == 1, "little is not worth a line"


def test_streamed_rows_are_the_stores_and_nothing_is_kept(
    store: FeatureStore, items: list[Item], tmp_path: Path
) -> None:
    counting = Counting()
    kept = np.asarray(store.features(items, counting.encoder))
    rows = StreamedRows(items, encoder_rows(counting.encoder), batch_size=5)
    assert len(rows) == COUNT
    for chosen in (slice(None), slice(3, 9), np.array([7, 0, 7])):
        assert np.array_equal(rows[chosen], kept[chosen])
    (tmp_path / "pictures" / "bad.jpg").write_bytes(items[0].picture.path.read_bytes()[:50])
    dataset, fresh = open_data(str(tmp_path / "pictures")), FeatureStore(tmp_path / "fresh")
    assert len(fresh.readable(dataset, decodable(), skipped=dataset.unreadable)) == COUNT
    assert [name for name, _ in dataset.unreadable] == [str(tmp_path / "pictures" / "bad.jpg")]
    assert [use.bytes for use in fresh.usage()] == [COUNT]


def fill_a_disk(folder: Path) -> None:
    """Encodes a picture, and then all with room for two and a half rows."""
    items = open_data(str(folder / "pictures"))
    counting = Counting(shape=(100_000,))
    store = FeatureStore(folder / "cache")
    store.features(items[:1], counting.encoder)
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1_000_000, 1_000_000))
    try:
        store.features(items, counting.encoder)
    except TellapartError as error:
        print(error, flush=True)


@pytest.mark.long
def test_file_size_limit_stands_for_a_full_disk(tmp_path: Path, items: list[Item], store: FeatureStore) -> None:
    """A real write error of the system (RLIMIT_FSIZE), in the middle of a row."""
    finish([fork(fill_a_disk, tmp_path, printed=tmp_path / "printed")], tmp_path / "printed")
    assert "the cache cannot be used (File too large)" in (tmp_path / "printed").read_text()
    [use] = store.usage()
    assert (use.pictures, use.bytes) == (1, 400_000)  # nothing half-written is left


def test_an_index_that_cannot_be_written_is_not_called_damaged(tmp_path: Path, items: list[Item]) -> None:
    """RLIMIT_FSIZE below SQLite's first pages: to empty the cache would not help."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1000, hard))
    try:
        with pytest.raises(TellapartError, match=r"cannot be read or written \(disk I/O error\); set TELLAPART_CACHE"):
            FeatureStore(tmp_path / "new").features(items[:1], Counting().encoder)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


def test_full_disk_is_one_line(tmp_path: Path, items: list[Item]) -> None:
    """A disk of 1 MiB, where this machine lets us mount one."""
    disk = tmp_path / "disk"
    disk.mkdir()
    mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", str(disk)], capture_output=True)
    if mounted.returncode:
        pytest.skip("mounting a small disk needs root and the right to mount")
    try:
        store = FeatureStore(disk)
        counting = Counting(shape=(40_000,))
        store.features(items[:2], counting.encoder)
        with pytest.raises(TellapartError, match=r"no space left.*tellapart cache --empty"):
            store.features(items, counting.encoder)
        assert [(use.pictures, use.bytes) for use in store.usage()] == [(2, 2 * 160_000)]
        assert len(store.features(items[:2], counting.encoder)) == 2
        store.empty()
        assert len(store.features(items[:3], counting.encoder)) == 3
    finally:
        subprocess.run(["umount", str(disk)], check=True)


# Clips


def joined(features_F: torch.Tensor) -> torch.Tensor:
    """Three frames as one row; a picture that stands still three times."""
    return features_F.expand(3, -1).flatten()


def paint_gif(path: Path, levels: Sequence[int]) -> Item:
    first, *others = [Image.new("RGB", (6, 6), (level, level, level)) for level in levels]
    first.save(path, save_all=True, append_images=others, duration=100)
    return Item(path.name, ClipFile(path))


def test_rows_of_clips_join_their_frames_beside_pictures_that_stand_still(
    store: FeatureStore, items: list[Item], tmp_path: Path
) -> None:
    counting = Counting()
    clips = [paint_gif(tmp_path / f"{n}.gif", range(n, 250, 40)) for n in range(5)]
    encoder = Encoder("three", counting._pixels, counting._encode, 3, joined)
    mixed = [clips[0], items[0], *clips[1:], items[1]]
    for _ in range(2):  # encoded, and read back
        features = store.features(mixed, encoder, batch_size=4)
        for item, row in zip(mixed, features, strict=True):
            frames = item.picture.frames(3) if isinstance(item.picture, ClipFile) else [item.picture.image()] * 3
            expected = torch.cat([counting._encode(counting._pixels([frame])) for frame in frames]).flatten()
            np.testing.assert_allclose(row, expected.numpy(), rtol=1e-6)
    counting.encoded = 0
    store.features(mixed, encoder)
    assert counting.encoded == 0


def test_the_number_of_frames_is_part_of_a_rows_key(store: FeatureStore, tmp_path: Path) -> None:
    counting, clip = Counting(), paint_gif(tmp_path / "a.gif", [0, 0, 200, 200])
    still = Item("still", FilePicture(tmp_path / "a.gif"))  # the same bytes, of which the first frame counts

    def mean(count: int) -> float:
        encoder = Encoder("mean", counting._pixels, counting._encode, count, lambda rows_F: rows_F.mean(0))
        return float(store.features([clip], encoder)[0, 1])

    assert mean(4) == pytest.approx(mean(8)) and mean(1) == pytest.approx(2 * mean(4)) and mean(4) > 0
    assert float(store.features([still], Encoder("mean", counting._pixels, counting._encode))[0, 1]) == 0.0
    first = RowMaker("first pixel", lambda images: np.asarray(images[0])[0, 0], np.stack)
    assert store.rows([still, clip], first)[:, 0].tolist() == [0, 200], "the first frame, the middle one"


def test_broken_clips_are_named_and_left_out(store: FeatureStore, items: list[Item], tmp_path: Path) -> None:
    (tmp_path / "bad.gif").write_bytes(b"GIF89a" + b"\0" * 20)
    (tmp_path / "none.gif").write_bytes(b"")
    broken = [Item(name, ClipFile(tmp_path / name)) for name in ("bad.gif", "none.gif", "away.gif")]
    encoder, skipped = Encoder("x", Counting()._pixels, Counting()._encode, 3, joined), Skipped()
    good = paint_gif(tmp_path / "good.gif", [1, 2])
    assert store.readable([*broken, good, items[0]], encoder, skipped=skipped) == [good, items[0]]
    assert [Path(name).name for name, _ in skipped] == ["bad.gif", "none.gif", "away.gif"]
    assert skipped.line(5).startswith("3 of 5 pictures could not be read: ")  # type: ignore[union-attr]
    with pytest.raises(PictureError, match=r"3 of 4 pictures could not be read: .*bad\.gif"):
        store.features([*broken, good], encoder)


def test_a_scorers_clip_is_the_normalised_mean_of_its_frames(store: FeatureStore, tiny_scorer: Path) -> None:
    scorer = load_scorer(str(tiny_scorer))
    items = list(open_data("scenes:plain?frames=4&n=3")) + list(open_data("scenes:plain?n=2"))
    features = store.features(items, scorer.encoder)
    for item, row in zip(items, features, strict=True):
        frames = item.picture.frames()
        mean = scorer.image_features(scorer.pixels(frames)).detach().mean(0).numpy()
        np.testing.assert_allclose(row, mean / np.linalg.norm(mean), atol=1e-5)
    assert len({row.tobytes() for row in features}) == 5
