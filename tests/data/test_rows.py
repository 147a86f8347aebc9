"""Readers of rows: CSV, WebDataset, and what they share; and what interrupted downloads leave behind."""

import base64
import json
import os
import tarfile
from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from reader_help import all_of, draw, ids, png, tar, wrong

from tellapart.data import Skipped, open_data
from tellapart.data.caption_files import read_caption_file, read_reference_file
from tellapart.data.file_patterns import expand_pattern
from tellapart.data.readers import webdataset
from tellapart.data.row_index import RowIndex
from tellapart.errors import PictureError
from tellapart.features.row_makers import RowMaker
from tellapart.features.store import FeatureStore

# -- what rows share


def test_items_are_made_on_demand_and_slices_stay_so(tmp_path: Path) -> None:
    draw(tmp_path / "a.png")
    lines = [{"image": "a.png", "id": n, "caption": f"caption {n}", "split": "val" if n % 2 else ""} for n in range(9)]
    file = tmp_path / "d.jsonl"
    file.write_text("\n\n".join(map(json.dumps, lines)))
    dataset = open_data(f"{file}?split=val")
    assert all_of(dataset) == [(str(n), (f"caption {n}",), "val") for n in (1, 3, 5, 7)]
    assert dataset[-1].id == "7" and ids(dataset[1:3]) == ["3", "5"] and ids(dataset.subset([3, 0])) == ["7", "1"]
    assert ids(dataset[1:].subset([2, 0])) == ["7", "3"]
    assert not isinstance(dataset[1:]._items, list)
    assert ids(open_data(f"{file}?limit=2")) == ["0", "1"]
    assert sorted(ids(open_data(f"{file}?part=1/2")) + ids(open_data(f"{file}?part=2/2"))) == [str(n) for n in range(9)]
    with pytest.raises(IndexError):
        dataset[4]
    file.write_text("{}\n")  # places are of the file as it was
    with pytest.raises(Exception, match="has changed"):
        dataset[3]


def test_the_key_as_documented_precedes_other_spellings(tmp_path: Path) -> None:
    draw(tmp_path / "a.png")
    (tmp_path / "d.jsonl").write_text(
        '{"image": "a.png", "Caption": "A DOG", "Captions": ["THE DOG"], "caption": "a dog"}'
    )
    assert open_data(str(tmp_path / "d.jsonl"))[0].references == ("a dog",)


def test_index_puts_rows_of_an_id_together_whatever_their_number() -> None:
    names = [f"id{n * n % 23}" for n in range(400)]
    index, wanted = RowIndex(), dict[str, list[tuple[int, int]]]()
    for n, name in enumerate(names):
        place = (10 * n + 3, n + 1)
        index.add(name, place)
        wanted.setdefault(name, []).append(place)
    index.close()
    assert [list(index.places(n)) for n in range(len(index))] == list(wanted.values())
    assert list(index.doubles()) == [n for n, places in enumerate(wanted.values()) if len(places) > 1]


def test_skipped_names_some_and_counts_all(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Skipped, "MAX_NAMED", 3)
    skipped, more = Skipped((f"{n}", "gone") for n in range(5)), Skipped([("x", "gone")])
    skipped.add("0", "again")
    more.extend(skipped)
    assert len(skipped) == 5 and len(list(skipped)) == 3 and len(more) == 6
    assert str(skipped.line(10, shown=1)).endswith("0 (gone), and 4 more")


def test_interrupted_downloads_are_counted(tmp_path: Path) -> None:
    draw(tmp_path / "a.png")
    (tmp_path / "empty.png").touch()
    (tmp_path / "half.jpg.part").write_bytes(b"x")
    (tmp_path / "notes.part").write_bytes(b"x")
    folder = open_data(str(tmp_path))
    assert ids(folder) == ["a.png"]
    assert {Path(name).name: why for name, why in folder.missing} == {
        "empty.png": "empty file",
        "half.jpg.part": "incomplete download",
    }
    (tmp_path / "d.csv").write_text("image\na.png\nempty.png\nhalf.jpg\nnever.jpg\n")
    table = open_data(f"csv:{tmp_path}/d.csv")
    assert {Path(name).name: why for name, why in table.missing} == {
        "empty.png": "empty file",
        "half.jpg": "incomplete download: only half.jpg.part exists",
        "never.jpg": "no such file",
    }
    assert "3 of 4 could not be opened and were skipped" in table.report()[0]


