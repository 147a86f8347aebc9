"""The readers on small files of each layout, right and wrong ones."""

import json
from pathlib import Path

import numpy as np
import pytest
from reader_help import draw, ids, wrong

from tellapart.data import Skipped, open_data, open_many
from tellapart.data.caption_files import read_reference_file
from tellapart.data.file_patterns import natural_key
from tellapart.errors import PictureError, UsageError

# -- specifications


def test_unknown_kind_key_and_split_name_the_nearest(tmp_path: Path) -> None:
    draw(tmp_path / "a.png")
    assert wrong("foldr:x").endswith("unknown kind of data 'foldr'; did you mean 'folder'?")
    assert wrong(f"folder:{tmp_path}?limt=3").endswith("unknown key 'limt' for 'folder:'; did you mean 'limit'?")
    assert "a folder has no splits; remove split=" in wrong(f"folder:{tmp_path}?split=test")
    (tmp_path / "d.jsonl").write_text('{"image": "a.png", "split": "test"}')
    assert "did you mean 'test'?" in wrong(f"{tmp_path}/d.jsonl?split=tset")


@pytest.mark.parametrize(
    "query",
    [
        "limit=0",
        "limit=x",
        "limit=1__0",
        "limit=_",
        "limit=-1",
        "part=0/2",
        "part=3/2",
        "part=1",
        "part=1/0",
        "limit",
        "limit=",
        "=3",
    ],
)
def test_bad_values(tmp_path: Path, query: str) -> None:
    draw(tmp_path / "a.png")
    assert query in wrong(f"folder:{tmp_path}?{query}")


def test_key_twice_and_no_path(tmp_path: Path) -> None:
    assert "' occurs twice" in wrong(f"folder:{tmp_path}?limit=1&limit=2")
    assert "missing path" in wrong("folder:")
    assert "the data specification is empty; use kind:path, where kind is" in wrong("")


def test_bare_paths(tmp_path: Path) -> None:
    draw(tmp_path / "photos" / "a.png")
    (tmp_path / "d.jsonl").write_text('{"image": "photos/a.png"}\n')
    (tmp_path / "c.json").write_text("{}")
    (tmp_path / "notes.md").write_text("x")
    assert ids(open_data(str(tmp_path / "photos"))) == ["a.png"]
    assert ids(open_data(str(tmp_path / "d.jsonl"))) == ["photos/a.png"]
    assert ids(open_data(str(tmp_path / "photos" / "a.png"))) == ["a.png"]
    assert "coco:" in wrong(tmp_path / "c.json") and "karpathy:" in wrong(tmp_path / "c.json")
    assert "expected a picture" in wrong(tmp_path / "notes.md")
    (tmp_path / "raw.nef").write_bytes(b"x")
    assert "NEF is not supported: convert it to JPEG or PNG" in wrong(tmp_path / "raw.nef")
    assert "no such file or folder" in wrong(tmp_path / "nope")
    assert f"did you mean '{tmp_path / 'photos'}'?" in wrong(tmp_path / "photso")


