"""The readers on the real files of ../shared/data."""

import csv
import json
import tarfile
from collections import Counter
from pathlib import Path

import pytest
from real_data import DATA

from tellapart.data import open_data
from tellapart.data.pictures import ClipFile, sample_frames
from tellapart.data.readers.imagecode import image_sets
from tellapart.evaluation.file_sets import read_sets

pytestmark = [
    pytest.mark.data,
    pytest.mark.skipif(not DATA.is_dir(), reason=f"no real data in {DATA}; set TELLAPART_DATA"),
]


def test_flickr8k_has_its_splits_captions_and_the_two_that_do_not_exist() -> None:
    dataset = open_data(f"flickr8k:{DATA / 'flickr8k'}")
    assert Counter(item.split for item in dataset) == {"train": 6000, "val": 1000, "test": 1000, "": 91}
    assert {len(item.references) for item in dataset} == {5}
    assert [Path(name).name for name, _ in dataset.missing] == [
        "2258277193_586949ec62.jpg.1",
        "2258277193_586949ec62.jpg",
    ]
    assert "2 of 8,093" in dataset.report()[0]
    image = dataset.load_image(dataset[0])
    assert image is not None and image.size == (128, 128)


@pytest.mark.parametrize(("split", "count"), [("train", 6000), ("dev", 1000), ("test", 1000)])
def test_flickr8k_split(split: str, count: int) -> None:
    dataset = open_data(f"flickr8k:{DATA / 'flickr8k'}?split={split}")
    assert len(dataset) == count and not dataset.missing


def test_coco280() -> None:
    dataset = open_data(f"coco:{DATA / 'coco280'}")
    assert len(dataset) == 280 and not dataset.missing
    assert {len(item.references) for item in dataset} == {5}
    sizes = [image.size for item in dataset[:40] if (image := dataset.load_image(item))]
    assert len(sizes) == 40 and max(max(size) for size in sizes) == 320
    keys = {item.picture.key() for item in dataset}
    assert len(keys) == 280


def test_a_folder_of_real_clips() -> None:
    dataset = open_data(f"folder:{DATA / 'clips'}")
    assert len(dataset) == 13 and all(isinstance(item.picture, ClipFile) for item in dataset)
    gifs = [item for item in dataset if item.id.endswith(".gif")]
    assert len(gifs) == 2 and all(dataset.load_image(item) is not None for item in gifs)


def test_imagecode_as_published_and_as_candidate_sets(tmp_path: Path) -> None:
    file = DATA / "annotations" / "imagecode_valid.json"
    [sets] = read_sets(file)
    shown = list(dict.fromkeys(sets.sets[0] + sets.sets[1]))
    for id_ in shown:
        (tmp_path / id_).parent.mkdir(exist_ok=True)
        (tmp_path / id_).symlink_to(next((DATA / "framepairs" / "images").iterdir()))
    dataset = open_data(f"imagecode:{file}?images={tmp_path}")
    assert [item.id for item in dataset] == shown and len(dataset) + len(dataset.missing) == 10_390
    described = {
        id_: text for one in image_sets(json.loads(file.read_text()), "") for id_, text in one.described.items()
    }
    assert {item.id: list(item.references) for item in dataset if item.references} == {
        id_: [" ".join(text.split())] for id_, text in described.items() if id_ in shown
    }
    assert sorted(sets.asked()) == sorted(described)
    assert (len(sets.sets), len(described)) == (1039, 2302) and {item.split for item in dataset} == {"val"}
    assert dataset.load_image(dataset[0]) is not None


def test_clips_with_their_captions_as_msvd_and_msrvtt_have_them(tmp_path: Path) -> None:
    captions = json.loads((DATA / "clips" / "references.json").read_text())
    msvd = {name.removesuffix(".avi"): texts for name, texts in captions.items() if name.endswith(".avi")}
    lines = [f"{name} {text}" for k in range(60) for name, texts in msvd.items() for text in texts[k : k + 1]]
    (tmp_path / "AllVideoDescriptions.txt").write_text("# MSVD\n" + "\n".join(lines))
    dataset = open_data(f"msvd:{tmp_path}?images={DATA / 'clips'}")
    assert {item.id: list(item.references) for item in dataset} == {
        name: [" ".join(text.split()) for text in texts[:60]] for name, texts in msvd.items()
    }
    assert len(dataset) == 7 and not dataset.missing
    msrvtt = {name.removesuffix(".mp4"): texts for name, texts in captions.items() if name.endswith(".mp4")}
    sentences = [{"video_id": name, "caption": text} for name, texts in msrvtt.items() for text in texts]
    info = {"videos": [{"video_id": name, "split": "test"} for name in msrvtt], "sentences": sentences}
    (tmp_path / "test_videodatainfo.json").write_text(json.dumps(info))
    dataset = open_data(f"msrvtt:{tmp_path}/test_videodatainfo.json?images={DATA / 'clips'}&split=test")
    assert {item.id: len(item.references) for item in dataset} == {name: len(texts) for name, texts in msrvtt.items()}
    assert len(sample_frames(dataset[0].picture, 3)) == 3


def test_flickr8k_as_kaggle_has_it_is_the_same(tmp_path: Path) -> None:
    token = (DATA / "flickr8k" / "Flickr8k.token.txt").read_text().splitlines()
    rows = [(line.partition("#")[0], line.partition("\t")[2]) for line in token]
    with (tmp_path / "captions.txt").open("w", newline="") as file:
        csv.writer(file).writerows([("image", "caption"), *rows])
    ours = open_data(f"csv:{tmp_path}/captions.txt?images={DATA / 'flickr8k' / 'images'}")
    theirs = open_data(f"flickr8k:{DATA / 'flickr8k'}")
    assert {item.id: sorted(item.references) for item in ours} == {i.id: sorted(i.references) for i in theirs}
    assert len(ours) == 8091 and len(ours.missing) == 2


def test_real_photos_in_a_tar_are_the_same_pictures(tmp_path: Path) -> None:
    photos = open_data(f"flickr8k:{DATA / 'flickr8k'}?split=test&limit=20")
    with tarfile.open(tmp_path / "s.tar", "w") as archive:
        for item in photos:
            archive.add(item.picture.name, item.id)
    inside = open_data(f"{tmp_path}/s.tar")
    assert [item.id for item in inside] == [f"s/{item.id.removesuffix('.jpg')}" for item in photos]
    assert [item.picture.key() for item in inside] == [item.picture.key() for item in photos]
    assert [i.picture.image().tobytes() for i in inside] == [p.picture.image().tobytes() for p in photos]