def test_files_that_are_no_pictures_by_their_names_are_counted(tmp_path: Path) -> None:
    """Icons, Targa, and what wget, browsers and editors leave after a picture's name; captions and notes are not."""
    draw(tmp_path / "a.png")
    others = ("b.jpg?w=300", "c.JPG.1", "d.png:large", "e.jpeg (1)", "f.webp~", "g.png_large", "h.ico", "i.tga")
    for name in (*others, "a.png.json", "a.png.txt", "a.txt", "a.png.xmp", "README", "v1.2", "a.png.md5"):
        (tmp_path / name).write_text("a dog")
    folder = open_data(str(tmp_path))
    assert ids(folder) == ["a.png"]
    assert {Path(name).name: why for name, why in folder.missing} == {
        **{
            name: f"the name does not end in .{name.split('.')[1][:4].rstrip('?:~_ ')}; rename it"
            for name in others[:6]
        },
        "h.ico": "ICO is not supported: convert it to JPEG or PNG",
        "i.tga": "TGA is not supported: convert it to JPEG or PNG",
    }


def test_several_files(tmp_path: Path) -> None:
    for name in ("s-9.tar", "s-10.tar", "t.tar"):
        (tmp_path / name).touch()
    names = [path.name for path in expand_pattern(tmp_path / "s-*.tar")]
    assert names == ["s-9.tar", "s-10.tar"]
    assert [path.name for path in expand_pattern(tmp_path / "s-{08..10}.tar")] == ["s-08.tar", "s-09.tar", "s-10.tar"]
    assert [path.name for path in expand_pattern(tmp_path / "{t,s-{1..2}}.tar")] != []
    assert [path.name for path in expand_pattern(tmp_path / "{t,u}.tar")] == ["t.tar", "u.tar"]
    assert "no matching files" in wrong(f"webdataset:{tmp_path}/q-*.tar")
    assert "no matching files" in wrong(f"webdataset:{tmp_path}/{{1..999999999999}}-{{3..1}}.tar")  # at once


# -- csv


def table(folder: Path, text: str, name: str = "d.csv") -> Path:
    (folder / name).write_text(text, encoding="utf-8")
    return folder / name


def test_csv_as_kaggle_has_flickr8k_and_flickr30k(tmp_path: Path) -> None:
    for name in ("1.jpg", "2.jpg"):
        draw(tmp_path / "Images" / name)
    eight = table(tmp_path, 'image,caption\n1.jpg,"A child , in a\npink dress ."\n1.jpg,"a ""girl"""\n2.jpg,dogs\n')
    assert all_of(open_data(f"{eight}?images={tmp_path}/Images")) == [
        ("1.jpg", ("A child , in a pink dress .", 'a "girl"'), ""),
        ("2.jpg", ("dogs",), ""),
    ]
    thirty = table(
        tmp_path, "image_name| comment_number| comment\n1.jpg| 0| Two men , waving .\n2.jpg| 0| x\n1.jpg| 1| y\n"
    )
    found = open_data(f"{thirty}?images={tmp_path}/Images")
    assert all_of(found) == [("1.jpg", ("Two men , waving .", "y"), ""), ("2.jpg", ("x",), "")]
    assert found[0].references == ("Two men , waving .", "y") and found[1:][0].id == "2.jpg"


def test_a_tab_separates_the_columns_of_a_tsv_however_many_commas_their_names_have(tmp_path: Path) -> None:
    """As a data set and as a caption file."""
    (tmp_path / "c.tsv").write_text("image\tcaption\tnotes, by hand, of 2024, unchecked\na.png\ta dog, running\tgood\n")
    draw(tmp_path / "a.png")
    assert all_of(open_data(f"{tmp_path}/c.tsv")) == [("a.png", ("a dog, running",), "")]
    assert read_caption_file(tmp_path / "c.tsv").texts == {"a.png": ["a dog, running"]}