def test_odd_paths(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for folder in ("what?", "a:b", "coco:x"):
        draw(tmp_path / folder / "a.png")
        assert ids(open_data(folder)) == ["a.png"]
        assert ids(open_data(f"folder:{folder}?limit=1")) == ["a.png"]
    draw(tmp_path / "p&q" / "a.png")
    (tmp_path / "d.jsonl").write_text('{"image": "a.png"}')
    assert len(open_data("d.jsonl?images=p%26q")) == 1


def test_parts_are_disjoint_even_complete_and_stable(tmp_path: Path) -> None:
    for number in range(10):
        draw(tmp_path / f"{number}.png")
    whole = ids(open_data(str(tmp_path)))
    parts = [ids(open_data(f"{tmp_path}?part={i}/3")) for i in (1, 2, 3)]
    assert sorted(id_ for part in parts for id_ in part) == sorted(whole)
    assert sorted(map(len, parts)) == [3, 3, 4]
    assert all(part == [id_ for id_ in whole if id_ in part] for part in parts)  # the list's order
    assert ids(open_data(f"{tmp_path}?part=1,3/3")) == [id_ for id_ in whole if id_ not in parts[1]]
    assert parts[0] == ["3.png", "4.png", "5.png", "9.png"]  # the same on every machine, for ever
    assert ids(open_data(f"{tmp_path}?part=1/3&limit=2")) == parts[0][:2]


# -- folder


def test_folder_order_references_and_what_is_left_out(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for name in ("10.png", "2.JPG", "sub/1.webp", ".hidden/a.png", ".b.png"):
        draw(tmp_path / name)
    (tmp_path / "2.txt").write_text("\ufeffa dog\n\n  two  dogs \r\n", encoding="utf-8")
    (tmp_path / "10.txt").write_bytes(b"caf\xe9")
    (tmp_path / "phone.JXL").write_bytes(b"x")
    dataset = open_data(str(tmp_path))
    assert ids(dataset) == ["2.JPG", "10.png", "sub/1.webp"]
    assert [item.references for item in dataset] == [("a dog", "two dogs"), (), ()]
    assert f"{tmp_path / '10.txt'} (not valid UTF-8 (byte 3); convert it to UTF-8)" in capsys.readouterr().err
    assert dict(dataset.missing) == {
        str(tmp_path / "phone.JXL"): "JXL is not supported: convert it to JPEG or PNG",
    }


@pytest.mark.parametrize("name", ["metadata.csv", "metadata.jsonl", "metadata.parquet"])
@pytest.mark.parametrize("column", ["label", "width"])
def test_a_list_of_classes_or_sizes_has_no_captions(name: str, column: str, tmp_path: Path) -> None:
    """As Hugging Face's folders of pictures for classification have it."""
    draw(tmp_path / "a.png")
    draw(tmp_path / "b.png")
    if name.endswith(".parquet"):
        pyarrow = pytest.importorskip("pyarrow")
        table = pyarrow.table({"file_name": ["a.png", "b.png"], column: [0, 1]})
        pytest.importorskip("pyarrow.parquet").write_table(table, tmp_path / name)
    elif name.endswith(".jsonl"):
        (tmp_path / name).write_text(f'{{"file_name": "a.png", "{column}": 0}}\n{{"file_name": "b.png"}}\n')
    else:
        (tmp_path / name).write_text(f"file_name,{column}\na.png,0\nb.png,1\n")
    dataset = open_data(str(tmp_path))
    assert [item.references for item in dataset] == [(), ()] and not dataset.missing


def test_a_caption_file_beside_a_text_file_is_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """As kohya's scripts leave tags and a caption of one picture; those of img2dataset's JSON are one sample."""
    draw(tmp_path / "a.png")
    (tmp_path / "a.txt").write_text("dog, grass\n")
    (tmp_path / "a.json").write_text("{}")
    told = ".caption files whose pictures also have a .txt"
    for read in (lambda: open_data(str(tmp_path))[0].references, lambda: read_reference_file(tmp_path).texts["a"]):
        (tmp_path / "a.caption").unlink(missing_ok=True)
        assert list(read()) == ["dog, grass"] and not capsys.readouterr().err
        (tmp_path / "a.caption").write_text("a dog on the grass\n")
        assert list(read()) == ["dog, grass"] and told in capsys.readouterr().err.replace("\n", " ")


def test_a_caption_file_beside_a_longer_text_file_is_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    draw(tmp_path / "a.jpg")
    (tmp_path / "a.jpg.txt").write_text("a dog\n")
    (tmp_path / "a.caption").write_text("a cat\n")
    for read in (lambda: open_data(str(tmp_path))[0].references, lambda: read_reference_file(tmp_path).texts["a.jpg"]):
        assert list(read()) == ["a dog"]
        told = capsys.readouterr().err.replace("\n", " ")
        assert ".caption files whose pictures also have a .txt: a.caption" in told and "without a picture" not in told


def test_a_text_file_beside_no_picture_is_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A picture that was removed from a folder for fine-tuning; a folder's notes where no picture has text are not."""
    draw(tmp_path / "a.png")
    (tmp_path / "README.txt").write_text("about\n")
    assert ids(open_data(str(tmp_path))) == ["a.png"] and not capsys.readouterr().err
    (tmp_path / "a.txt").write_text("a dog\n")
    (tmp_path / "b.txt").write_text("a cat\n")
    assert ids(open_data(str(tmp_path))) == ["a.png"]
    told = capsys.readouterr().err
    assert "ignored 2 text files without a picture of the same name" in told


def test_missing_and_empty_folder(tmp_path: Path) -> None:
    assert "no such folder" in wrong(f"folder:{tmp_path}/nope")
    assert "no pictures in this folder" in wrong(tmp_path)
    (tmp_path / "a.jxl").write_bytes(b"x")
    assert "JXL is not supported" in wrong(tmp_path)


def test_unreadable_pictures_are_collected_once_and_shared_with_slices(tmp_path: Path) -> None:
    draw(tmp_path / "a.png")
    (tmp_path / "b.jpg").write_text("no picture")
    dataset = open_data(str(tmp_path))
    part = dataset[1:]
    assert part.load_image(part[0]) is None
    assert len(dataset.unreadable) == 1
    assert [dataset.load_image(item) is None for item in dataset] == [False, True]
    [(name, why)] = dataset.unreadable
    assert name == str(tmp_path / "b.jpg") and why.startswith("not a supported picture")
    assert dataset.report() == [f"1 of 2 pictures could not be read: {name} ({why})"]


def test_skipped_line() -> None:
    skipped = Skipped((f"{n}.jpg", "truncated") for n in range(7))
    skipped.add_error("8.jpg", PictureError("8.jpg: empty file"))
    line = skipped.line(1000, shown=2)
    assert line == "8 of 1,000 pictures could not be read: 0.jpg (truncated), 1.jpg (truncated), and 6 more"
    assert list(skipped)[-1] == ("8.jpg", "empty file")
    assert Skipped().line(3) is None


def test_a_pattern_has_the_order_of_its_folder(tmp_path: Path) -> None:
    ordered = ["a01.png", "a1.png", "a2.png", "a10.png", "b.png"]
    for name in ordered:
        draw(tmp_path / name)
    assert [Path(id_).name for id_ in ids(open_data(f"{tmp_path}/*.png"))] == ids(open_data(str(tmp_path))) == ordered


def test_names_have_one_order_however_the_file_system_lists_them() -> None:
    ordered = ["a", "A1", "a01", "a1", "a2", "a10", "b"]
    assert sorted(ordered, key=natural_key) == sorted(set(ordered), key=natural_key) == ordered


def test_open_many(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for name in ("x/a.png", "y/a.png", "b.png"):
        draw(tmp_path / name)
    assert ids(open_many(["x", "y/", "b.png"])) == ["x/a.png", "y/a.png", "b.png"]
    assert ids(open_many(["x"])) == ["a.png"]
    with pytest.raises(UsageError, match=r"x/a\.png"):
        open_many(["x", "x"])
    with pytest.raises(UsageError, match=r"nope\.png: no such file"):
        open_many(["b.png", "nope.png"])


# -- jsonl


def jsonl(tmp_path: Path, *lines: object) -> Path:
    file = tmp_path / "d.jsonl"
    file.write_text(
        "".join((line if isinstance(line, str) else json.dumps(line, ensure_ascii=False)) + "\n" for line in lines)
    )
    return file


def test_jsonl(tmp_path: Path) -> None:
    draw(tmp_path / "p" / "a.png")
    draw(tmp_path / "b.png")
    file = jsonl(
        tmp_path,
        {"image": "p/a.png", "captions": ["a  dog", ""], "split": "validation", "extra": 1},
        "",
        {"id": 7, "image": "b.png", "caption": "a line\u2028separator"},
        {"image": "gone.png", "split": "dev"},
    )
    dataset = open_data(str(file))
    assert [(item.id, item.references, item.split) for item in dataset] == [
        ("p/a.png", ("a dog",), "val"),
        ("7", ("a line separator",), ""),
    ]
    assert list(dataset.missing) == [(str(tmp_path / "gone.png"), "no such file")]
    assert ids(open_data(f"jsonl:{file}?split=dev")) == ["p/a.png"]


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("{", "line 2: invalid JSON"),
        ("[1]", "expected a JSON object such as"),
        ({"pictur": "a.png"}, 'line 2: missing key "image"'),
        ({"imag": "a.png"}, "did you mean 'imag'?"),
        ({"image": "a.png", "id": None}, 'line 2: expected "id" to be'),
        ({"image": "a.png", "id": ""}, 'line 2: expected "id" to be'),
        ({"image": "a.png", "captions": [1]}, "expected the caption to be a string, got int"),
        ({"image": "a.png", "captions": [], "caption": "x"}, "both"),
        ({"image": "a.png"}, "1 ids occur more than once: 'a.png'"),
    ],
)
def test_jsonl_bad_lines(tmp_path: Path, line: object, said: str) -> None:
    draw(tmp_path / "a.png")
    assert said in wrong(jsonl(tmp_path, {"image": "a.png"}, line))


def test_jsonl_that_is_not_text(tmp_path: Path) -> None:
    (tmp_path / "d.jsonl").write_bytes(b"\xff{}")
    assert "not valid UTF-8" in wrong(tmp_path / "d.jsonl")
    assert "no such file" in wrong(f"jsonl:{tmp_path}/nope.jsonl")
    assert "expected a file, got a folder" in wrong(f"jsonl:{tmp_path}")


def test_all_pictures_missing_says_images(tmp_path: Path) -> None:
    assert "if the pictures are in another folder, add images=FOLDER" in wrong(jsonl(tmp_path, {"image": "a.png"}))


# -- flickr8k


@pytest.fixture
def flickr(tmp_path: Path) -> Path:
    for name in ("a.jpg", "b.jpg", "c.jpg"):
        draw(tmp_path / "images" / name)
    rows = ["a.jpg#1\tsecond .", "a.jpg#0\tfirst .", "b.jpg#0\tb .", "c.jpg#0\tc", "gone.jpg.1#0\tgone"]
    (tmp_path / "Flickr8k.token.txt").write_text("\n".join(rows) + "\n")
    (tmp_path / "Flickr_8k.trainImages.txt").write_text("a.jpg\n")
    (tmp_path / "Flickr_8k.devImages.txt").write_text("b.jpg\n")
    return tmp_path


def test_flickr(flickr: Path) -> None:
    dataset = open_data(f"flickr8k:{flickr}")
    assert [(item.id, item.split) for item in dataset] == [("a.jpg", "train"), ("b.jpg", "val"), ("c.jpg", "")]
    assert dataset[0].references == ("first .", "second .")
    assert list(dataset.missing) == [(str(flickr / "images" / "gone.jpg.1"), "no such file")]
    validation = open_data(f"flickr8k:{flickr}?split=validation")
    assert ids(validation) == ["b.jpg"] and not validation.missing


def test_flickr_wrong(flickr: Path) -> None:
    (flickr / "Flickr_8k.devImages.txt").write_text("a.jpg\n")
    assert "already in the split 'train'" in wrong(f"flickr8k:{flickr}")
    tokens = flickr / "Flickr8k.token.txt"
    tokens.write_text("a.jpg#0\tx\na.jpg#0\ty\n")
    assert "line 2: a.jpg#0 occurs more than once" in wrong(f"flickr8k:{flickr}")
    tokens.write_text("a.jpg x\n")
    assert "line 1: expected 'name.jpg#0<TAB>caption', got" in wrong(f"flickr8k:{flickr}")
    tokens.unlink()
    assert "no Flickr8k.token.txt" in wrong(f"flickr8k:{flickr}")


def test_flickr30ks_token_file(tmp_path: Path) -> None:
    draw(tmp_path / "flickr30k-images" / "1000092795.jpg")
    rows = [f"1000092795.jpg#{k}\tTwo guys , number {k} ." for k in range(5)]
    (tmp_path / "results_20130124.token").write_text("\n".join(rows) + "\n")
    for spec in (f"{tmp_path}/results_20130124.token", f"flickr8k:{tmp_path}/results_20130124.token"):
        dataset = open_data(spec)
        assert ids(dataset) == ["1000092795.jpg"] and dataset[0].references[4] == "Two guys , number 4 ."


# -- coco


def coco(folder: Path, name: str, images: object, annotations: object) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / name).write_text(json.dumps({"images": images, "annotations": annotations}))
    return folder / name


