"""Candidate sets of files, and what an evaluation makes of them."""

from __future__ import annotations

import json
import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tellapart.bags.file import Bag, BagsFile, Header, read_bags, write_bags
from tellapart.bags.truematch import read_truematch, write_truematch
from tellapart.errors import UsageError
from tellapart.evaluation.candidate_sets import CandidateSets, whole_sets
from tellapart.evaluation.file_sets import FileSets, read_sets
from tellapart.evaluation.options import EvalOptions
from tellapart.evaluation.retrieval import per_set, retrieve
from tellapart.evaluation.run_eval import run_eval

BAGS = [Bag(("a", "b", "c"), 0.9), Bag(("d", "e"), 0.8), Bag(("f", "g", "h"), 0.7)]
HEADER = Header("some/clip", "0123456789abcdef", "folder:x", (2, 3), 8, {"copies": 1}, "", "query", None, None, "1")


def test_bags_come_back_as_they_were_written(tmp_path: Path) -> None:
    path = tmp_path / "bags.jsonl"
    write_bags(path, BagsFile(HEADER, BAGS))
    found = read_bags(path, fingerprint="0123456789abcdef", known="abcdefgh")
    assert found == BagsFile(HEADER, BAGS)
    assert {size: len(own) for size, own in found.of_size().items()} == {2: 1, 3: 2}
    sets = read_sets(path)
    assert [(own.name, own.sets) for own in sets] == [
        ("bag2", [("d", "e")]), ("bag3", [("a", "b", "c"), ("f", "g", "h")])
    ]  # fmt: skip
    assert sets[0].origin.startswith("mined-by:clip@01234567|file:")


def test_truematch_in_its_published_layout(tmp_path: Path) -> None:
    (tmp_path / "3.json").write_text("[[391895, 522418, 7], [1, 2, 3]]")
    bags = read_truematch(tmp_path / "3.json")
    assert [bag.ids for bag in bags] == [("391895", "522418", "7"), ("1", "2", "3")]
    assert [path.name for path in write_truematch(tmp_path / "out", [*bags, Bag(("007", "b.jpg"))])] == [
        "2.json", "3.json"
    ]  # fmt: skip
    assert json.loads((tmp_path / "out" / "3.json").read_text()) == [[391895, 522418, 7], [1, 2, 3]]
    assert json.loads((tmp_path / "out" / "2.json").read_text()) == [["007", "b.jpg"]]
    assert [own.name for own in read_sets(tmp_path / "out")] == ["bag2", "bag3"]
    assert read_sets(tmp_path / "3.json")[0].name == "bag3"


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ('{"ids": ["a", "b"]}\n', "is not a bag file; expected the output of 'tellapart bags mine'"),
        ('{"kind": "tellapart bags", "format": 9}\n', "has bag format 9, but this version reads format 1"),
        (
            '{"kind": "tellapart bags", "format": 1}\n',
            "contains no bags; mine again with a smaller bag size, or from more pictures",
        ),
        ('{"kind": "tellapart bags", "format": 1}\n{"ids": ["a"]}\n', "line 2: expected a bag of at least two ids"),
        (
            '{"kind": "tellapart bags", "format": 1}\n{"ids": ["a", "a"]}\n',
            "the picture 'a' occurs twice in this bag",
        ),
        ('{"kind": "tellapart bags", "format": 1}\n{"ids": \n', "line 2: invalid JSON"),
        ("", "not a bag file"),
    ],
)
def test_a_file_that_is_none_is_told(tmp_path: Path, text: str, told: str) -> None:
    path = tmp_path / "bags.jsonl"
    path.write_text(text)
    with pytest.raises(UsageError, match=told):
        read_bags(path)


@pytest.mark.parametrize(
    "name, text",
    [
        ("3.json", '[[1, 2, 3], {"ids": 1, "ids": 2}]'),
        ("imagecode.json", '{"set-a": {"0": "a dog", "0": "a cat"}}'),
        ("bags.jsonl", '{"kind": "tellapart bags", "format": 1}\n{"ids": ["a", "b"], "ids": ["c", "d"]}\n'),
    ],
)
def test_a_key_that_is_there_twice_is_refused(tmp_path: Path, name: str, text: str) -> None:
    path = tmp_path / name
    path.write_text(text)
    with pytest.raises(UsageError, match=r"the key \"(ids|0)\" occurs twice in one object"):
        read_sets(path)


