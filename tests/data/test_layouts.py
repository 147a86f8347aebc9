"""The published data sets, each in its real layout on a few pictures drawn here."""

import hashlib
import json
import zlib
from collections.abc import Callable
from pathlib import Path

import pytest
from reader_help import all_of, draw, ids, wrong

from tellapart.data import open_data
from tellapart.data.downloaded_pictures import url_file_name
from tellapart.data.pictures import ClipFile

# -- TextCaps and RedCaps


@pytest.mark.parametrize("at", ["train", "train_images", "."])
def test_textcaps_and_redcaps_as_data(at: str, tmp_path: Path) -> None:
    """Issue: both were "which layout is this JSON file?"."""
    draw(tmp_path / "pictures" / at / "0054c9.jpg")
    record = {"image_id": "0054c9", "image_name": "0054c9", "image_path": "train/0054c9.jpg", "set_name": "train"}
    texts = ["a sign that says stop", "a red stop sign"]
    records = [{**record, "caption_id": n, "caption_str": t, "reference_strs": texts} for n, t in enumerate(texts)]
    (tmp_path / "t.json").write_text(json.dumps({"dataset_name": "textcaps", "dataset_type": "train", "data": records}))
    dataset = open_data(f"{tmp_path / 't.json'}?images={tmp_path / 'pictures'}")
    assert all_of(dataset) == [("train/0054c9.jpg", tuple(texts), "train")] and not dataset.missing

    draw(tmp_path / "images" / "abandoned" / "bpzj7r.jpg")
    both = [
        {"image_id": id_, "author": "a", "url": f"https://i.redd.it/{id_}.jpg", "raw_caption": "Old Mill [OC]",
         "caption": "old mill", "subreddit": "abandoned", "score": 9}
        for id_ in ("bpzj7r", "gone")
    ]  # fmt: skip
    (tmp_path / "annotations").mkdir()
    file = tmp_path / "annotations" / "abandoned_2017.json"
    file.write_text(json.dumps({"info": {"year": 2017}, "annotations": both}))
    dataset = open_data(str(file))
    assert all_of(dataset) == [("abandoned/bpzj7r.jpg", ("old mill",), "")]
    assert [(Path(name).name, why) for name, why in dataset.missing] == [("gone.jpg", "no such file")]


# -- Conceptual Captions

URLS = [f"https://a.org/p/cat{n}.jpg?w=1" for n in range(4)]
NAMED: dict[str, Callable[[str, int], str]] = {
    "wget": lambda url, row: f"cat{row}.jpg",
    "ClipCap": lambda url, row: f"{row:08d}.jpg",
    "ViLBERT": lambda url, row: str(zlib.crc32(url.encode())),
    "its descendants": lambda url, row: f"{row}_{zlib.crc32(url.encode())}",
    "img2dataset": lambda url, row: f"00000/{row:09d}.jpg",
    "md5": lambda url, row: hashlib.md5(url.encode()).hexdigest() + ".png",
    "row": lambda url, row: f"{row}.webp",
}


def picture(path: Path) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(b"x")  # what is in it does not matter where only names do


def conceptual(folder: Path, name: str = "Train_GCC-training.tsv") -> Path:
    (folder / name).write_text("".join(f"caption {n}\t{url}\n" for n, url in enumerate(URLS)))
    return folder / name


@pytest.mark.parametrize("program", NAMED)
def test_conceptual_finds_what_was_fetched_and_counts_the_rest(tmp_path: Path, program: str) -> None:
    names = [NAMED[program](url, row) for row, url in enumerate(URLS)]
    for row in (0, 2):
        picture(tmp_path / "training" / names[row])
    (tmp_path / "training" / names[3]).touch()
    dataset = open_data(f"conceptual:{conceptual(tmp_path)}")
    assert all_of(dataset) == [(names[n], (f"caption {n}",), "train") for n in (0, 2)]
    assert [why for _, why in dataset.missing] == ["no such file", "empty file"]
    assert "2 of 4 could not be opened and were skipped" in dataset.report()[0]


