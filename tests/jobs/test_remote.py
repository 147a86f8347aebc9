"""Jobs whose data and results lie in an object store: moto's server, which speaks S3."""

from __future__ import annotations

import json
import tarfile
from collections.abc import Iterator
from io import BytesIO
from pathlib import Path

import numpy as np
import pytest
from command_line import Cli
from test_manifest import photo

from tellapart.data import open_data
from tellapart.features.store import FeatureStore
from tellapart.jobs.file_systems import file_system
from tellapart.jobs.manifest import make_manifest
from tellapart.scorers import load_scorer

pytest.importorskip("s3fs")
moto_server = pytest.importorskip("moto.server")


@pytest.fixture
def bucket(monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """A bucket on a server of this machine."""
    server = moto_server.ThreadedMotoServer(ip_address="127.0.0.1", port=0)
    server.start()
    host, port = server.get_host_and_port()
    for name, value in {
        "AWS_ACCESS_KEY_ID": "test", "AWS_SECRET_ACCESS_KEY": "test", "AWS_DEFAULT_REGION": "us-east-1",
        "AWS_ENDPOINT_URL": f"http://{host}:{port}", "NO_PROXY": "127.0.0.1",
    }.items():  # fmt: skip
        monkeypatch.setenv(name, value)
    import s3fs

    s3fs.S3FileSystem.clear_instance_cache()
    file_system("s3://photos")[0].makedirs("photos", exist_ok=True)
    yield "s3://photos"
    s3fs.S3FileSystem.clear_instance_cache()
    server.stop()


def upload(bucket: str, local: Path) -> None:
    """Three tars of seven photos, here and there."""
    fs, root = file_system(bucket)
    local.mkdir()
    for shard in range(3):
        path = local / f"part-{shard}.tar"
        with tarfile.open(path, "w") as tar:
            for number in range(7):
                data = photo(10 * shard + number, 48, 32)
                member = tarfile.TarInfo(f"{number:04d}.jpg")
                member.size = len(data)
                tar.addfile(member, BytesIO(data))
        fs.put_file(str(path), f"{root}/tars/{path.name}")


def upload_rows(bucket: str, local: Path) -> None:
    """A Parquet file of five photos, and JSON lines of six that lie on this disk."""
    import pyarrow
    import pyarrow.parquet

    fs, root = file_system(bucket)
    rows = [{"image": {"bytes": photo(50 + number, 48, 32), "path": None}} for number in range(5)]
    pyarrow.parquet.write_table(pyarrow.Table.from_pylist(rows), local / "rows.parquet")
    lines = []
    for number in range(6):
        (local / f"{number}.jpg").write_bytes(photo(60 + number, 48, 32))
        lines.append(json.dumps({"id": f"line {number}", "image": str(local / f"{number}.jpg")}) + "\n")
    (local / "list.jsonl").write_text("".join(lines))
    for name in ("rows.parquet", "list.jsonl"):
        fs.put_file(str(local / name), f"{root}/{name}")


@pytest.mark.long
def test_from_a_bucket_into_a_bucket(cli: Cli, bucket: str, tiny_captioner: Path, tmp_path: Path) -> None:
    """Three tars, a Parquet file, and JSON lines as two shards."""
    upload(bucket, tmp_path / "tars")
    upload_rows(bucket, tmp_path)
    options = ("--beams", 1, "--max-tokens", 5)
    data = ("tars/part-{0..2}.tar", "rows.parquet", "list.jsonl")
    local = [tmp_path / name for name in data]
    assert cli("caption", tiny_captioner, *local, "-o", tmp_path / "plain.jsonl", *options).status == 0
    remote = [f"{bucket}/{name}" for name in data]
    command = ("caption", tiny_captioner, *remote, "-o", f"{bucket}/out/captions.jsonl", "--shard-items", 3)
    done = cli(*command, *options, "--workers", 1)
    assert done.status == 0, done.err
    fs, root = file_system(bucket)
    fs.invalidate_cache()
    assert fs.cat_file(f"{root}/out/captions.jsonl") == (tmp_path / "plain.jsonl").read_bytes()

    status = json.loads(cli("job", "status", f"{bucket}/out/captions.jsonl.job", "--json").out)
    assert (status["state"], status["done"], status["shards"]) == ("finished", 6, 6)
    again = cli(*command, *options, "--workers", 1)
    assert again.status == 0 and "6 of 6 shards already done" in again.err
    assert cli("job", "merge", f"{bucket}/out/captions.jsonl.job", "-o", tmp_path / "here.parquet").status == 0


@pytest.mark.long
def test_features_of_a_bucket_in_a_bucket(cli: Cli, bucket: str, tiny_scorer: Path, tmp_path: Path) -> None:
    upload(bucket, tmp_path / "tars")
    done = cli("data", "encode", tiny_scorer, f"{bucket}/tars", "-o", f"{bucket}/features", "--workers", 1)
    assert done.status == 0 and "21 rows from 3 shards" in done.err, done.err
    fs, root = file_system(bucket)
    fs.invalidate_cache()
    fs.get(f"{root}/features/", str(tmp_path / "features"), recursive=True)
    scorer, store = load_scorer(str(tiny_scorer)), FeatureStore(tmp_path / "cache")
    kept = store.readable(open_data(str(tmp_path / "tars")), scorer.encoder)
    assert (tmp_path / "features" / "000000.txt").read_text().splitlines() == [item.id for item in kept]
    rows = np.load(tmp_path / "features" / "000000.npy")
    assert np.array_equal(rows, np.asarray(store.features(kept, scorer.encoder)))


def test_what_an_address_cannot_be(cli: Cli, bucket: str, tmp_path: Path) -> None:
    done = cli("caption", "scenes", f"{bucket}/nothing/*.tar", "-o", tmp_path / "a.jsonl", "--workers", 1)
    assert done.status == 2 and "expected files whose names end in .tar" in done.err
    done = cli("caption", "scenes", f"{bucket}/a.tar", "-o", f"{bucket}/a.jsonl")
    assert done.status == 2 and "add --workers 1" in done.err
    done = cli("caption", "scenes", "s9://x/a.tar", "-o", tmp_path / "a.jsonl", "--workers", 1)
    assert done.status == 2 and "s9://x/a.tar: " in done.err


def test_lines_behind_an_address_are_cut(bucket: str, tmp_path: Path) -> None:
    fs, root = file_system(bucket)
    text = "".join(json.dumps({"id": str(n), "image": f"/photos/{n}.jpg"}) + "\n" for n in range(10))
    fs.pipe_file(f"{root}/data.jsonl", text.encode())
    made = make_manifest([f"{bucket}/data.jsonl"], tmp_path, 4)
    spans = [json.loads(line)["span"] for line in made.file.read_text().splitlines()]
    assert (made.shards, made.items) == (3, 10)
    assert "".join(text[start:stop] for start, stop in spans) == text and spans[0][1] == text.index('{"id": "4"')