def test_captions_with_a_key_that_is_there_twice_are_refused(tmp_path: Path) -> None:
    for name, text in (
        ("own.json", '{"1": "a dog", "1": "a cat"}'),
        ("own.jsonl", '{"id": 1, "caption": "a dog", "id": 2}\n{"id": 3, "caption": "a cat"}\n'),
    ):
        (tmp_path / name).write_text(text)
        with pytest.raises(UsageError, match="occurs twice in one object; remove one of them"):
            run_eval(EvalOptions([tmp_path / name], metrics=["length"]))


def test_another_scorers_bags_and_missing_pictures_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "bags.jsonl"
    write_bags(path, BagsFile(HEADER, BAGS))
    with pytest.raises(UsageError, match="was mined with the features of some/clip"):
        read_bags(path, fingerprint="ffff")
    with pytest.raises(UsageError, match=r"2 of its pictures are not in the data \('c', 'h'\)"):
        read_bags(path, known="abdefg")
    with pytest.raises(UsageError, match="no such file"):
        read_bags(tmp_path / "none.jsonl")


def test_each_set_is_told_apart(tmp_path: Path) -> None:
    given = FileSets("bag2", [("a", "b"), ("c", "d")], [("a",), ("c", "d")])
    sets = given.rows({"a": 0, "b": 1, "c": 2, "d": 3})
    image_ND = np.eye(4, dtype=np.float32)
    found = retrieve(sets, image_ND[[1, 1, 2, 2]], image_ND)  # captions of a and d describe b and c
    assert per_set(found, "abcd") == [
        {"ids": ["a", "b"], "asked": ["a"], "hit": [], "mean_rank": 2.0},
        {"ids": ["c", "d"], "asked": ["c", "d"], "hit": ["c"], "mean_rank": 1.5},
    ]
    with pytest.raises(UsageError, match=r"bag2: 1 of 4 pictures in its sets are not in the data .*'d'"):
        given.rows({"a": 0, "b": 1, "c": 2})


@pytest.fixture
def test_scenes(tmp_path: Path) -> dict[str, Any]:
    """Captions of forty scenes, each its own reference, and bags of them in a file."""
    from tellapart.data import open_data

    spec = "scenes:plain?n=40&split=test"
    items = list(open_data(spec))
    captions = tmp_path / "own.jsonl"
    captions.write_text("".join(json.dumps({"id": i.id, "caption": i.references[0]}) + "\n" for i in items))
    bags = tmp_path / "bags.jsonl"
    own = [Bag(tuple(item.id for item in items[start : start + 4])) for start in range(0, 24, 4)]
    write_bags(bags, BagsFile(HEADER, own))
    return {"items": items, "captions": captions, "bags": bags, "data": spec}