def test_csv_columns_ids_splits_lists_and_other_alphabets(tmp_path: Path) -> None:
    for name in ("a.png", "b.png"):
        draw(tmp_path / name)
    file = table(
        tmp_path,
        "\ufeffwer;Bild;satz;alt;split\n7;a.png;две собаки;犬が二匹;train\n8;b.png;كلب;कुत्ता;validation\n",
    )
    spec = f"{file}?image=Bild&captions=satz,alt&id=wer"
    assert all_of(open_data(spec)) == [("7", ("две собаки", "犬が二匹"), "train"), ("8", ("كلب", "कुत्ता"), "val")]
    assert ids(open_data(f"{spec}&split=dev")) == ["8"]
    lists = table(tmp_path, 'filename,raw\na.png,"[""one"", ""two""]"\nb.png,[sic] a dog\n')
    assert [item.references for item in open_data(str(lists))] == [("one", "two"), ("[sic] a dog",)]
    assert "Bild, satz" in wrong(table(tmp_path, "Bild,satz\na.png,x\n"))


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "the file is empty; expected a header line with column names"),
        ("image,caption\n", "no items"),
        ("foo,bar\n1,2\n", "no picture column was found; available columns: foo, bar; add"),
        ("image,caption\na.png,a dog, and a cat\n", "3 fields, but the header has 2"),
        ("image,caption\n,x\n", "expected the path of a picture, got"),
        ('image,caption\na.png,"x' + "y" * 140_000, "an unclosed quote?"),
        ('image,caption\na.png,"a dog\nb.png,a cat\n', "an unclosed quote?"),
        ("image,caption,split\na.png,x\n", "line 2: 2 fields, but the header has 3; missing ','"),
    ],
)
def test_csv_wrong(tmp_path: Path, text: str, said: str) -> None:
    draw(tmp_path / "a.png")
    assert said in wrong(table(tmp_path, text))


def test_rows_are_found_again_whatever_ends_their_lines(tmp_path: Path) -> None:
    for name in ("a.png", "b.png", "c.png"):
        draw(tmp_path / name)
    (tmp_path / "d.csv").write_bytes(b'\xef\xbb\xbfimage,caption\r\na.png,"x\r\ny"  \r\n\r\n  b.png,z\t\nc.png,w')
    dataset = open_data(f"{tmp_path}/d.csv")
    assert all_of(dataset) == [("a.png", ("x y",), ""), ("b.png", ("z",), ""), ("c.png", ("w",), "")]
    assert [dataset[n].id for n in (2, 1, 0)] == ["c.png", "b.png", "a.png"]


def test_csv_that_is_not_text_names_the_byte_and_unknown_columns_are_named(tmp_path: Path) -> None:
    draw(tmp_path / "a.png")
    (tmp_path / "d.csv").write_bytes(b"image,caption\na.png,caf\xe9\n")
    assert "byte 23" in wrong(tmp_path / "d.csv")
    assert "no column 'nope'; available columns: image, caption" in wrong(
        f"{table(tmp_path, 'image,caption')}?captions=nope"
    )


def test_one_id_for_two_pictures(tmp_path: Path) -> None:
    for name in ("a.png", "b.png"):
        draw(tmp_path / name)
    dataset = open_data(str(table(tmp_path, "id,image\n1,a.png\n1,b.png\n")))
    with pytest.raises(Exception, match="have the same id '1'; ids must be unique"):
        list(dataset)


# -- webdataset


def shards(folder: Path) -> None:
    tar(
        folder / "train-0.tar",
        ("0001.png", png("red")),
        ("0001.txt", b"ein Hund\nzwei Hunde\n"),
        ("0002.json", json.dumps({"caption": "собака", "split": "val"}).encode()),
        ("0002.png", png("blue")),
        ("0003.cls", b"3"),
    )
    tar(folder / "train-1.tar", ("0001.png", png("green", 6)), ("0001.json", b'{"captions": ["a", "b"]}'))


