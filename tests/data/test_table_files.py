"""Parquet and Hugging Face data sets, written by their own libraries."""

import pickle
import sys
from pathlib import Path
from typing import Any

import pytest
from reader_help import all_of, draw, ids, png, wrong

from tellapart.data import open_data
from tellapart.data.field_rows import read_rows
from tellapart.errors import MissingExtra, PictureError

COLOURS = ["red", "blue", "green", "white", "black"]


def pixel(dataset: Any, number: int) -> Any:
    return dataset[number].picture.image().getpixel((0, 0))


def sent(value: Any) -> Any:
    """Returns what another process receives, as a `DataLoader` with workers sends it."""
    return pickle.loads(pickle.dumps(value))


def test_null_is_no_record(tmp_path: Path) -> None:
    for name, text in (("p.json", '[{"a": "x"}, null, {"a": "y"}]'), ("p.jsonl", '{"a": "x"}\n\nnull\n{"a": "y"}\n')):
        (tmp_path / name).write_text(text)
        assert [record for _, record in read_rows(tmp_path / name)] == [{"a": "x"}, {"a": "y"}]


def test_without_the_extra_one_line_says_what_to_install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    monkeypatch.setitem(sys.modules, "datasets", None)
    with pytest.raises(MissingExtra, match=r"tellapart\[parquet\]"):
        open_data(f"parquet:{tmp_path}")
    with pytest.raises(MissingExtra, match=r"tellapart\[datasets\]"):
        open_data(f"hf:{tmp_path}")


class TestParquet:
    @pytest.fixture(autouse=True)
    def needs_pyarrow(self) -> None:
        pytest.importorskip("pyarrow", reason="extra 'parquet' is not installed")

    def write(self, path: Path, **columns: list[Any]) -> Path:
        import pyarrow as pa
        import pyarrow.parquet as pq

        pq.write_table(pa.table(columns), path, row_group_size=2)
        return path

    def test_pictures_inside(self, tmp_path: Path) -> None:
        cells = [{"bytes": png(colour), "path": f"{colour}.png"} for colour in COLOURS]
        captions = [[f"{colour} one", "two  words"] for colour in COLOURS]
        self.write(tmp_path / "train-00000-of-00002.parquet", image=cells[:3], caption=captions[:3])
        self.write(tmp_path / "validation-00001-of-00002.parquet", image=cells[3:], caption=captions[3:])
        dataset = open_data(str(tmp_path))
        assert [item.references for item in dataset] == [(f"{colour} one", "two words") for colour in COLOURS]
        assert [item.split for item in dataset] == ["train"] * 3 + ["val"] * 2
        assert dataset[3].id == "validation-00001-of-00002#0"
        assert [pixel(dataset, n) for n in (4, 0, 2, 1)] == [(0, 0, 0), (255, 0, 0), (0, 128, 0), (0, 0, 255)]
        assert len(open_data(f"{tmp_path}/*.parquet?split=val")) == 2
        (tmp_path / "red.png").write_bytes(png())
        assert dataset[0].picture.key() == open_data(f"{tmp_path}/red.png")[0].picture.key()

    def test_bytes_paths_ids_and_rows_without_a_picture(self, tmp_path: Path) -> None:
        file = self.write(
            tmp_path / "a.parquet", jpg=[png(), None, b"no"], text=["x", None, "кот"], key=["k1", "k2", "k3"]
        )
        dataset = open_data(str(file))
        assert all_of(dataset) == [("k1", ("x",), ""), ("k2", (), ""), ("k3", ("кот",), "")]
        assert [dataset.load_image(item) is not None for item in dataset] == [True, False, False]
        assert next(why for _, why in dataset.unreadable) == "this row has no picture"
        draw(tmp_path / "p" / "1.png")
        paths = self.write(
            tmp_path / "b.parquet", file_name=["1.png", "2.png", "1.png"], text=["x", "y", "z"], split=["dev"] * 3
        )
        found = open_data(f"{paths}?images={tmp_path}/p")
        assert all_of(found) == [("1.png", ("x", "z"), "val")] and len(found.missing) == 1
        inside = self.write(tmp_path / "c.parquet", image=[{"bytes": None, "path": "p/1.png"}])
        assert pixel(open_data(str(inside)), 0) == (255, 0, 0)

    def test_addresses(self, tmp_path: Path) -> None:
        (tmp_path / "00000").mkdir()
        draw(tmp_path / "00000" / "000000001.jpg")
        file = self.write(
            tmp_path / "laion.parquet", URL=[f"https://a.org/{n}" for n in range(3)], TEXT=["x", "y", "z"]
        )
        assert all_of(open_data(str(file))) == [("00000/000000001.jpg", ("y",), "")]

    def test_columns_that_are_not_there_and_other_wrong_files(self, tmp_path: Path) -> None:
        file = self.write(tmp_path / "a.parquet", foo=[1], text=["x"])
        assert "no picture column was found; available columns: foo, text" in wrong(file)
        assert "no column 'img'; available columns: foo, text" in wrong(f"{file}?image=img")
        assert "the column 'foo' contains int64, but no pictures" in wrong(f"{file}?image=foo")
        number = self.write(tmp_path / "n.parquet", image=[png()], caption=[3])
        assert "expected a string or a list of strings, got '3'" in wrong(number)
        (tmp_path / "bad.parquet").write_bytes(b"PAR1")
        assert "bad.parquet: damaged, or not a Parquet file" in wrong(tmp_path / "bad.parquet")
        assert "no such file" in wrong(f"parquet:{tmp_path}/nope.parquet")
        self.write(tmp_path / "none.parquet", image=[], caption=[])
        assert wrong(tmp_path / "none.parquet")

    def test_a_damaged_file_amid_others_is_named(self, tmp_path: Path) -> None:
        for n in range(3):
            self.write(tmp_path / f"{n}.parquet", image=[png()], caption=["x"])
        (tmp_path / "0.parquet").write_bytes((tmp_path / "0.parquet").read_bytes()[:-20])
        dataset = open_data(str(tmp_path))
        assert ids(dataset) == ["1#0", "2#0"]
        [(name, why)] = dataset.missing
        assert name == str(tmp_path / "0.parquet") and why.startswith("damaged")

    def test_pictures_in_order_are_decoded_once_a_batch(self, tmp_path: Path) -> None:
        from tellapart.data.readers import parquet

        file = self.write(tmp_path / "a.parquet", image=[png()] * 9, caption=["x"] * 9)
        cursor = parquet.cursor(file, ("image",), 4)
        seeks: list[int] = []
        batch = cursor._batch
        cursor._batch = lambda number: (seeks.append(number), batch(number))[1]  # type: ignore[method-assign]
        assert [cursor[n]["image"] == png() for n in range(9)] == [True] * 9
        assert seeks == [0, 2, 4, 6, 8]  # a row group is two rows
        with pytest.raises(PictureError):
            cursor[9]

    def test_rows_of_one_group_in_any_order(self, tmp_path: Path) -> None:
        import pyarrow as pa
        import pyarrow.parquet as pq

        from tellapart.data.readers import parquet

        pq.write_table(pa.table({"n": list(range(9))}), tmp_path / "a.parquet")
        cursor = parquet.cursor(tmp_path / "a.parquet", ("n",), 2)
        assert [cursor[n]["n"] for n in (8, 1, 5, 4, 0, 7)] == [8, 1, 5, 4, 0, 7]

    def test_items_can_be_sent_to_other_processes(self, tmp_path: Path) -> None:
        import pyarrow
        import pyarrow.parquet

        pyarrow.parquet.write_table(pyarrow.table({"image": [png(c) for c in COLOURS]}), tmp_path / "p.parquet")
        dataset = open_data(str(tmp_path / "p.parquet"))
        assert [item.picture.key() for item in sent(dataset)] == [item.picture.key() for item in dataset]
        assert sent(dataset[1]).picture.key() == dataset[1].picture.key()