def test_coco_as_published(tmp_path: Path) -> None:
    for split, name in (("train", "1.jpg"), ("val", "2.jpg")):
        draw(tmp_path / f"{split}2017" / name)
        captions = [{"image_id": int(name[0]), "caption": f"{split} caption\n"}, {"image_id": 9, "caption": "x"}]
        coco(
            tmp_path / "annotations", f"captions_{split}2017.json", [{"id": int(name[0]), "file_name": name}], captions
        )
    dataset = open_data(f"coco:{tmp_path}")
    assert [(i.id, i.split, i.references) for i in dataset] == [
        ("1", "train", ("train caption",)),
        ("2", "val", ("val caption",)),
    ]
    assert dict(dataset.missing) == {"image_id 9": 'has captions, but does not occur in "images"'}
    (tmp_path / "annotations" / "captions_train2017.json").write_text("{")  # not asked for: not read
    assert ids(open_data(f"coco:{tmp_path}?split=val")) == ["2"]
    assert "invalid JSON" in wrong(f"coco:{tmp_path}?split=train")


def test_coco_wrong(tmp_path: Path) -> None:
    draw(tmp_path / "a.png")
    image = {"id": 1, "file_name": "a.png"}
    file = coco(tmp_path, "captions.json", [image, image], [])
    assert "1 ids occur more than once: '1'" in wrong(f"coco:{file}")
    coco(tmp_path, "captions.json", [image], [{"caption": "x"}])
    assert 'annotations[0] has no "image_id"' in wrong(f"coco:{file}")
    coco(tmp_path, "captions.json", [image], [{"image_id": 1, "bbox": []}])
    assert 'annotations[0] has no "caption"' in wrong(f"coco:{file}")
    coco(tmp_path, "captions.json", [{"id": 1}], [])
    assert "images[0]" in wrong(f"coco:{file}")
    file.write_text("[]")
    assert "not COCO captions" in wrong(f"coco:{file}")
    assert "no such file or folder" in wrong(f"coco:{tmp_path}/nope")
    (tmp_path / "empty").mkdir()
    assert "no captions*.json" in wrong(f"coco:{tmp_path}/empty")