def test_conceptual_12m_validation_and_wrong(tmp_path: Path) -> None:
    picture(tmp_path / "images" / "cat1.jpg")
    (tmp_path / "cc12m.tsv").write_text("".join(f"{url}\tcaption {n}\n" for n, url in enumerate(URLS)))
    assert all_of(open_data(f"conceptual:{tmp_path}/cc12m.tsv")) == [("cat1.jpg", ("caption 1",), "")]
    spec = f"conceptual:{conceptual(tmp_path, 'Validation_GCC-1.1.0-Validation.tsv')}"
    assert [item.split for item in open_data(f"{spec}?split=val")] == ["val"]
    assert "the split 'train' contains no items" in wrong(f"{spec}?split=train")
    (tmp_path / "images" / "cat1.jpg").unlink()
    assert "if the pictures are in another folder, add images=FOLDER" in wrong(spec)
    (tmp_path / "cc.tsv").write_text("a caption without an address\n")
    assert "expected 'caption<TAB>https://…', got" in wrong(f"conceptual:{tmp_path}/cc.tsv")


def test_an_address_cannot_lead_out_of_its_folder(tmp_path: Path) -> None:
    assert url_file_name("https://a.org/%2e%2e%2f%2e%2e%2fsecret.png?x=/y") == "secret.png"
    assert url_file_name("https://[a.org/x.png") == ""
    picture(tmp_path / "secret.png")
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "t.csv").write_text("url\nhttps://a.org/%2e%2e%2fsecret.png\nhttps://[a.org/x.png\n")
    assert "2 of 2 were skipped" in wrong(tmp_path / "in" / "t.csv")


# -- nocaps


def nocaps(folder: Path) -> Path:
    domains = ["in-domain", "near-domain", "out-domain", "out-domain"]
    for n in range(4):
        picture(folder / "images" / f"{n}.jpg")
    images = [{"id": n, "file_name": f"{n}.jpg", "domain": d, "open_images_id": f"x{n}"} for n, d in enumerate(domains)]
    captions = [{"image_id": n % 4, "id": n, "caption": f"{n}"} for n in range(8)]
    file = folder / "nocaps_val_4500_captions.json"
    file.write_text(json.dumps({"info": {}, "images": images, "annotations": captions}))
    (folder / "nocaps_test_image_info.json").write_text(json.dumps({"images": [{"id": 9, "file_name": "3.jpg"}]}))
    return file


def test_nocaps_by_domain(tmp_path: Path) -> None:
    file = nocaps(tmp_path)
    whole = open_data(f"nocaps:{file}")
    assert all_of(whole) == [(str(n), (str(n), str(n + 4)), "val") for n in range(4)] and not whole.missing
    assert ids(open_data(f"nocaps:{file}?domain=out")) == ["2", "3"]
    assert ids(open_data(f"nocaps:{file}?domain=near,in-domain")) == ["0", "1"]
    assert not open_data(f"nocaps:{file}?domain=in").missing  # the captions of other domains are no surprise
    assert ids(open_data(f"nocaps:{tmp_path}?split=test")) == ["9"]
    assert "unknown domain 'outt'; did you mean 'out'?" in wrong(f"nocaps:{file}?domain=outt")
    said = wrong(f"nocaps:{tmp_path}/nocaps_test_image_info.json?domain=in")
    assert "no picture has domain=in; available domains" in said
    assert "no nocaps*.json" in wrong(f"nocaps:{tmp_path}/images")


def test_nocaps_with_the_folder_of_its_split(tmp_path: Path) -> None:
    """Open Images' pictures in ``validation/``; an ``images/`` beside it that has others is passed over."""
    file = nocaps(tmp_path)
    (tmp_path / "images").rename(tmp_path / "validation")
    picture(tmp_path / "images" / "other.jpg")
    dataset = open_data(f"nocaps:{file}?domain=out")
    assert ids(dataset) == ["2", "3"] and not dataset.missing


# -- Concadia


