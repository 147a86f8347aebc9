"""``encode``, ``boost`` and ``bags mine`` by workers: what the plain commands give."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import pytest
import torch
from command_line import Cli
from ray_nodes import started_head
from test_manifest import photo

from tellapart.data import open_data
from tellapart.features.store import FeatureStore
from tellapart.jobs.pool import Pool
from tellapart.scorers import load_scorer

COUNT = 30


@pytest.fixture(scope="module")
def photos(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("photos")
    for number in range(COUNT):
        (folder / f"{number:02d}.jpg").write_bytes(photo(number % 28, 60, 40))  # two are copies
        (folder / f"{number:02d}.txt").write_text(f"a photo of noise number {number}\n")
    (folder / "17.jpg").write_bytes(b"no picture")
    return folder


@pytest.fixture(autouse=True)
def together(monkeypatch: pytest.MonkeyPatch) -> None:
    """No shard is given until all workers are there, so that each does some: one alone would be done before."""
    idle = Pool.idle.fget
    assert idle is not None

    def all_there(pool: Pool) -> bool:
        met: bool = pool.__dict__.get("met", False) or all(shard is not None for _, shard in pool._running.values())
        pool.__dict__["met"] = met
        return met and bool(idle(pool))

    monkeypatch.setattr(Pool, "idle", property(all_there))


@pytest.fixture
def one_thread(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Here as in each worker: the last bits of a row depend on how many threads share a sum."""
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


def workers_of(job: Path) -> int:
    """How many processes did its shards."""
    return len({json.loads(file.read_text())["pid"] for file in job.glob("parts-*/*.summary.json")})


@pytest.mark.long
def test_encode_on_a_started_cluster_writes_the_rows_of_the_store(
    cli: Cli, photos: Path, tiny_scorer: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, one_thread: None
) -> None:
    """``ray start --head``, then ``--ray`` without an address: as many workers as there is room for."""
    out = tmp_path / "features"
    monkeypatch.setenv("TELLAPART_CACHE", str(tmp_path / "cache of the workers"))
    monkeypatch.delenv("RAY_ADDRESS", raising=False)
    with TemporaryDirectory(prefix="ray-") as folder:  # a short path: sockets lie in it
        monkeypatch.setenv("RAY_TMPDIR", folder)
        with started_head(folder, cpus=2):
            done = cli("data", "encode", tiny_scorer, photos, "-o", out, "--shard-items", 8, "--ray")
    assert done.status == 0, done.err
    assert workers_of(tmp_path / "features.job") == 2
    assert "29 rows from 4 shards" in done.err and "17.jpg (" in done.err
    ids = (out / "000000.txt").read_text().splitlines()
    rows = np.load(out / "000000.npy")
    scorer, store = load_scorer(str(tiny_scorer)), FeatureStore(tmp_path / "another cache")
    kept = store.readable(open_data(str(photos)), scorer.encoder)
    assert ids == [item.id for item in kept]
    assert np.array_equal(rows, np.asarray(store.features(kept, scorer.encoder)))


