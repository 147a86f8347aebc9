"""Hard pools: the look-alikes of test pictures among other pictures."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import numpy as np
from command_line import Cli
from PIL import Image

from tellapart.bags.hard_pool import nearest_to_targets
from tellapart.data import open_data
from tellapart.evaluation.candidate_inputs import read_candidates


def unit(rng: np.random.Generator, count: int) -> np.ndarray:
    rows = rng.normal(size=(count, 8)).astype(np.float32)
    return rows / np.linalg.norm(rows, axis=1, keepdims=True)


def save_noise(folder: Path, sizes: dict[str, int], prefix: bool) -> None:
    """Folders of photos of 3:2, named by number, with the folder's name before it or without."""
    rng = np.random.default_rng(1)
    for name, count in sizes.items():
        (folder / name).mkdir()
        for n in range(count):
            noise = Image.fromarray(rng.integers(0, 256, (4, 6, 3), dtype=np.uint8)).resize((60, 40))
            noise.save(folder / name / f"{name if prefix else ''}{n}.png")


def test_the_pool_is_the_union_of_each_targets_nearest() -> None:
    rng = np.random.default_rng(0)
    targets_ND, others_MD = unit(rng, 300), unit(rng, 500)
    others_MD[7] = targets_ND[3]  # a copy
    rows, near = nearest_to_targets(targets_ND, others_MD, 2)
    cosine_NM = targets_ND @ others_MD.T
    cosine_NM[3, 7] = -1
    wanted = {int(m) for cosine_M in cosine_NM for m in np.argsort(-cosine_M)[:2]}
    assert rows.tolist() == sorted(wanted)
    for row, target in zip(rows, near, strict=True):
        owners = [n for n in range(300) if row in np.argsort(-cosine_NM[n])[:2]]
        assert target == max(owners, key=lambda n: cosine_NM[n, row])
    assert len(nearest_to_targets(targets_ND, others_MD[:1], 5)[0]) == 1, "fewer others than are asked for"


def test_a_pool_from_the_command_line_is_a_list_of_distractors(cli: Cli, tiny_scorer: Path, tmp_path: Path) -> None:
    save_noise(tmp_path, {"test": 4, "other": 9}, prefix=True)
    list_ = tmp_path / "pool.jsonl"
    done = cli(
        "bags", "pool", tmp_path / "test", "--among", tmp_path / "other", "--scorer", tiny_scorer, "--nearest", 1,
        "-o", list_, "--json",
    )  # fmt: skip
    assert done.status == 0, done.err
    told = json.loads(done.out)
    assert told["targets"] == 4 and 1 <= told["pictures"] <= 4
    rows = [json.loads(line) for line in list_.read_text().splitlines()]
    assert all(row["near"].startswith("test") and -1 <= row["cosine"] <= 1 for row in rows)
    ids = [item.id for item in open_data(str(tmp_path / "test"))]
    given = read_candidates([], str(list_), ids, None)
    assert [own.name for own in given.sets] == ["hard"] and len(given.sets[0].ids()) == 4 + told["pictures"]
    refused = cli("bags", "pool", tmp_path / "test", "--among", tmp_path / "test", "--scorer", tiny_scorer, "-o", list_)
    assert (
        refused.status == 2
        and "no pictures remain for the pool; expected pictures other than those of the test set" in refused.err
    )
    packed = cli("bags", "pool", tmp_path / "test", "--among", "scenes:plain?n=5", "--scorer", tiny_scorer, "-o", list_)
    assert packed.status == 2 and "is not a separate file" in packed.err


def test_a_pool_is_of_other_pictures_not_of_other_names(cli: Cli, tiny_scorer: Path, tmp_path: Path) -> None:
    """Folders number their pictures from 0 again, and a copy may have another name."""
    save_noise(tmp_path, {"test": 4, "other": 6}, prefix=False)
    shutil.copy(tmp_path / "test" / "1.png", tmp_path / "other" / "copy.png")
    list_ = tmp_path / "pool.jsonl"
    done = cli(
        "bags", "pool", tmp_path / "test", "--among", tmp_path / "other", "--scorer", tiny_scorer, "--nearest", 6,
        "-o", list_,
    )  # fmt: skip
    assert done.status == 0, done.err
    rows = [json.loads(line) for line in list_.read_text().splitlines()]
    assert [row["id"] for row in rows] == ["0.png (2)", "1.png (2)", "2.png (2)", "3.png (2)", "4.png", "5.png"]
    assert {Path(row["image"]).parent.name for row in rows} == {"other"}
    items = list(open_data(str(tmp_path / "test")))
    for distractors in (str(list_), str(tmp_path / "other")):
        given = read_candidates([], distractors, [item.id for item in items], items)
        assert len(given.sets[0].ids()) == 10, distractors
