"""The readers on the real files of ../shared/data."""

from collections import Counter
from pathlib import Path

import pytest
from real_data import DATA

from tellapart.data import open_data

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


def test_first_frame_of_real_gifs() -> None:
    dataset = open_data(f"folder:{DATA / 'clips'}")
    assert len(dataset) == 2
    assert all(dataset.load_image(item) is not None for item in dataset)
