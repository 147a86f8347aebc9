"""Caption and reference files: every layout, and one clear line for every way a file can be wrong."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import openpyxl
import pytest
from real_data import DATA

from tellapart.data.caption_alignment import align_lists
from tellapart.data.caption_files import read_caption_file, read_reference_file
from tellapart.data.caption_matching import KnownIds, match_captions
from tellapart.data.empty_captions import with_text
from tellapart.errors import UsageError

needs_data = pytest.mark.skipif(not DATA.is_dir(), reason=f"{DATA} is absent; set TELLAPART_DATA")


def read_captions(path: Path) -> dict[str, str]:
    return {key: text for key, (text,) in read_caption_file(path).texts.items()}


@pytest.fixture
def write(tmp_path: Path):
    def write(name: str, content: object) -> Path:
        path = tmp_path / name
        path.write_text(content if isinstance(content, str) else json.dumps(content), encoding="utf-8")
        return path

    return write


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("c.jsonl", '{"id": "7", "caption": "a dog"}\n{"id": "9", "caption": " a  cat "}\n'),
        ("c.jsonl", '{"image_id": 7, "caption": "a dog", "score": 1}\n\n{"image_id": 9, "caption": "a cat"}'),
        ("lines.json", '{"image_id": 7, "caption": "a dog"}\n{"image_id": 9, "caption": "a cat"}\n'),
        ("coco.json", [{"image_id": 7, "id": 0, "caption": "a dog"}, {"image_id": "9", "id": 1, "caption": "a cat"}]),
        ("map.json", {"7": "a dog", "9": "a cat"}),
        ("annotations.json", {"images": [], "annotations": [
            {"id": 1, "image_id": 7, "caption": "a dog"}, {"id": 2, "image_id": 9, "caption": "a cat"}]}),
        ("c.csv", 'id,caption\n7,a dog\n9,"a cat"\n'),
        ("bom.csv", '\ufeffid, caption\r\n7,a dog\r\n9,a cat\r\n'),
        ("tokens.txt", "7#0\ta dog\n9#0\ta cat\n"),
        ("excel.csv", "sep=;\r\nid;caption\r\n7;a dog\r\n9;a cat\r\n"),
        ("excel.txt", "sep=;\nid;caption\n7;a dog\n9;a cat\n"),
    ],
)  # fmt: skip
def test_every_layout_reads_the_same_captions(write, name, content):
    assert read_captions(write(name, content)) == {"7": "a dog", "9": "a cat"}


def test_plain_text_is_numbered_from_one_and_keeps_empty_lines_in_their_place(write):
    assert read_captions(write("c.txt", "\na dog\n\na cat\n")) == {"1": "", "2": "a dog", "3": "", "4": "a cat"}


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("r.txt", "a dog\tthe dog\na cat\n"),
        ("r.jsonl", '{"id": 1, "references": ["a dog", "the dog"]}\n{"id": 2, "captions": ["a cat"]}\n'),
        ("r2.jsonl", '{"id": 1, "caption": "a dog"}\n{"id": 1, "caption": "the dog"}\n{"id": 2, "caption": "a cat"}\n'),
        ("karpathy.json", {"images": [
            {"cocoid": 1, "filename": "x.jpg", "split": "test", "sentences": [{"raw": "a dog"}, {"raw": "the dog"}]},
            {"filename": "2", "sentences": [{"raw": "a cat\n"}]}]}),
        ("r.json", {"1": ["a dog", "the dog"], "2": "a cat"}),
        ("tokens.txt", "1#0\ta dog\n1#1\tthe dog\n2#0\ta cat\n"),
    ],
)  # fmt: skip
def test_every_layout_reads_the_same_references(write, name, content):
    assert read_reference_file(write(name, content)).texts == {"1": ["a dog", "the dog"], "2": ["a cat"]}


@pytest.mark.parametrize(
    ("name", "content", "says"),
    [
        ("c.jsonl", '{"id": 1, "caption": "a"}\n{"id": 2, "caption": ', "line 2: invalid JSON"),
        ("c.json", '[{"id": 1,\n "caption": oops}]', ": invalid JSON (Expecting value: line 2 column"),
        ("c.jsonl", '{"caption": "a dog"}\n{"id": 2, "caption": "a cat"}\n', "1 of 2 records have no id"),
        ("c.jsonl", '{"id": [1], "caption": "a dog"}\n', "expected the id to be a string or an integer, got"),
        ("c.jsonl", '{"id": 1, "words": "a dog"}\n', "no caption text; expected the key 'caption', got"),
        ("c.json", [{"image": "a.jpg", "conversations": [{"from": "human", "value": "?"}]}], "has no answer"),
        ("c.json", [{"id": 1, "caption": 5}], "expected the caption to be a string, got int"),
        ("c.json", [5], "entry 1: expected {'id'"),
        ("c.json", "[]", "contains no captions"),
        ("c.json", "5", "got a int"),
        ("c.json", {"images": [{"id": 1}]}, "has no 'sentences'"),
        ("c.csv", "name,text\n1,a dog\n", "expected the columns 'id' (or image, file_name, …) and 'caption'"),
        ("c.csv", "id,caption\n1,a dog, running\n", "more fields than in the header; put captions with commas"),
        ("c.txt", "a dog\ta cat\n", "line 1: unexpected tab"),
        ("c.txt", " \n", "is empty"),
        ("c.json", '{"7": ["a"], "7": ["b"]}', ": invalid JSON (the key"),
        ("c.csv", "id,caption,caption\n7,a dog,a cat\n", "2 columns are named 'caption'; rename or remove all but one"),
        ("c.csv", "id,id,caption\n7,8,a cat\n", "2 columns are named 'id'; rename or remove all but one"),
        ("c.json.bz2", "x", "only .gz files are decompressed; run: bunzip2 -k "),
        ("c.jsonl.xz", "x", "only .gz files are decompressed; run: unxz -k "),
        ("c.json.zst", "x", "only .gz files are decompressed; run: unzstd "),
        ("c.feather", "x", ".to_parquet('captions.parquet')"),
        ("c.html", "<!DOCTYPE html>\n<p>a dog</p>\n", "HTML and XML are not supported; export the table"),
        ("c.txt", "<table border=1>\n<td>a dog</td>\n", "HTML and XML are not supported; export the table"),
        ("c.json", {"images": [{"id": 1, "file_name": "a.jpg"}, {"id": 1, "file_name": "b.jpg"}],
                    "annotations": [{"image_id": 1, "caption": "a"}]}, "two pictures have the id '1', a.jpg and b.jpg"),
    ],
)  # fmt: skip
def test_a_wrong_file_gets_one_line_that_names_it(write, name, content, says):
    path = write(name, content)
    with pytest.raises(UsageError) as error:
        read_captions(path)
    assert says in str(error.value)
    assert str(error.value).startswith(str(path)) and "\n" not in str(error.value)


@pytest.mark.parametrize("field", ["AltTextAccessibility", "Caption-Abstract", "Description", "ImageDescription"])
def test_what_exiftool_prints_is_called_after_its_files(write, field):
    printed = [{"SourceFile": "photos/a.jpg", field: "a dog"}, {"SourceFile": "photos/b.jpg", field: "a cat"}]
    read = read_caption_file(write("c.json", printed))
    assert read.texts == {"photos/a.jpg": ["a dog"], "photos/b.jpg": ["a cat"]}
    path = write("c.csv", f"SourceFile,{field}\nphotos/a.jpg,a dog\nphotos/b.jpg,a cat\n")
    assert read_caption_file(path) == replace(read, name=str(path))


def test_what_exiftool_prints_of_groups_and_of_pictures_without_a_text(write):
    """``exiftool -j -G -Description -Caption-Abstract photos/``: a picture that has neither is a SourceFile alone."""
    printed = [{"SourceFile": "a.jpg", "XMP:Description": "a dog"}, {"SourceFile": "b.jpg"}]
    printed += [{"SourceFile": "c.jpg", "IPTC:Caption-Abstract": "a cat"}]
    read = read_caption_file(write("c.json", printed))
    assert read.texts == {"a.jpg": ["a dog"], "b.jpg": [""], "c.jpg": ["a cat"]}
    printed[1] = {"SourceFile": "b.jpg", "XMP:Description": 1984}
    assert read_caption_file(write("c.json", printed)).texts["b.jpg"] == ["1984"]
    with pytest.raises(UsageError, match="no caption text; expected the key 'caption', got"):
        read_caption_file(write("c.json", [{"SourceFile": "a.jpg", "File:FileSize": 7}, {"SourceFile": "b.jpg"}]))
    printed = [{"SourceFile": "a.jpg", "XMP:Description": "", "EXIF:ImageDescription": "a dog"}]
    printed += [{"SourceFile": "b.jpg", "XMP:Description": "", "EXIF:ImageDescription": ""}]
    assert read_caption_file(write("c.json", printed)).texts == {"a.jpg": ["a dog"], "b.jpg": [""]}
    path = write("c.csv", "SourceFile,Description,ImageDescription\na.jpg,,a dog\nb.jpg,a cat,\n")
    assert read_caption_file(path).texts == {"a.jpg": ["a dog"], "b.jpg": ["a cat"]}
    path = write("c.csv", "SourceFile,XMP:Description\na.jpg,a dog\nb.jpg,\n")
    assert read_caption_file(path).texts == {"a.jpg": ["a dog"], "b.jpg": [""]}
    assert read_caption_file(write("c.txt", path.read_text())).texts == {"a.jpg": ["a dog"], "b.jpg": [""]}


def test_lines_with_a_file_name_and_a_colon_are_no_captions(write):
    path = write("c.yaml", "a.jpg: a dog: it runs\nb.jpg: a cat\n")
    assert read_captions(path) == {"a.jpg": "a dog: it runs", "b.jpg": "a cat"}
    assert read_captions(write("c.txt", "dinner at 7: a dog\na cat\n")) == {"1": "dinner at 7: a dog", "2": "a cat"}


def test_a_second_sheet_is_named(tmp_path, capsys):
    book = openpyxl.Workbook()
    book.active.title = "mine"
    for row in (["image", "caption"], ["a.jpg", "a dog"]):
        book.active.append(row)
    book.create_sheet("nothing")
    book.create_sheet("more").append(["b.jpg", "a cat"])
    book.save(tmp_path / "c.xlsx")
    assert read_captions(tmp_path / "c.xlsx") == {"a.jpg": "a dog"}
    assert capsys.readouterr().err.endswith("reading only the first sheet, 'mine'; sheets in this file: more\n")


def test_names_match_however_a_system_writes_them(write):
    """A Mac writes é as two characters; a cell of a table has no blanks around it."""
    file = read_caption_file(write("c.csv", "id,caption\nété.jpg,a dog\nlead.jpg,a cat\n"))
    known = KnownIds("the data", ["e\u0301te\u0301.jpg", " lead.jpg"])
    assert match_captions(file, known, "c").texts == {known.ids[0]: ["a dog"], " lead.jpg": ["a cat"]}


def test_missing_folder_and_binary(tmp_path):
    (tmp_path / "b.json").write_bytes(b"\xff\xd8\xff\xe0")
    (tmp_path / "empty").mkdir()
    for path, says in (
        (tmp_path / "no.json", "no such file"),
        (tmp_path / "empty", "contains no metadata"),
        (tmp_path / "b.json", "UTF-8"),
    ):
        with pytest.raises(UsageError, match=says):
            read_captions(path)


def test_several_captions_of_an_id_are_a_list(write):
    path = write(
        "c.json", [{"image_id": 1, "caption": "a"}, {"image_id": 2, "caption": "b"}, {"image_id": 1, "caption": "c"}]
    )
    assert read_caption_file(path).texts == {"1": ["a", "c"], "2": ["b"]}


def test_every_kind_of_trouble_is_counted_and_named():
    captions = {"a": "x", "b": "", "d": ["one", "two"], "z": "stray"}
    known = ["a", "b", "c1", "c2", "c3", "c4", "d"]
    with pytest.raises(UsageError) as error:
        align_lists(captions, known, other="the references")
    trouble = [
        "1 captions do not belong to any picture in the references ('z')",
        "4 pictures in the references have no caption ('c1', 'c2', 'c3' and 1 more)",
        "1 ids have several captions ('d')",
    ]
    assert all(part in str(error.value) for part in (*trouble, "--allow-missing"))
    kept, notes = align_lists(captions, known, allow_missing=True, other="the references")
    assert kept == {"a": ["x"], "b": [""], "d": ["one"]} and list(kept) == ["a", "b", "d"]
    assert [note.removeprefix("captions: ") for note in notes] == [
        *trouble, "1 of 3 captions are empty and score 0 ('b')"
    ]  # fmt: skip


def test_an_empty_reference_is_none_and_is_named():
    kept, notes = with_text({"a": ["r", "", " "], "b": ["s"], "c": [""]})
    assert kept == {"a": ["r"], "b": ["s"], "c": []}
    assert notes == ["references: ignoring 2 empty references ('a')"]


def test_no_common_id_is_an_error_even_when_missing_is_allowed():
    with pytest.raises(UsageError, match=r"none of the ids occurs in the data \(captions: '1'; the data: 'x'\)"):
        align_lists({"1": "a"}, {"x": ["b"]}, allow_missing=True)


def test_a_sound_file_has_no_notes_and_an_empty_caption_is_one():
    assert align_lists({"2": "b", "1": "a"}, ["1", "2"]) == ({"1": ["a"], "2": ["b"]}, [])
    assert align_lists({"2": "b", "1": ""}, ["1", "2"])[1] == ["captions: 1 of 2 captions are empty and score 0 ('1')"]


@pytest.mark.data
@needs_data
def test_published_files_align():
    captions = read_captions(DATA / "published/capenrich_coco.json")
    references = read_reference_file(DATA / "annotations/coco_karpathy_test.json").texts
    kept, notes = align_lists(captions, references)
    assert len(kept) == 5000 and sum(len(references[key]) for key in kept) == 25010 and notes == []
    for system, count in (("coco_karpathy_test", 5000), ("flickr30k_karpathy_test", 1000)):
        told = read_reference_file(DATA / f"published/references_{system}.txt").texts
        assert len(told) == count and set(map(len, told.values())) == {5}
        said = read_captions(DATA / f"published/clipcap_coco_on_{system.split('_')[0]}.txt")
        assert align_lists(said, told)[0] == {key: [text] for key, text in said.items()}
    assert len(read_captions(DATA / "annotations/captions_val2014_fakecap_results.json")) == 1000
    flickr = read_reference_file(DATA / "flickr8k/Flickr8k.token.txt").texts
    assert sum(map(len, flickr.values())) == 40460 and len(flickr["1000268201_693b08cb0e.jpg"]) == 5


@pytest.mark.data
@needs_data
def test_files_of_other_pictures_are_refused():
    captions = read_captions(DATA / "published/clipcap_coco_on_coco.txt")
    with pytest.raises(UsageError, match="none of the ids"):
        align_lists(captions, read_reference_file(DATA / "flickr8k/Flickr8k.token.txt").texts)