# -- karpathy


def test_karpathy(tmp_path: Path) -> None:
    draw(tmp_path / "images" / "val2014" / "1.jpg")
    draw(tmp_path / "images" / "2.jpg")
    images = [
        {"filename": "1.jpg", "filepath": "val2014", "split": "restval", "cocoid": 5, "sentences": [{"raw": "one."}]},
        {"filename": "2.jpg", "filepath": "val2014", "split": "val", "sentences": []},
        {"filename": "3.jpg", "split": "train", "sentences": []},
    ]
    file = tmp_path / "dataset_coco.json"
    file.write_text(json.dumps({"images": images}))
    train = open_data(f"karpathy:{file}?split=train")
    assert [(i.id, i.split, i.references) for i in train] == [("5", "train", ("one.",))]
    assert len(train.missing) == 1
    assert [(i.id, i.split) for i in open_data(f"karpathy:{file}?split=dev")] == [("2.jpg", "val")]
    images[1]["cocoid"] = 5
    file.write_text(json.dumps({"images": images}))
    assert "more than once: '5'" in wrong(f"karpathy:{file}")
    images[1]["sentences"] = [{"tokens": ["a"]}]
    file.write_text(json.dumps({"images": images}))
    assert 'images[1]: expected "sentences" to be' in wrong(f"karpathy:{file}")