def test_concadia_captions_and_descriptions(tmp_path: Path) -> None:
    images = [
        {"filename": f"{n}.jpg", "split": split, "caption": {"raw": f"c{n}"}, "description": {"raw": f"d{n}"}}
        for n, split in enumerate(["train", "val", "test"])
    ]
    file = tmp_path / "wiki_split.json"
    file.write_text(json.dumps({"images": images}))
    for n in range(3):
        picture(tmp_path / "resized" / f"{n}.jpg")
    assert all_of(open_data(f"concadia:{file}?split=train,val")) == [
        ("0.jpg", ("d0",), "train"),
        ("1.jpg", ("d1",), "val"),
    ]
    assert [item.references for item in open_data(f"concadia:{tmp_path}?text=captions&limit=1")] == [("c0",)]
    assert [item.references for item in open_data(f"concadia:{file}?text=both&split=test")] == [("d2", "c2")]
    assert "did you mean 'captions'?" in wrong(f"concadia:{file}?text=caption")
    file.write_text(json.dumps({"images": [{"filename": "0.jpg", "caption": {"raw": "x"}}]}))
    assert 'expected "caption" and "description" to be objects' in wrong(f"concadia:{file}")


# -- ImageCoDe


def test_imagecode(tmp_path: Path) -> None:
    file = tmp_path / "valid_data.json"
    file.write_text(json.dumps({"open-1": {"7": "the  seventh", "3": "the third"}, "video-2": {"0": "x"}}))
    for name in ("open-1", "video-2"):
        for n in range(10):
            picture(tmp_path / "image-sets" / name / f"img{n}.jpg")
    dataset = open_data(f"imagecode:{file}")
    assert len(dataset) == 20 and dataset[7].id == "open-1/img7.jpg" and dataset[7].references == ("the seventh",)
    assert dataset[0].references == () and {item.split for item in dataset} == {"val"}
    assert ids(open_data(f"imagecode:{file}?only=described")) == [
        "open-1/img3.jpg",
        "open-1/img7.jpg",
        "video-2/img0.jpg",
    ]
    (tmp_path / "test_data_unlabeled.json").write_text(json.dumps({"open-1": ["whom?", "this?"]}))
    test = open_data(f"imagecode:{tmp_path}/test_data_unlabeled.json")
    assert len(test) == 10 and not any(item.references for item in test) and test[0].split == "test"
    for key in ("10", "²"):
        file.write_text(json.dumps({"open-1": {key: "x"}}))
        assert "set open-1: expected texts with the keys 0 to 9" in wrong(f"imagecode:{file}")
    file.write_text("[]")
    assert "not ImageCoDe's JSON" in wrong(f"imagecode:{file}")
    assert "expected only=described" in wrong(f"imagecode:{file}?only=x")


# -- clips


def test_msrvtt_official_and_as_lists(tmp_path: Path) -> None:
    for n in (0, 1):
        picture(tmp_path / "TrainValVideo" / f"video{n}.mp4")
    videos = [{"video_id": f"video{n}", "split": split} for n, split in enumerate(["train", "validate", "train"])]
    sentences = [{"caption": f"s{n}", "video_id": f"video{n % 2}", "sen_id": n} for n in range(4)]
    file = tmp_path / "train_val_videodatainfo.json"
    file.write_text(json.dumps({"info": {}, "videos": videos, "sentences": sentences}))
    dataset = open_data(f"msrvtt:{file}")
    assert all_of(dataset) == [("video0", ("s0", "s2"), "train"), ("video1", ("s1", "s3"), "val")]
    assert isinstance(dataset[0].picture, ClipFile)
    assert [Path(name).name for name, _ in dataset.missing] == ["video2.mp4"]
    lines = tmp_path / "msrvtt_test.jsonl"
    lines.write_text('{"video_id": "video1", "caption": ["a", "b"]}\n{"video_id": "video0", "sentence": "c"}\n')
    assert all_of(open_data(f"msrvtt:{lines}")) == [("video1", ("a", "b"), "test"), ("video0", ("c",), "test")]
    lines.write_text('{"video_id": "video1", "text": "a"}\n')
    assert "expected a text under one of caption, captions, sentence; available keys: video_id, text" in wrong(
        f"msrvtt:{lines}"
    )
    lines.write_text('[{"id": 1}]')
    assert 'expected an object with "video_id"' in wrong(f"msrvtt:{lines}")