def test_webdataset(tmp_path: Path) -> None:
    shards(tmp_path)
    dataset = open_data(f"{tmp_path}/train-{{0..1}}.tar")
    assert all_of(dataset) == [
        ("train-0/0001", ("ein Hund", "zwei Hunde"), "train"),
        ("train-0/0002", ("собака",), "val"),
        ("train-1/0001", ("a", "b"), "train"),
    ]
    assert [Path(name).name for name, _ in dataset.missing] == ["train-0.tar#0003"]
    colours = [image.getpixel((0, 0)) for item in dataset if (image := dataset.load_image(item))]
    assert colours == [(255, 0, 0), (0, 0, 255), (0, 128, 0)]

    assert ids(open_data(str(tmp_path))) == ids(dataset)  # until there is a picture, too
    draw(tmp_path / "cover.png")
    assert ids(open_data(str(tmp_path))) == ["cover.png"]
    assert ids(open_data(f"{tmp_path}/*.tar?split=val")) == ["train-0/0002"]
    assert [dataset[n].id for n in (2, 0, 1)] == ["train-1/0001", "train-0/0001", "train-0/0002"]


def test_webdataset_knows_the_names_of_caption_files(tmp_path: Path) -> None:
    """Issue: of these samples none had a reference, without a word."""
    records = {
        "1": {"text": "a dog", "url": "https://a.org/1.png"},
        "2": {"question": "Describe.", "answer": "a dog"},
        "3": {"caption_0": "a dog", "caption_10": "d", "caption_2": "c", "caption_1": "b"},
        "4": [{"caption": "a dog"}, {"caption": "b"}],
        "5": {"label": 7},
        "6": {"caption": "['a dog' ... 'b']"},
    }
    pairs = [[(f"{key}.png", png()), (f"{key}.json", json.dumps(record).encode())] for key, record in records.items()]
    dataset = open_data(str(tar(tmp_path / "s.tar", *(member for pair in pairs for member in pair))))
    assert [item.references for item in dataset] == [
        *(("a dog",), ("a dog",), ("a dog", "b", "c", "d"), ("a dog", "b"), ())
    ]
    [(name, reason)] = dataset.missing
    assert name.endswith("s.tar#6") and "looks like a list" in reason


def test_the_folder_of_img2dataset_is_its_samples_not_its_tables(tmp_path: Path) -> None:
    """Issue: the Parquet file beside each tar, which says what was fetched, was opened in its place."""
    pyarrow = pytest.importorskip("pyarrow")
    pytest.importorskip("pyarrow.parquet")
    rows = pyarrow.table({"url": ["https://a.org/1.png"], "caption": ["a dog"], "key": ["000000000"]})
    packed, plain = tmp_path / "webdataset", tmp_path / "files"
    for folder in (packed, plain):
        folder.mkdir()
        pyarrow.parquet.write_table(rows, folder / "00000.parquet")
        (folder / "00000_stats.json").write_text("{}")
    record = json.dumps({"caption": "a dog", "url": "https://a.org/1.png", "status": "success"}).encode()
    members = [("000000000.png", png()), ("000000000.txt", b"a dog"), ("000000000.json", record)]
    tar(packed / "00000.tar", *members)
    (plain / "00000").mkdir()
    for name, data in members:
        (plain / "00000" / name).write_bytes(data)
    assert all_of(open_data(str(packed))) == [("00000/000000000", ("a dog",), "")]
    assert all_of(open_data(str(plain))) == [("00000/000000000.png", ("a dog",), "")]


def test_vlmevalkits_table_holds_its_pictures_in_base64(tmp_path: Path) -> None:
    noise = np.random.default_rng(0).integers(0, 255, (300, 450, 3), dtype=np.uint8)
    Image.fromarray(noise).save(tmp_path / "a.png")  # 400 KB: more than Python's CSV takes in a cell
    rows = [
        f"{n}\t{base64.b64encode(data).decode()}\tDescribe.\t['a dog', \"the dog's ball\"]\n"
        for n, data in enumerate([(tmp_path / "a.png").read_bytes(), png("green")])
    ]
    file = table(tmp_path, "index\timage\tquestion\tanswer\n" + "".join(rows), "COCO_VAL.tsv")
    (tmp_path / "a.png").unlink()
    dataset = open_data(str(file))
    assert all_of(dataset) == [(str(n), ("a dog", "the dog's ball"), "") for n in (0, 1)]
    assert np.array_equal(np.asarray(dataset.load_image(dataset[0])), noise) and len(dataset[0].picture.name) < 200
    assert read_reference_file(file).texts == {str(n): ["a dog", "the dog's ball"] for n in (0, 1)}
    odd = table(tmp_path, f"index\timage\tanswer\n0\t{'x' * 5000}\ta dog\n", "odd.tsv")
    assert "expected the path of a picture, got" in wrong(odd) and len(wrong(odd)) < 300