# -- scenes


def test_scenes() -> None:
    dataset = open_data("scenes:plain?split=test&n=12&seed=3&family=3&references=2")
    assert len(dataset) == 12 and len(set(ids(dataset))) == 12
    item = dataset[0]
    assert item.truth is item.picture and item.split == "test" and len(item.references) == 2
    image = dataset.load_image(item)
    assert image is not None and image.size == (64, 64)
    assert ids(open_data("scenes:plain?split=test&n=12&seed=3&family=3")) == ids(dataset)
    assert ids(open_data("scenes:?split=val&n=3"))[0].startswith("scenes-plain-validation")
    assert open_data("scenes:?split=val&n=3")[0].split == "val"
    assert "one split at a time" in wrong("scenes:plain?split=test,train")
    assert "did you mean 'plain'" in wrong("scenes:plan")
    assert "did you mean 'detail'" in wrong("scenes:plain?detial=1")


def test_the_frames_of_clips_of_scenes_as_pictures() -> None:
    clips = list(open_data("scenes:plain?n=3&frames=4&split=test"))
    stills = list(open_data("scenes:plain?n=3&frames=4&split=test&stills=true"))
    assert [item.id for item in stills] == [f"{clip.id}#{number}" for clip in clips for number in range(4)]
    shown = [np.asarray(item.picture.image()) for item in stills]
    expected = [np.asarray(frame) for clip in clips for frame in clip.truth.frames()]
    assert all(np.array_equal(own, other) for own, other in zip(shown, expected, strict=True))
    assert len({item.picture.key() for item in stills}) == 12 and stills[0].references == clips[0].references
    with pytest.raises(UsageError, match="stills=true splits clips into frames, so it requires frames"):
        open_data("scenes:plain?n=3&stills=true")