def test_evaluation_of_bags_with_people_and_chance(test_scenes: dict[str, Any], tiny_scorer: Path) -> None:
    results = run_eval(EvalOptions(
        [test_scenes["captions"]], None, test_scenes["data"], str(tiny_scorer),
        metrics=["recall@1.bag4", "mean_rank.bag4"], bags=[test_scenes["bags"]], human="mean",
        chance=True, resamples=50,
    ))  # fmt: skip
    own, chance = results.systems["own"], results.systems["chance"]
    assert own["recall@1.bag4"].n == 24 and chance["recall@1.bag4"].value == 25 and "human" in results.systems
    assert chance["mean_rank.bag4"].value == 2.5 and 1 <= own["mean_rank.bag4"].value <= 4
    assert "pools:bag4x6|mined-by:clip@01234567|file:" in results.signatures["recall@1.bag4"]
    sets = results.extra["sets"]["bag4"]["own"]
    assert len(sets) == 6 and own["recall@1.bag4"].value == pytest.approx(100 * sum(len(s["hit"]) for s in sets) / 24)
    from tellapart.features.store import FeatureStore
    from tellapart.scorers import load_scorer

    scorer, items = load_scorer(str(tiny_scorer)), test_scenes["items"]
    image_ND = FeatureStore().features(items, scorer.encoder)
    text_ND = scorer.text_features([item.references[0] for item in items]).numpy()
    hits = [text_ND[r] @ image_ND[r] >= (text_ND[r] @ image_ND[r // 4 * 4 :][:4].T).max() - 1e-6 for r in range(24)]
    assert own["recall@1.bag4"].value == pytest.approx(100 * np.mean(hits))


def test_a_picture_in_several_bags_is_asked_for_in_each(
    test_scenes: dict[str, Any], tiny_scorer: Path, tmp_path: Path
) -> None:
    items, bags = test_scenes["items"], tmp_path / "overlapping.jsonl"
    # Picture 0 stands in eight bags, the others in one each.
    rows = [[0, *range(start, start + 3)] for start in range(1, 25, 3)]
    write_bags(bags, BagsFile(HEADER, [Bag(tuple(items[row].id for row in members)) for members in rows]))
    results = run_eval(EvalOptions(
        [test_scenes["captions"]], None, test_scenes["data"], str(tiny_scorer),
        metrics=["recall@1.bag4", "mean_rank.bag4"], bags=[bags], chance=True, resamples=50, human="first",
    ))  # fmt: skip
    own, sets = results.systems["own"], results.extra["sets"]["bag4"]["own"]
    assert own["recall@1.bag4"].n == own["mean_rank.bag4"].n == 32 == results.pairs[0].difference.n
    assert own["recall@1.bag4"].value == pytest.approx(100 * sum(len(one["hit"]) for one in sets) / 32)
    assert own["mean_rank.bag4"].value == pytest.approx(np.mean([one["mean_rank"] for one in sets]))
    assert results.systems["chance"]["recall@1.bag4"].value == 25


def test_pictures_asked_for_in_one_set_are_one_unit() -> None:
    bags = whole_sets([[0, 1], [2, 3], [5, 6], [6, 7]])
    assert bags.units(9).tolist() == [0, 0, 2, 2, 4, 5, 5, 5, 8], "sets that share a picture are one unit"
    assert whole_sets([range(9)]).units(9) is None, "one pool of all"
    described = CandidateSets((np.arange(5), np.arange(4, 9)), np.array([0, 0, 1, 1]), np.array([1, 2, 5, 8]))
    assert described.units(9).tolist() == [0, 1, 1, 3, 4, 5, 6, 7, 5], "distractors are not asked for"


def test_recall_in_bags_is_resampled_by_bags(test_scenes: dict[str, Any], tiny_scorer: Path, tmp_path: Path) -> None:
    """One caption for all: the scorer picks one of each bag of four, and R@1 is 25 in every resample of bags."""
    items, bags, captions = test_scenes["items"], tmp_path / "bags.jsonl", tmp_path / "same.jsonl"
    ids = [item.id for item in items][:40]
    write_bags(bags, BagsFile(HEADER, [Bag(tuple(ids[start : start + 4])) for start in range(0, 40, 4)]))
    captions.write_text("".join(json.dumps({"id": id_, "caption": "a red square"}) + "\n" for id_ in ids))
    results = run_eval(EvalOptions(
        [captions], None, test_scenes["data"], str(tiny_scorer), metrics=["recall@1.bag4", "length"], bags=[bags],
    ))  # fmt: skip
    found, by_pictures = results.systems["same"]["recall@1.bag4"], 25 - 100 * 1.96 * np.sqrt(0.25 * 0.75 / 40)
    assert found.value == 25 and found.n == 40 and found.low > by_pictures + 4
    rows = results.values["same"]["recall@1.bag4"].reshape(10, 4)
    assert (rows.sum(1) == 100).all(), "else this shows nothing"
    assert ",1000@0,unit:sets" in results.signatures["recall@1.bag4"]
    assert "unit:" not in results.signatures["length"]


def test_a_hard_pool_has_distractors_that_nobody_asks_for(test_scenes: dict[str, Any], tiny_scorer: Path) -> None:
    results = run_eval(EvalOptions(
        [test_scenes["captions"]], None, test_scenes["data"], str(tiny_scorer),
        metrics=["recall@1.hard", "recall@5.hard"], distractors="scenes:plain?n=160&split=validation",
        chance=True, resamples=50,
    ))  # fmt: skip
    assert results.systems["chance"]["recall@5.hard"].value == pytest.approx(100 * 5 / 200)
    assert results.systems["own"]["recall@1.hard"].n == len(results.values["own"]["recall@1.hard"]) == 40


def test_sets_of_other_pictures_are_refused_before_anything_slow(test_scenes: dict[str, Any], tmp_path: Path) -> None:
    data, captions = test_scenes["data"], [test_scenes["captions"]]
    with pytest.raises(
        UsageError, match=r"metric 'recall@1.bag3' requires candidate sets of that name; add --bags FILE"
    ):
        run_eval(EvalOptions(captions, None, data, "x", metrics=["recall@1.bag3"], bags=[test_scenes["bags"]]))
    with pytest.raises(UsageError, match="--bags and --distractors require a scorer; add --scorer MODEL"):
        run_eval(EvalOptions(captions, None, data, None, bags=[test_scenes["bags"]]))
    (tmp_path / "3.json").write_text("[[1, 2, 3]]")
    with pytest.raises(UsageError, match="bag3: 3 of 3 target pictures have no caption or are not in the data,"):
        run_eval(EvalOptions(captions, None, data, "x", bags=[tmp_path / "3.json"]))
    with pytest.raises(UsageError, match="two files contain sets named bag4; evaluate"):
        run_eval(EvalOptions(captions, None, data, "x", bags=[test_scenes["bags"]] * 2))


def coco_photos(folder: Path, numbers: range) -> list[str]:
    """Pictures called as COCO's of 2014 are, each a scene; their captions."""
    from tellapart.data import open_data

    folder.mkdir()
    texts = []
    for number, item in zip(numbers, open_data(f"scenes:plain?n={len(numbers)}&split=test"), strict=True):
        item.picture.image().save(folder / f"COCO_val2014_{number:012d}.jpg")
        texts.append(item.references[0])
    return texts


def test_truematch_as_distributed(tiny_scorer: Path, tmp_path: Path) -> None:
    """COCO's numbers in ``1.json`` to ``7.json``, predictions by number, and a folder of pictures."""
    numbers = range(391895, 391907)
    texts = coco_photos(tmp_path / "images", numbers)
    (tmp_path / "TrueMatch").mkdir()
    for size in (1, 3, 4):
        bags = [list(numbers[start : start + size]) for start in range(0, 12, size)]
        (tmp_path / "TrueMatch" / f"{size}.json").write_text(json.dumps(bags))
    predictions = tmp_path / "predictions.json"
    predictions.write_text(json.dumps(dict(zip(map(str, numbers), texts, strict=True))))
    results = run_eval(EvalOptions(
        [predictions], None, str(tmp_path / "images"), str(tiny_scorer), metrics=["recall@1.bag3", "recall@1.bag4"],
        bags=[tmp_path / "TrueMatch"], chance=True, resamples=50,
    ))  # fmt: skip
    assert results.systems["predictions"]["recall@1.bag3"].n == 12
    assert results.systems["chance"]["recall@1.bag4"].value == 25
    first = results.extra["sets"]["bag3"]["predictions"][0]
    assert first["ids"] == [f"COCO_val2014_{number:012d}.jpg" for number in numbers[:3]]
    assert any(
        "matched 12 of 12 captions with the data by the number in the file name" in note for note in results.notes
    )


def test_a_list_of_ids_is_a_hard_pool(tiny_scorer: Path, tmp_path: Path) -> None:
    """CapEnrich's ``imgids``: numbers of pictures of the data set, in any split; those of the test set count once."""
    numbers = range(42, 72)
    coco_photos(tmp_path / "val2014", numbers)
    splits = ["test"] * 10 + ["train"] * 20
    images = [
        {"filepath": "val2014", "filename": f"COCO_val2014_{number:012d}.jpg", "split": split, "cocoid": number,
         "sentences": [{"raw": f"picture {number}"}]}
        for number, split in zip(numbers, splits, strict=True)
    ]  # fmt: skip
    data = tmp_path / "dataset_coco.json"
    data.write_text(json.dumps({"images": images, "dataset": "coco"}))
    listed = tmp_path / "imgids.json"
    listed.write_text(json.dumps({"imgids": [*numbers[:25], 999]}))
    captions = tmp_path / "own.json"
    captions.write_text(json.dumps([{"image_id": n, "caption": "a red square"} for n in numbers[:10]]))
    options = EvalOptions([captions], None, f"karpathy:{data}?split=test", str(tiny_scorer), metrics=["recall@5.hard"],
                          distractors=str(listed), chance=True, resamples=50)  # fmt: skip
    results = run_eval(options)
    assert results.systems["chance"]["recall@5.hard"].value == pytest.approx(100 * 5 / 25)  # 10 and 15 others
    assert results.systems["own"]["recall@5.hard"].n == 10
    assert any("999" in note and "not in the data" in note for note in results.notes)
    listed.with_suffix(".pkl").write_bytes(b"")
    with pytest.raises(UsageError, match=r"pickle files are not supported.*json\.dump\(pickle"):
        run_eval(replace(options, distractors=f"karpathy:{data}?ids={listed.with_suffix('.pkl')}"))


def test_imagecode_needs_captions_of_described_pictures_only(tiny_scorer: Path, tmp_path: Path) -> None:
    """Captions of ``?only=described``, two of twenty pictures, are whole: --allow-missing alone will do."""
    from tellapart.data import open_data

    described = {"set-a": {"3": "a dog"}, "set-b": {"0": "a cat"}}
    (tmp_path / "valid_data.json").write_text(json.dumps(described))
    scenes = iter(open_data("scenes:plain?n=20&split=test"))
    for name in described:
        (tmp_path / "image-sets" / name).mkdir(parents=True)
        for place in range(10):
            next(scenes).picture.image().save(tmp_path / "image-sets" / name / f"img{place}.jpg")
    captions = tmp_path / "own.json"
    captions.write_text(json.dumps({"set-a/img3.jpg": "a red square", "set-b/img0.jpg": "a blue circle"}))
    options = EvalOptions([captions], None, f"imagecode:{tmp_path / 'valid_data.json'}", str(tiny_scorer),
                          metrics=["recall@1.imagecode"], bags=[tmp_path / "valid_data.json"], allow_missing=True,
                          chance=True, resamples=50)  # fmt: skip
    results = run_eval(options)
    assert results.systems["own"]["recall@1.imagecode"].n == 2
    assert results.systems["chance"]["recall@1.imagecode"].value == 10
    with pytest.raises(UsageError, match="have only 2 of 20 ids in common; are they about the same"):
        run_eval(replace(options, bags=None, metrics=["length"]))


def test_imagecode_is_asked_where_it_has_texts(tmp_path: Path) -> None:
    path = tmp_path / "valid.json"
    path.write_text(json.dumps({"set-a": {"3": "a  dog\n", "0": "a cat"}, "set-b": {"9": "rain"}}))
    (given,) = read_sets(path)
    assert given.name == "imagecode" and [len(members) for members in given.sets] == [10, 10]
    assert given.asked() == ["set-a/img0.jpg", "set-a/img3.jpg", "set-b/img9.jpg"]
    path.write_text(json.dumps({"set-a": {"10": "a dog"}}))
    with pytest.raises(UsageError, match="set set-a: expected texts with the keys 0 to 9"):
        read_sets(path)
    path.write_text('{"a": 3}')
    with pytest.raises(UsageError, match=": unknown layout of candidate sets; expected"):
        read_sets(path)


@pytest.mark.data
def test_the_real_files() -> None:
    from tellapart.evaluation.candidate_sets import chance

    data = Path(os.environ.get("TELLAPART_DATA", "../shared/data"))
    (imagecode,) = read_sets(data / "annotations" / "imagecode_valid.json")
    assert len(imagecode.sets) == 1039 and len(imagecode.asked()) == 2302
    rows = imagecode.rows({id_: row for row, id_ in enumerate(imagecode.ids())})
    assert np.nanmean(chance(rows, 10390, 1)) == pytest.approx(0.1)
    pairs, fours = read_sets(data / "framepairs" / "framepairs.json")
    assert (pairs.name, len(pairs.sets), fours.name, len(fours.sets)) == ("bag2", 2000, "bag4", 96)
    assert all((data / "framepairs" / "images" / name).is_file() for name in (*pairs.ids()[:50], *fours.ids()[:50]))