def test_a_member_has_the_key_of_its_file(tmp_path: Path) -> None:
    (tmp_path / "a.png").write_bytes(png())
    tar(tmp_path / "s.tar", ("x/a.png", png()), ("x/b.mp4", b"no clip"))
    picture, clip = (item.picture for item in open_data(f"{tmp_path}/s.tar"))
    assert picture.key() == open_data(f"{tmp_path}/a.png")[0].picture.key()
    assert hasattr(clip, "frames") and not hasattr(picture, "frames")
    with pytest.raises(PictureError, match=r"s\.tar#x/b\.mp4"):
        clip.image()


# The sample next to the damage may have lost some of its members: it is left out.
@pytest.mark.parametrize(
    ("damage", "kept"), [("header", "a"), ("cut in a header", "a"), ("cut in a picture", "ab"), ("empty", "")]
)
def test_a_corrupt_tar_amid_others_is_named_and_the_rest_is_read(tmp_path: Path, damage: str, kept: str) -> None:
    for n in range(3):
        tar(
            tmp_path / f"{n}.tar",
            *((f"{k}.{e}", png() if e == "png" else b"x") for k in "abcd" for e in ("png", "txt")),
        )
    whole = (tmp_path / "1.tar").read_bytes()
    third = whole.index(b"c.png")
    cut = {
        "header": whole[:third] + b"\xff" * 512 + whole[third + 512 :],
        "cut in a picture": whole[: third + 520],
        "cut in a header": whole[: third + 100],
        "empty": b"",
    }
    (tmp_path / "1.tar").write_bytes(cut[damage])
    dataset = open_data(str(tmp_path))
    assert ids(dataset) == [*(f"0/{k}" for k in "abcd"), *(f"1/{k}" for k in kept), *(f"2/{k}" for k in "abcd")]
    [(name, why)] = dataset.missing
    assert name == str(tmp_path / "1.tar")
    assert why.startswith("damaged; read up to this point" if kept else "empty file")
    assert len(dataset.report()) == 1


def test_shards_that_are_not_there_yet_are_counted(tmp_path: Path) -> None:
    shards(tmp_path)
    (tmp_path / "train-2.tar.part").touch()
    dataset = open_data(f"{tmp_path}/train-{{1..3}}.tar")
    assert ids(dataset) == ["train-1/0001"]
    assert [why for _, why in dataset.missing] == [
        "incomplete download: only train-2.tar.part exists",
        "no such file",
    ]


def test_the_feature_store_reads_each_member_once_and_then_knows_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shards(tmp_path)
    for shard in tmp_path.glob("*.tar"):
        os.utime(shard, (1e9, 1e9))  # long settled
    read: list[Path] = []
    data = webdataset.member_bytes
    monkeypatch.setattr(webdataset, "member_bytes", lambda shard, *span: (read.append(shard), data(shard, *span))[1])
    dataset, store = open_data(str(tmp_path)), FeatureStore(tmp_path / "cache")
    first = RowMaker("first pixel", lambda images: np.asarray(images[0])[0, 0], np.stack)
    pixels_N3 = store.rows(dataset, first, progress=False)
    assert [tuple(pixel) for pixel in pixels_N3] == [(255, 0, 0), (0, 0, 255), (0, 128, 0)]
    assert len(read) == 3
    assert (store.rows(dataset[1:], first, progress=False) == pixels_N3[1:]).all() and len(read) == 3


def claiming(name: str, size: int, kind: bytes = tarfile.REGTYPE) -> bytes:
    """The header of a member that says that it has so many bytes; of a sparse one, as GNU tar writes it."""
    info = tarfile.TarInfo(name)
    info.size = 0 if kind == tarfile.GNUTYPE_SPARSE else size
    info.type = kind
    header = bytearray(info.tobuf(tarfile.GNU_FORMAT))
    if kind == tarfile.GNUTYPE_SPARSE:
        header[386:398] = tarfile.itn(0, 12, tarfile.GNU_FORMAT)  # type: ignore[attr-defined]
        header[398:410] = tarfile.itn(0, 12, tarfile.GNU_FORMAT)  # type: ignore[attr-defined]
        header[483:495] = tarfile.itn(size, 12, tarfile.GNU_FORMAT)  # type: ignore[attr-defined]
        header[148:156] = b"%06o\0 " % (sum(header[:148]) + 8 * 32 + sum(header[156:]))
    return bytes(header)