@pytest.mark.long
def test_bags_and_eval_go_on_from_the_rows_of_the_workers(
    cli: Cli, photos: Path, tiny_scorer: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, one_thread: None
) -> None:
    """The same results; the rows come from the workers alone: their machine's store is made empty in between."""
    from tellapart.jobs.works import joined_features as works

    captions = tmp_path / "captions.jsonl"
    lines = [{"id": item.id, "caption": item.references[0]} for item in open_data(str(photos)) if item.id != "17.jpg"]
    captions.write_text("".join(json.dumps(line) + "\n" for line in lines))
    mine = ("bags", "mine", photos, "--scorer", tiny_scorer, "--size", "3,5")
    measure = ("eval", "--captions", captions, "--data", photos, "--scorer", tiny_scorer, "--allow-missing", "--json",
               "--metrics", "clipscore,recall@1.lookalike,length")  # fmt: skip
    results = {}
    for name, options in (("plain", ()), ("workers", ("--workers", 2, "--shard-items", 16))):
        monkeypatch.setenv("TELLAPART_CACHE", str(tmp_path / f"cache of {name}"))
        if options:
            taken: list[int] = []
            take = works.take_features

            def emptied(job: works.Job, take=take, taken=taken) -> int:  # type: ignore[no-untyped-def]
                assert workers_of(Path(job.path)) == 2
                FeatureStore().empty()
                taken.append(take(job))
                monkeypatch.setattr("tellapart.features.row_makers.RowMaker.of", refuse)
                return taken[-1]

            monkeypatch.setattr(works, "take_features", emptied)
        bags = tmp_path / f"{name}.jsonl"
        done = cli(*mine, "-o", bags, *options)
        assert done.status == 0, done.err
        measured = cli(*measure)
        assert measured.status == 0, measured.err
        results[name] = (bags.read_text(), json.loads(measured.out)["systems"])
    assert results["workers"] == results["plain"]
    assert taken == [29]
    assert not list(tmp_path.glob("*.job")) and not list((tmp_path / "cache of workers").glob("jobs/*"))


def refuse(maker: object, picture: object) -> None:
    """In place of encoding: only the picture that cannot be read is looked at again."""
    from tellapart.errors import PictureError

    if not getattr(picture, "name", "").endswith("17.jpg"):
        raise AssertionError(f"{picture} is encoded again")
    raise PictureError("17.jpg: no picture")


@pytest.mark.long
def test_boost_writes_the_lines_of_the_plain_command(cli: Cli, tmp_path: Path, cluster: str) -> None:
    command = ("boost", "scenes:plain?n=20", "--llm", "scripted", "--mllm", "scripted")
    for name, options in (("plain", ()), ("workers", ("--workers", 2, cluster, "--shard-items", 6))):
        (tmp_path / name).mkdir()
        done = cli(*command, "-o", tmp_path / name / "boosted.jsonl", *options)
        assert done.status == 0, done.err
    plain, shared = (tmp_path / name / "boosted.jsonl" for name in ("plain", "workers"))
    assert workers_of(Path(f"{shared}.job")) == 2
    assert shared.read_bytes() == plain.read_bytes()
    assert len(open_data(str(shared))) == 20
    made = [json.loads(path.with_name("boosted.jsonl.made.json").read_text()) for path in (plain, shared)]
    assert made[0] == made[1]
    assert cli(*command, "-o", shared, "--workers", 1, "--shard", "1/2").status == 2


def test_boost_by_workers_replaces_an_edited_result_with_overwrite_only(cli: Cli, tmp_path: Path, cluster: str) -> None:
    out = tmp_path / "b.jsonl"
    command = ("boost", "scenes:plain?n=3", "--llm", "scripted", "--mllm", "scripted", "-o", out)
    command += ("--workers", 1, cluster)
    assert cli(*command).status == 0
    before = out.read_bytes()
    out.write_text("by a person\n")
    assert cli(*command).status == 2 and out.read_text() == "by a person\n"
    done = cli(*command, "--overwrite")
    assert done.status == 0, done.err
    assert out.read_bytes() == before


def test_encoding_goes_on_however_the_scorer_s_path_is_spelled(
    cli: Cli, photos: Path, tiny_scorer: Path, tmp_path: Path
) -> None:
    out = tmp_path / "rows"
    for scorer in (tiny_scorer, f"{tiny_scorer}/../{tiny_scorer.name}/"):
        done = cli("data", "encode", scorer, photos, "-o", out)
        assert done.status == 0, done.err
    file = Path(f"{out}.job", "job.json")
    job = json.loads(file.read_text())
    del job["deciding"]["format"]  # as before the format of a shard's result changed
    file.write_text(json.dumps(job | {"fingerprint": "0" * 32}))
    older = cli("data", "encode", tiny_scorer, photos, "-o", out)
    assert older.status == 2 and "is a job with a different format; pass --overwrite" in older.err
