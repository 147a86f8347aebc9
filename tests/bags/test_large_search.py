"""Mining from features on disk: clusters and parts change nothing but which pairs are compared."""

from __future__ import annotations

import json
import os
import resource
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from command_line import Cli
from safetensors.torch import save_file

from benchmarks.bags import features as synthetic
from tellapart.bags.cluster_sizes import Sizes
from tellapart.bags.clusters import centroids_of, nearest_clusters
from tellapart.bags.curation import curate
from tellapart.bags.feature_ids import Ids
from tellapart.bags.feature_shards import FeatureShards
from tellapart.bags.file import read_bags
from tellapart.bags.large_search import LargeSearch, nearest_pairs
from tellapart.bags.mine import curate_bags, mine_bags
from tellapart.bags.mine_folder import mine_folder
from tellapart.bags.row_files import PAIR
from tellapart.bags.search_recall import recall
from tellapart.errors import TellapartError, UsageError
from tellapart.features.all_neighbours import nearest_neighbours
from tellapart.utils.locks import locked

N = 3000


@pytest.fixture(scope="module")
def features_ND() -> np.ndarray:
    return synthetic(N, uneven=True)[:, :64]


@pytest.fixture
def folder(features_ND: np.ndarray, tmp_path: Path) -> Path:
    """Three files of different kinds and lengths."""
    where = tmp_path / "features"
    where.mkdir()
    np.save(where / "a.npy", features_ND[:700])
    save_file({"features": torch.from_numpy(features_ND[700:701])}, where / "b.safetensors", metadata={"of": "clip"})
    np.save(where / "c.npy", features_ND[701:])
    return where


def search_in(
    folder: Path, work: Path, clusters: int, k: int = 6, largest: int = N, nearest: int = 2, **options: Any
) -> LargeSearch:
    made = LargeSearch(work, FeatureShards.open(folder), k, Sizes(clusters, largest, nearest), **options)
    made.run(progress=False)
    return made


def rows_of(search: LargeSearch) -> np.ndarray:
    return np.concatenate([search.load(search.result, s) for s in range(len(search.features.shards))])


@pytest.mark.parametrize("max_cosine", [None, 0.8])
def test_one_cluster_is_the_exact_search(
    folder: Path, features_ND: np.ndarray, tmp_path: Path, max_cosine: float | None
) -> None:
    search = search_in(folder, tmp_path / "work", 1, max_cosine=max_cosine)
    exact = nearest_neighbours(features_ND, 6, max_cosine=max_cosine, approximate=False)
    found = rows_of(search)
    assert np.array_equal(found["row"], exact.rows_NK)
    assert np.allclose(found["cosine"], exact.cosine_NK, rtol=0, atol=1e-7)
    assert recall(search, (2, 6), 500, progress=False) == [1.0, 1.0]
    for size in (3, 5):
        bags = curate_bags(mine_bags(features_ND, size, max_cosine=max_cosine))
        ours = curate(search, size)
        assert ours.rows_MS.tolist() == [list(bag.rows) for bag in bags]
        assert ours.similarity_M == pytest.approx([bag.similarity for bag in bags], abs=1e-6)


def test_a_bag_may_consist_of_pictures_with_too_few_neighbours(tmp_path: Path) -> None:
    """The last two are near-copies, so that only the first picture has two neighbours below the limit."""
    features_ND = np.array([[1, 0, 0], [0.6, 0.8, 0], [0.6, 0.8, 0.001]], np.float32)
    (tmp_path / "features").mkdir()
    np.save(tmp_path / "features" / "a.npy", features_ND)
    search = search_in(tmp_path / "features", tmp_path / "work", 1, k=2, max_cosine=0.8)
    (bag,) = curate_bags(mine_bags(features_ND, 3, max_cosine=0.8))
    assert curate(search, 3).rows_MS.tolist() == [list(bag.rows)]