def test_msrvtt_as_its_folder(tmp_path: Path) -> None:
    """The two archives unpacked: one file of sentences each, clips in folders of their own."""
    for n, (name, place, split) in enumerate(
        [
            ("train_val_videodatainfo.json", "TrainValVideo", "validate"),
            ("test_videodatainfo.json", "TestVideo", "test"),
        ]
    ):
        picture(tmp_path / place / f"video{n}.mp4")
        videos = [{"video_id": f"video{n}", "split": split}]
        sentences = [{"caption": "a man", "video_id": f"video{n}", "sen_id": 0}]
        (tmp_path / name).write_text(json.dumps({"info": {}, "videos": videos, "sentences": sentences}))
    dataset = open_data(f"msrvtt:{tmp_path}")
    assert all_of(dataset) == [("video0", ("a man",), "val"), ("video1", ("a man",), "test")] and not dataset.missing
    assert ids(open_data(f"msrvtt:{tmp_path}?split=test")) == ["video1"]
    (tmp_path / "empty").mkdir()
    assert "no train_val_videodatainfo.json or test_videodatainfo.json in this folder" in wrong(
        f"msrvtt:{tmp_path / 'empty'}"
    )


def test_tgif_as_its_repository(tmp_path: Path) -> None:
    """``data/`` has the sentences and splits; the GIFs were downloaded beside it."""
    (tmp_path / "data" / "splits").mkdir(parents=True)
    url = "https://38.media.tumblr.com/ab/tumblr_0.gif"
    (tmp_path / "data" / "tgif-v1.0.tsv").write_text(f"{url}\ta man waves\n")
    (tmp_path / "data" / "splits" / "test.txt").write_text(url + "\n")
    draw(tmp_path / "gifs" / "tumblr_0.gif")
    assert all_of(open_data(f"tgif:{tmp_path}/data/tgif-v1.0.tsv?split=test")) == [
        ("tumblr_0.gif", ("a man waves",), "test")
    ]


def test_flickr30ks_karpathy_file_beside_its_archive(tmp_path: Path) -> None:
    """``flickr30k-images/``, as the archive names it; "no items" says where was looked."""
    images = [{"filename": "1000092795.jpg", "split": "test", "sentences": [{"raw": "Two guys ."}], "imgid": 0}]
    file = tmp_path / "dataset_flickr30k.json"
    file.write_text(json.dumps({"images": images, "dataset": "flickr30k"}))
    draw(tmp_path / "photos" / "1000092795.jpg")
    assert "if the pictures are in another folder, add images=FOLDER" in wrong(f"karpathy:{file}")
    (tmp_path / "images").mkdir()  # of something else
    (tmp_path / "photos").rename(tmp_path / "flickr30k-images")
    assert all_of(open_data(f"karpathy:{file}?split=test")) == [("1000092795.jpg", ("Two guys .",), "test")]