@pytest.mark.long
class TestHuggingFace:
    @pytest.fixture(autouse=True)
    def needs_datasets(self) -> None:
        pytest.importorskip("datasets", reason="extra 'datasets' is not installed")

    def test_saved_folder(self, tmp_path: Path) -> None:
        import datasets

        features = datasets.Features({"image": datasets.Image(), "caption": [datasets.Value("string")]})
        rows = {"image": [{"bytes": png(c), "path": None} for c in COLOURS], "caption": [[c, "x"] for c in COLOURS]}
        whole = datasets.Dataset.from_dict(rows, features=features)
        parts = datasets.DatasetDict(
            {"train": whole.select(range(3)), "validation": whole.select([3]), "test": whole.select([4])}
        )
        parts.save_to_disk(tmp_path / "saved")
        dataset = open_data(str(tmp_path / "saved"))
        assert all_of(dataset)[2:4] == [("train/2", ("green", "x"), "train"), ("validation/0", ("white", "x"), "val")]
        assert len(dataset) == 5 and [pixel(dataset, n) for n in (3, 1)] == [(255, 255, 255), (0, 0, 255)]
        assert ids(open_data(f"hf:{tmp_path}/saved?split=val,test")) == ["validation/0", "test/0"]
        assert "did you mean 'train'?" in wrong(f"hf:{tmp_path}/saved?split=trian")
        assert "no column 'alt'; available columns: image, caption" in wrong(f"hf:{tmp_path}/saved?captions=alt")
        assert [item.picture.key() for item in sent(dataset)] == [item.picture.key() for item in dataset]
        (tmp_path / "white.png").write_bytes(png("white"))
        assert dataset[3].picture.key() == open_data(f"{tmp_path}/white.png")[0].picture.key()

    def test_paths_one_part_and_wrong_names(self, tmp_path: Path) -> None:
        import datasets

        draw(tmp_path / "p" / "1.png")
        rows = {"file_name": ["1.png", "1.png", "2.png"], "text": ["a", "犬", "c"]}
        datasets.Dataset.from_dict(rows).save_to_disk(tmp_path / "saved")
        dataset = open_data(f"hf:{tmp_path}/saved?images={tmp_path}/p")
        assert all_of(dataset) == [("1.png", ("a", "犬"), "")] and len(dataset.missing) == 1
        assert "expected a folder written by save_to_disk" in wrong(f"hf:{tmp_path}/p")
        assert "a dataset name on the hub" in wrong("hf:nobody/has-this")