@pytest.mark.long
@pytest.mark.parametrize("nearest", [2, 3])
def test_neighbours_are_the_nearest_that_share_a_cluster(
    folder: Path, features_ND: np.ndarray, tmp_path: Path, nearest: int
) -> None:
    """Against the definition, all pairs at once."""
    search = search_in(folder, tmp_path / "work", 12, nearest=nearest, rounds=0)
    cluster_NM = nearest_clusters(features_ND, search.centre_CD, nearest)
    assert len(search.centre_CD) == 12 and all(len(set(row)) == nearest for row in cluster_NM)
    member_NC = np.zeros((N, 12))
    member_NC[np.arange(N)[:, None], cluster_NM] = 1
    unit_ND = features_ND.astype(np.float64) / np.linalg.norm(features_ND, axis=1, keepdims=True)
    cosine_NN = np.where(member_NC @ member_NC.T > 0, unit_ND @ unit_ND.T, -np.inf)
    np.fill_diagonal(cosine_NN, -np.inf)
    expected_NK = np.argsort(-cosine_NN, axis=1, kind="stable")[:, :6]
    assert np.array_equal(rows_of(search)["row"], expected_NK)
    whole_NN = unit_ND @ unit_ND.T
    np.fill_diagonal(whole_NN, -np.inf)
    exact_NK = np.argsort(-whole_NN, axis=1, kind="stable")[:, :6]
    share = np.mean([len(np.intersect1d(a, b)) / 6 for a, b in zip(exact_NK, expected_NK, strict=True)])
    assert recall(search, (6,), N, progress=False) == pytest.approx([share])
    assert 0.5 < share < 1