def test_tgif(tmp_path: Path) -> None:
    urls = [f"https://38.media.tumblr.com/ab{n}/tumblr_{n}.gif" for n in range(3)]
    rows = [f"{urls[0]}\ta man waves", f"{urls[1]}\tx", f"{urls[0]}\ta hand waves", f"{urls[2]}\tgone"]
    (tmp_path / "tgif-v1.0.tsv").write_text("\n".join(rows))
    (tmp_path / "splits").mkdir()
    (tmp_path / "splits" / "train.txt").write_text(urls[1] + "\n")
    (tmp_path / "splits" / "test.txt").write_text(urls[0] + "\n")
    for n in (0, 1):
        draw(tmp_path / "gifs" / f"tumblr_{n}.gif")
    dataset = open_data(f"tgif:{tmp_path}/tgif-v1.0.tsv")
    assert all_of(dataset) == [
        ("tumblr_0.gif", ("a man waves", "a hand waves"), "test"),
        ("tumblr_1.gif", ("x",), "train"),
    ]
    assert isinstance(dataset[0].picture, ClipFile) and len(dataset.missing) == 1
    assert ids(open_data(f"tgif:{tmp_path}/tgif-v1.0.tsv?split=test")) == ["tumblr_0.gif"]
    (tmp_path / "t.tsv").write_text("no address\n")
    assert "expected 'https://….gif<TAB>sentence', got" in wrong(f"tgif:{tmp_path}/t.tsv")
    (tmp_path / "splits" / "val.txt").write_text(urls[0] + "\n")
    assert "tumblr_0.gif is already in the split 'val'" in wrong(f"tgif:{tmp_path}/tgif-v1.0.tsv")


def test_msvd_text_and_splits(tmp_path: Path) -> None:
    text = "# 2010\n\nab_1_2 a dog runs\ncd-_3_4 x\nab_1_2 the dog is running\nef_5_6 gone\n"
    (tmp_path / "AllVideoDescriptions.txt").write_text(text)
    for name in ("ab_1_2.avi", "cd-_3_4.mp4"):
        picture(tmp_path / "YouTubeClips" / name)
    (tmp_path / "youtube_mapping.txt").write_text("ab_1_2 vid1200\ncd-_3_4 vid1201\nef_5_6 vid1301\n")
    dataset = open_data(f"msvd:{tmp_path}")
    assert all_of(dataset) == [
        ("ab_1_2", ("a dog runs", "the dog is running"), "train"),
        ("cd-_3_4", ("x",), "val"),
    ]
    assert [Path(name).name for name, _ in dataset.missing] == ["ef_5_6.avi"]
    (tmp_path / "test_list.txt").write_text("ab_1_2.avi\n")
    assert ids(open_data(f"msvd:{tmp_path}?split=test")) == ["ab_1_2"]


def test_msvd_table_has_languages(tmp_path: Path) -> None:
    head = "VideoID,Start,End,WorkerID,Source,AnnotationTime,Language,Description\n"
    rows = [
        'ab,1,2,9,clean,5,English,"a dog, running"',
        "ab,1,2,9,clean,5,German,Ein Hund läuft",
        "ab,1,2,8,clean,5,English,",
    ]
    file = tmp_path / "corpus.csv"
    file.write_text(head + "\n".join(rows), encoding="utf-8")
    picture(tmp_path / "ab_1_2.avi")
    assert all_of(open_data(f"msvd:{file}")) == [("ab_1_2", ("a dog, running",), "")]
    assert all_of(open_data(f"msvd:{tmp_path}?language=german")) == [("ab_1_2", ("Ein Hund läuft",), "")]
    file.write_text("a,b\n")
    assert "no column 'VideoID'; available columns: a, b" in wrong(f"msvd:{file}")
    assert "no such file" in wrong(f"msvd:{tmp_path}/nope.txt")


def test_folders_and_lists_take_clips_by_their_suffix(tmp_path: Path) -> None:
    draw(tmp_path / "a.gif")
    draw(tmp_path / "b.png")
    picture(tmp_path / "c.mp4")
    (tmp_path / "d.jsonl").write_text('{"image": "c.mp4"}\n{"image": "b.png"}\n')
    (tmp_path / "d.csv").write_text("video,caption\na.gif,x\n")
    kinds = {item.id: type(item.picture).__name__ for item in open_data(str(tmp_path))}
    assert kinds == {"a.gif": "ClipFile", "b.png": "FilePicture", "c.mp4": "ClipFile"}
    assert [isinstance(item.picture, ClipFile) for item in open_data(f"{tmp_path}/d.jsonl")] == [True, False]
    assert isinstance(open_data(f"{tmp_path}/d.csv")[0].picture, ClipFile)
    assert ids(open_data(f"{tmp_path}/c.mp4")) == ["c.mp4"]