@pytest.mark.parametrize("kind", [tarfile.GNUTYPE_SPARSE, tarfile.REGTYPE, tarfile.GNUTYPE_LONGNAME, tarfile.XHDTYPE])
def test_a_member_that_claims_terabytes_is_set_aside_by_name(kind: bytes, tmp_path: Path) -> None:
    """And those before it, and behind it where they can be found, are read."""
    tar(tmp_path / "a.tar", ("0.png", png()), ("1.png", png()), ("1.txt", b"a dog"))
    sound = (tmp_path / "a.tar").read_bytes()[: 6 * 512]
    more = tar(tmp_path / "b.tar", ("3.png", png())).read_bytes()
    (tmp_path / "b.tar").unlink()
    (tmp_path / "a.tar").write_bytes(sound + claiming("2.png", 10 << 40, kind) + more)
    dataset = open_data(str(tmp_path / "a.tar"))
    assert "a.tar" in str(list(dataset.missing)) and all(item.picture.image() for item in dataset)
    if kind == tarfile.GNUTYPE_SPARSE:
        assert ids(dataset) == ["a/0", "a/1", "a/3"]
        assert list(dataset.missing) == [
            (f"{tmp_path}/a.tar#2", "a sparse member of 10,995,116,277,760 bytes; expected a complete picture of at "
             "most 1,073,741,824")]  # fmt: skip
    else:
        assert ids(dataset)[0] == "a/0" and "damaged; read up to this point" in str(list(dataset.missing))


def test_links_and_further_pictures_of_a_sample_are_named(tmp_path: Path) -> None:
    """As tar packs a folder with hard and symbolic links, and names such as IMG.001.png, which share a key."""
    photos = tmp_path / "photos"
    photos.mkdir()
    for name, colour in (("IMG.001.png", "red"), ("IMG.002.png", "blue"), ("a.png", "green")):
        (photos / name).write_bytes(png(colour))
    (photos / "b.png").hardlink_to(photos / "a.png")
    (photos / "c.png").symlink_to("a.png")
    with tarfile.open(tmp_path / "s.tar", "w") as archive:
        for path in sorted(photos.iterdir()):
            archive.add(path, path.name)
    dataset = open_data(str(tmp_path / "s.tar"))
    assert ids(dataset) == ["s/a"]
    link = "a link instead of a picture; create the archive with tar --dereference --hard-dereference"
    assert list(dataset.missing) == [
        (
            f"{tmp_path}/s.tar#IMG",
            "several pictures, IMG.001.png, IMG.002.png; expected a single one, or one named after the sample",
        ),
        (f"{tmp_path}/s.tar#b", link),
        (f"{tmp_path}/s.tar#c", link),
    ]
    assert dataset[0].picture.image().getpixel((0, 0)) == (0, 128, 0)


def test_webdataset_wrong(tmp_path: Path) -> None:
    (tmp_path / "a.tar").write_bytes(b"\x1f\x8b\x08")
    assert "compressed archives do not allow random access; run: gunzip" in wrong(tmp_path / "a.tar")
    tar(tmp_path / "a.tar", ("1.png", png()), ("1.txt", b"\xff"))
    assert "a.tar#1 (.txt: not valid UTF-8 (byte 0))" in wrong(tmp_path / "a.tar")
    tar(tmp_path / "a.tar", ("1.png", png()), ("1.json", b"{"))
    assert "a.tar#1 (.json: invalid JSON" in wrong(tmp_path / "a.tar")
    tar(tmp_path / "a.tar", ("1.png", png()), ("1.json", b'{"caption": 3}'), ("2.png", png()))
    dataset = open_data(f"{tmp_path}/a.tar")
    assert ids(dataset) == ["a/2"]
    reason = ".json: expected the caption to be a string, got int"  # there are no columns that captions= could name
    assert list(dataset.missing) == [(f"{tmp_path}/a.tar#1", reason)]
    tar(tmp_path / "a.tar", ("1.png", png()), ("2.png", png()), ("1.png", png()))
    assert "1 ids occur more than once" in wrong(tmp_path / "a.tar")
