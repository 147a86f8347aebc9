"""A file of many rows needs no more memory than one of few: measured in a process of its own."""

import io
import json
import subprocess
import sys
import tarfile
from collections.abc import Callable
from pathlib import Path

import pytest
from reader_help import png

FEW, MANY = 2_000, 200_000
# What the process may take more for a hundred times the rows: an index of 24 bytes a row and what sorting it takes, ten
# thousand names of what is missing, footers of Parquet, the noise of the allocator. A list of the items takes 100 MB.
ALLOWED_MB = 32
SCRIPT = """
import sys
from pathlib import Path
from tellapart.data import open_data
dataset = open_data(sys.argv[1])
captions = sum(len(item.references) for item in dataset)
assert dataset[len(dataset) // 2].picture.name
# Not getrusage: a process's largest size there is at least that of the one that started it.
[most] = [line.split()[1] for line in Path("/proc/self/status").read_text().splitlines() if line.startswith("VmHWM")]
print(len(dataset), len(dataset.missing), captions, int(most) // 1024)
"""


def jsonl(folder: Path, rows: int) -> str:
    with (folder / "d.jsonl").open("w") as file:
        for n in range(rows):
            file.write(json.dumps({"id": n, "image": "a.png", "caption": f"caption {n} of a picture"}) + "\n")
    return f"{folder}/d.jsonl"


def csv(folder: Path, rows: int) -> str:
    with (folder / "d.csv").open("w") as file:
        file.write("id,image,caption\n")
        file.writelines(f'{n // 2},a.png,"caption {n}, of a picture"\n' for n in range(rows))
    return f"{folder}/d.csv"


def conceptual(folder: Path, rows: int) -> str:
    with (folder / "Train_GCC-training.tsv").open("w") as file:
        # Nearly all of them are missing, and a look for each takes its time: a tenth will do.
        file.writelines(f"caption {n}\thttps://a.org/{'a' if n == 5 else n}.png\n" for n in range(rows // 10))
    return f"conceptual:{folder}/Train_GCC-training.tsv"


def parquet(folder: Path, rows: int) -> str:
    pa = pytest.importorskip("pyarrow", reason="extra 'parquet' is not installed")
    pq = pytest.importorskip("pyarrow.parquet")
    schema = pa.schema({"id": pa.int64(), "image": pa.binary(), "caption": pa.string()})
    with pq.ParquetWriter(folder / "d.parquet", schema) as writer:
        for start in range(0, rows, 1000):
            numbers = range(start, start + 1000)
            columns = [list(numbers), [png()] * 1000, [f"caption {n}" for n in numbers]]
            writer.write_table(pa.table(columns, schema=schema))
    return f"{folder}/d.parquet"


def webdataset(folder: Path, rows: int) -> str:
    data = png()
    with tarfile.open(folder / "d.tar", "w") as archive:
        for n in range(rows // 10):  # a sample takes two kilobytes: a tenth will do
            for name, content in ((f"{n:06d}.png", data), (f"{n:06d}.txt", b"a caption")):
                info = tarfile.TarInfo(name)
                info.size = len(content)
                archive.addfile(info, io.BytesIO(content))
    return f"{folder}/d.tar"


@pytest.mark.long
@pytest.mark.skipif(not Path("/proc/self/status").is_file(), reason="memory is read from /proc, which is not here")
@pytest.mark.parametrize("write", [jsonl, csv, conceptual, parquet, webdataset])
def test_many_rows_need_no_more_memory_than_few(tmp_path: Path, write: Callable[[Path, int], str]) -> None:
    (tmp_path / "a.png").write_bytes(png())
    found = {}
    for rows in (FEW, MANY):
        done = subprocess.run(
            [sys.executable, "-c", SCRIPT, write(tmp_path, rows)], capture_output=True, text=True, check=True
        )
        items, missing, captions, megabytes = map(int, done.stdout.split())
        read = rows // 10 if write in (conceptual, webdataset) else rows
        assert captions + missing == read and items + missing == (read // 2 if write is csv else read)
        found[rows] = megabytes
        print(f"{write.__name__}: {megabytes} MB for {read:,} rows")
    assert found[MANY] - found[FEW] <= ALLOWED_MB, found