@pytest.mark.parametrize("key", ["instruction", "input", "prompt"])
def test_an_instruction_that_is_no_text_is_one_line(key: str, tmp_path: Path) -> None:
    entry = {"output": "A lake."} | ({} if key == "prompt" else {"instruction": "Describe a lake."}) | {key: 0.5}
    (tmp_path / "chat.jsonl").write_text(json.dumps(entry) + "\n")
    with pytest.raises(UsageError, match=f'line 1: expected "{key}" to be a string, got 0.5'):
        open_data(f"instructions:{tmp_path / 'chat.jsonl'}")


def test_an_instruction_without_an_answer_is_left_out_beside_others(tmp_path: Path) -> None:
    told = [{"instruction": f"Name {word}.", "output": answer} for word, answer in (("a lake", "Como"), ("a sea", " "))]
    (tmp_path / "alpaca.json").write_text(json.dumps(told))
    dataset = open_data(f"instructions:{tmp_path / 'alpaca.json'}")
    assert [item.id for item in dataset] == ["1"] and "entry 2 (no answer)" in " ".join(dataset.report())
    (tmp_path / "questions.json").write_text(json.dumps(told[1:]))
    assert len(open_data(f"instructions:{tmp_path / 'questions.json'}")) == 1  # nobody answered: these are questions