@pytest.mark.long
def test_what_is_done_is_not_done_again_and_a_kill_anywhere_changes_nothing(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plain = rows_of(search_in(folder, tmp_path / "plain", 8))
    replace, left = Path.replace, [0]

    def killed(self: Path, target: Path) -> Path:
        left[0] -= 1
        if left[0] < 0:
            raise KeyboardInterrupt
        return replace(self, target)

    monkeypatch.setattr(Path, "replace", killed)
    starts = 0
    while True:
        left[0], starts = 3, starts + 1
        try:
            search = search_in(folder, tmp_path / "work", 8)
            break
        except KeyboardInterrupt:
            assert not list((tmp_path / "work").rglob(".*")), "no half-written file stays"
    assert starts > 5
    assert np.array_equal(rows_of(search), plain)
    assert not list((tmp_path / "work").rglob(".*"))
    monkeypatch.setattr(Path, "replace", replace)
    with pytest.raises(UsageError, match="remove this folder, or choose another output"):
        search_in(folder, tmp_path / "work", 9)
    os.utime(folder / "a.npy", (1, 1))
    with pytest.raises(UsageError, match="remove this folder, or choose another output"):
        search_in(folder, tmp_path / "work", 8)


def test_a_cluster_beyond_the_memory_is_searched_in_parts(
    folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    search = search_in(folder, tmp_path / "work", 2, largest=900)
    assert "into 4 parts" in capsys.readouterr().err or len(search.centre_CD) > 2
    assert recall(search, (2,), 300, progress=False)[0] > 0.3
    same = np.tile(np.eye(1, 8, dtype=np.float32), (500, 1))  # copies cannot be divided by k-means
    (tmp_path / "copies").mkdir()
    np.save(tmp_path / "copies" / "x.npy", same)
    near = rows_of(search_in(tmp_path / "copies", tmp_path / "w2", 2, largest=100))
    assert (near["row"] >= 0).all() and (near["row"] != np.arange(500)[:, None]).all()
    assert "parts" in capsys.readouterr().err


def test_clusters_that_are_too_large_are_divided_once_more(features_ND: np.ndarray, tmp_path: Path) -> None:
    crowd_ND = np.concatenate([features_ND, features_ND[:1] + 0.01 * features_ND])  # half of all in one place
    np.save(tmp_path / "x.npy", crowd_ND)
    shards = FeatureShards.open(tmp_path)
    assert shards.shards[0].read(slice(0, 2)).flags.writeable  # else torch warns
    for largest in (10**9, 1000):
        centre_CD = centroids_of(shards, Sizes(4, largest, 2))
        count_C = np.bincount(nearest_clusters(crowd_ND, centre_CD, 2).ravel())
        assert (count_C.max() <= 2000) == (largest == 1000)
        assert np.allclose(np.linalg.norm(centre_CD, axis=1), 1, atol=1e-5)


def test_a_picture_of_both_clusters_counts_once() -> None:
    pairs = np.array([[(5, 0.5), (3, 0.9), (-1, -np.inf), (3, 0.9), (4, 0.5), (9, 0.1)]], PAIR)
    assert nearest_pairs(pairs, 3)["row"].tolist() == [[3, 4, 5]]
    assert nearest_pairs(pairs, 6)["row"].tolist() == [[3, 4, 5, 9, -1, -1]]


def test_files_that_are_no_features_are_one_line(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"contains no features; expected \.npy or \.safetensors files of shape N×D"):
        FeatureShards.open(tmp_path)
    for name, array, why in (
        ("one", np.zeros(3, np.float32), r"got <f4 of shape \(3,\)|got float32 of shape \(3,\)"),
        ("words", np.array([["a"]]), "expected a floating-point matrix of shape N×D, got"),
        ("objects", np.array([[{}]], dtype=object), "expected a floating-point matrix|cannot be read"),
        ("columns", np.asfortranarray(np.ones((3, 2), np.float32)), "save np.ascontiguousarray"),
    ):
        np.save(tmp_path / f"{name}.npy", array, allow_pickle=True)
        with pytest.raises(UsageError, match=why):
            FeatureShards.open(tmp_path)
        (tmp_path / f"{name}.npy").unlink()
    np.save(tmp_path / "a.npy", np.ones((4, 3), np.float32))
    data = (tmp_path / "a.npy").read_bytes()
    (tmp_path / "a.npy").write_bytes(data[:-4])
    with pytest.raises(UsageError, match="copy it again"):
        FeatureShards.open(tmp_path)
    (tmp_path / "a.npy").write_bytes(data)
    np.save(tmp_path / "b.npy", np.ones((4, 2), np.float32))
    with pytest.raises(UsageError, match=r"same feature dimension, got 3 \(a.npy\), 2 \(b.npy\)"):
        FeatureShards.open(tmp_path)
    (tmp_path / "b.npy").unlink()
    (tmp_path / "a.txt").write_text("1\n2\n")
    with pytest.raises(UsageError, match=r"has 2 ids, but .* has 4 rows"):
        Ids.open(FeatureShards.open(tmp_path))
    (tmp_path / "a.txt").write_bytes(b"")
    with pytest.raises(UsageError, match=r"has 0 ids, but .* has 4 rows"):
        Ids.open(FeatureShards.open(tmp_path))
    (tmp_path / "a.txt").write_bytes(b"1\n2\n\xff\n4\n")
    with pytest.raises(UsageError, match="not valid UTF-8"):
        Ids.open(FeatureShards.open(tmp_path))
    (tmp_path / "a.txt").write_text("1\n2\n3\n1\n")
    with pytest.raises(UsageError, match="rows 0 and 3 of the features have the same id '1'; expected a unique id"):
        Ids.open(FeatureShards.open(tmp_path))
    (tmp_path / "a.txt").write_text("1\n2\n\n4\n")
    with pytest.raises(UsageError, match="row 2 of the features has an empty id"):
        Ids.open(FeatureShards.open(tmp_path))
    save_file({"x": torch.ones(2, 3, dtype=torch.bfloat16)}, tmp_path / "b.safetensors")
    assert FeatureShards.open(tmp_path).shards[1].read(slice(0, 1)).tolist() == [[1.0, 1.0, 1.0]]


def test_the_command_writes_bags_with_ids_in_bounded_memory(
    folder: Path, features_ND: np.ndarray, tmp_path: Path, cli: Cli
) -> None:
    (folder / "a.txt").write_text("".join(f"photos/{n}.jpg\n" for n in range(700)))
    out = tmp_path / "bags.jsonl"
    done = cli("bags", "mine", "--features", folder, "-o", out, "--size", "3,5", "--memory-gb", 1, "--json")
    assert done.status == 0, done.err
    assert json.loads(done.out)["pictures"] == N
    file = read_bags(out)
    names = [f"photos/{n}.jpg" for n in range(700)] + [str(n) for n in range(700, N)]
    for size, bags in file.of_size().items():
        expected = curate_bags(mine_bags(features_ND, size, ids=names))
        assert [bag.ids for bag in bags] == [bag.ids for bag in expected]
    assert (file.header.sizes, file.header.pictures, file.header.recall) == ((3, 5), N, 1.0)
    assert not out.with_name("bags.jsonl.work").exists(), "what was made on the way is gone"
    assert (
        "--features cannot be combined with DATA or --scorer; remove"
        in cli("bags", "mine", "photos", "--features", folder).line
    )
    assert "--memory-gb requires --features" in cli("bags", "mine", "photos", "--scorer", "x", "--memory-gb", 2).line
    assert "nothing to mine; pass pictures and --scorer, or --features" in cli("bags", "mine").line


@pytest.fixture
def interrupted(folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The work folder of a command that was killed while it wrote its bags."""

    def killed(*_: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr("tellapart.bags.mine_folder._write", killed)
        with pytest.raises(KeyboardInterrupt):
            mine_folder(folder, tmp_path / "bags.jsonl", [3], pictures=1000, progress=False)
    return tmp_path / "bags.jsonl.work"


@pytest.mark.long
@pytest.mark.parametrize("name", ["centroids.npy", "before.npy", "clusters/000001.npy", "refined/000000.npy"])
@pytest.mark.parametrize("damage", [b"", b"\x93NUMPY\x01\0v\0{'descr'", b"PK\x03\x04", b"text"])
def test_damaged_work_is_one_line(folder: Path, tmp_path: Path, interrupted: Path, name: str, damage: bytes) -> None:
    out = tmp_path / "bags.jsonl"
    (interrupted / "near" / "000001.npy").unlink()  # which is made again, from the others
    (interrupted / name).write_bytes(damage)
    with pytest.raises(TellapartError, match=r"bags\.jsonl\.work is damaged \(.*\); remove this folder"):
        mine_folder(folder, out, [3], pictures=1000, progress=False)
    assert not out.exists()


def test_two_commands_do_not_work_on_one_result(folder: Path, tmp_path: Path, interrupted: Path) -> None:
    out = tmp_path / "bags.jsonl"
    with locked(interrupted, wait=False), pytest.raises(UsageError, match=r"bags\.jsonl\.work is in use by process"):
        mine_folder(folder, out, [3], pictures=1000, progress=False)
    mine_folder(folder, out, [3], pictures=1000, progress=False)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["bags.jsonl", "features"]


def test_a_folder_of_someone_else_is_not_removed(folder: Path, tmp_path: Path) -> None:
    mine = tmp_path / "bags.jsonl.work" / "thesis.txt"
    mine.parent.mkdir()
    mine.write_text("mine")
    with pytest.raises(UsageError, match=r"bags\.jsonl\.work contains thesis.txt, but no resumable work"):
        mine_folder(folder, tmp_path / "bags.jsonl", [3], progress=False)
    assert [path.name for path in mine.parent.iterdir()] == ["thesis.txt"]


@pytest.mark.parametrize("pictures", [None, 500])
def test_of_copies_the_first_is_used(
    folder: Path, features_ND: np.ndarray, tmp_path: Path, pictures: int | None
) -> None:
    """As where pictures are mined: two copies in a bag cannot be told apart."""
    apart = tmp_path / "with copies"
    apart.mkdir()
    np.save(apart / "a.npy", features_ND[:1500])
    np.save(apart / "b.npy", features_ND[[3, 3, 700]])  # nothing else
    (apart / "b.txt").write_text("copy 1\ncopy 2\ncopy 3\n")
    np.save(apart / "c.npy", np.concatenate([features_ND[5:6], features_ND[1500:]]))
    (apart / "c.txt").write_text("copy 4\n" + "".join(f"{n}\n" for n in range(1500, N)))
    mined = mine_folder(apart, tmp_path / "copies.jsonl", [3], pictures=pictures, progress=False)
    mine_folder(folder, tmp_path / "plain.jsonl", [3], pictures=pictures, progress=False)
    found, plain = (read_bags(tmp_path / f"{name}.jsonl") for name in ("copies", "plain"))
    assert found.header.left_out == {"copies": 4} and found.header.pictures == N
    assert mined.to_json()["left_out"] == {"copies": 4} and "excluding 4 copies" in mined.lines()[0]
    if pictures is None:
        assert found.bags == plain.bags
    ids = [id_ for bag in found.bags for id_ in bag.ids]
    assert len(set(ids)) == len(ids) and {*ids} <= {str(n) for n in range(N)}


def test_nothing_is_left_where_no_bags_are_found(folder: Path, tmp_path: Path) -> None:
    infinite = tmp_path / "infinite"
    infinite.mkdir()
    np.save(infinite / "0.npy", np.full((30, 4), [1, 2, 3, np.inf], np.float32) + np.arange(30)[:, None])
    with pytest.raises(UsageError, match=r"infinite/0\.npy: 30 rows are zero, NaN or infinite"):
        mine_folder(infinite, tmp_path / "bags.jsonl", [3], progress=False)
    np.save(infinite / "0.npy", np.eye(30, 4, dtype=np.float32) + 0.0)  # 26 rows of zeros
    with pytest.raises(UsageError, match=r"infinite/0\.npy: \d+ rows are zero, NaN or infinite"):
        mine_folder(infinite, tmp_path / "bags.jsonl", [3], progress=False)
    (infinite / "0.npy").unlink()
    infinite.rmdir()
    with pytest.raises(UsageError, match="increase --max-cosine"):
        mine_folder(folder, tmp_path / "bags.jsonl", [3], max_cosine=-0.999, progress=False)
    assert [path.name for path in tmp_path.iterdir()] == ["features"]


@pytest.mark.long
def test_there_may_be_more_files_than_a_process_may_open(features_ND: np.ndarray, tmp_path: Path) -> None:
    where = tmp_path / "features"
    where.mkdir()
    for number in range(200):
        np.save(where / f"{number:06}.npy", features_ND[number * 10 : number * 10 + 10])
        (where / f"{number:06}.txt").write_text("".join(f"{number * 10 + n}.jpg\n" for n in range(10)))
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (len(list(Path("/proc/self/fd").iterdir())) + 100, hard))
    try:
        mine_folder(where, tmp_path / "bags.jsonl", [3], progress=False)
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    expected = curate_bags(mine_bags(features_ND[:2000], 3, ids=[f"{n}.jpg" for n in range(2000)]))
    assert [bag.ids for bag in read_bags(tmp_path / "bags.jsonl").of_size()[3]] == [bag.ids for bag in expected]


@pytest.mark.long
def test_two_workers_write_what_one_process_writes(
    folder: Path, tmp_path: Path, cli: Cli, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("ray")
    monkeypatch.chdir(tmp_path)
    one, two = tmp_path / "one.jsonl", tmp_path / "two.jsonl"
    arguments = ("bags", "mine", "--features", "features", "--cluster-size", 100)  # a relative folder
    done = cli(*arguments, "-o", one, "--json")
    assert done.status == 0 and json.loads(done.out)["clusters"] > 100
    done = cli(*arguments, "-o", two, "--workers", 2)
    assert done.status == 0, done.err
    assert two.read_bytes() == one.read_bytes()
    assert read_bags(two).header.recall > 0.99
    (folder / "c.npy").write_bytes((folder / "c.npy").read_bytes()[:2000] + b"\xff" * 6_000_000)  # NaN
    assert "zero, NaN or infinite" in cli(*arguments, "-o", tmp_path / "three.jsonl", "--workers", 2).err
