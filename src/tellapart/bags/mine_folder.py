"""Mines bags from a folder of features into a file: ``tellapart bags mine --features``."""

from __future__ import annotations

import contextlib
import shutil
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from tellapart import __version__
from tellapart.bags.cluster_sizes import sizes_for
from tellapart.bags.curation import CuratedBags, curate
from tellapart.bags.feature_ids import Ids
from tellapart.bags.feature_shards import FeatureShards
from tellapart.bags.file import Header, bag_lines
from tellapart.bags.large_search import LargeSearch, Spread
from tellapart.bags.mine import check_max_cosine, check_sizes
from tellapart.bags.row_files import disk_errors
from tellapart.bags.search_recall import recall
from tellapart.errors import TellapartError, UsageError, first_line
from tellapart.utils.locks import locked
from tellapart.utils.outputs import write_output

MEMORY_GB = 4.0
RECALL_QUERIES = 200  # number of pictures whose exact neighbours are computed to measure recall


@dataclass(frozen=True)
class MinedFolder:
    """The result: bags by size, the number of pictures, and the recall of the search."""

    header: Header
    bags: dict[int, CuratedBags]
    clusters: int

    def to_json(self) -> dict[str, Any]:
        """Returns the numbers of bags by size, and the settings and recall of the search."""
        sizes = [
            {"size": size, "bags": len(of_size.rows_MS), "similarity": _summary(of_size.similarity_M)}
            for size, of_size in self.bags.items()
        ]
        return {
            "pictures": self.header.pictures,
            "left_out": self.header.left_out,
            "clusters": self.clusters,
            "recall": self.header.recall,
            "sizes": sizes,
        }

    def lines(self) -> list[str]:
        """Formats the result as lines of text."""
        share = f"{100 * (self.header.recall or 0):.1f}% recall of exact neighbours"
        copies = "".join(f", excluding {count:,} {what}" for what, count in self.header.left_out.items())
        lines = [f"{self.header.pictures:,} pictures{copies}, in {self.clusters:,} clusters; {share}"]
        for size, of_size in self.bags.items():
            middle = f", median similarity {np.median(of_size.similarity_M):.3f}" if len(of_size.rows_MS) else ""
            lines.append(f"bags of {size}: {len(of_size.rows_MS):,}{middle}")
        return lines


def mine_folder(
    folder: Path,
    out: Path,
    sizes: Sequence[int],
    *,
    memory_gb: float = MEMORY_GB,
    max_cosine: float | None = None,
    pictures: int | None = None,
    spread: Spread | None = None,
    progress: bool = True,
) -> MinedFolder:
    """Mines curated bags of each of ``sizes`` from a folder of features (`FeatureShards`) into ``out``.

    If pictures have equal features, only the first is used. Intermediate files are kept in ``OUT.work`` until the bags
    are written, so that repeating the call resumes the search.

    Args:
        memory_gb: memory limit for one cluster at a time, in units of 10⁹ bytes.
        pictures: mean number of pictures per cluster; a larger number gives a higher recall and takes longer.
        spread: distributes the tasks (see `LargeSearch.run`).

    Raises:
        UsageError: there are too few pictures, or another process is using the folder.
    """
    sizes = check_sizes(sizes)
    check_max_cosine(max_cosine)
    whole = FeatureShards.open(folder.absolute())
    ids = Ids.open(whole)
    features, row_N = whole.without_copies()
    if len(features) < max(sizes):
        raise UsageError(
            f"{folder}: bags of {max(sizes)} need at least {max(sizes)} distinct rows of features, got {len(features)}"
        )
    k = max(sizes) - 1
    plan = sizes_for(len(features), features.width, k, memory_gb, pictures)
    work = out.absolute().with_name(f"{out.name}.work")  # workers may run in another working directory
    search = LargeSearch(work, features, k, plan, max_cosine)
    left_out = {"copies": len(whole) - len(features)} if len(features) < len(whole) else {}
    with disk_errors(work), locked(work, wait=False), _clear_errors(work):
        search.run(progress, spread)
        (share,) = recall(search, (k,), RECALL_QUERIES, progress=progress)
        bags = {size: curate(search, size) for size in sizes}
        clusters = len(search.centre_CD)
        header = Header(
            "", "", f"features:{folder}", tuple(sizes), len(features), left_out, "", "query", max_cosine, share,
            __version__, "target",
        )  # fmt: skip
        if any(len(of_size.rows_MS) for of_size in bags.values()):
            write_output(out, lambda temporary: _write(temporary, header, bags, ids, row_N))
        shutil.rmtree(work, ignore_errors=True)
    if not any(len(of_size.rows_MS) for of_size in bags.values()):
        raise UsageError(f"{folder}: all bags exceed a cosine of {max_cosine}; increase --max-cosine")
    return MinedFolder(header, bags, clusters)


@contextlib.contextmanager
def _clear_errors(work: Path) -> Iterator[None]:
    """Turns errors in an earlier search's files into `TellapartError`. Removes the folder if features are invalid."""
    earlier = (work / "plan.json").exists()
    try:
        yield
    except (TellapartError, MemoryError) as error:
        if isinstance(error, UsageError) and not earlier and (work / "plan.json").exists():
            shutil.rmtree(work, ignore_errors=True)
        raise
    except Exception as error:
        if not earlier:
            raise
        raise TellapartError(
            f"{work} is damaged ({first_line(error)}); remove this folder and run the same command again"
        ) from error


def _write(path: Path, header: Header, bags: dict[int, CuratedBags], ids: Ids, row_N: np.ndarray) -> None:
    """Writes bags in the format of `bags.file`, line by line. ``row_N``: original row number of each row."""
    records = (
        {"ids": [ids[int(row_N[row])] for row in row_S], "similarity": round(float(similarity), 9)}
        for of_size in bags.values()
        for row_S, similarity in zip(of_size.rows_MS, of_size.similarity_M, strict=True)
    )
    with path.open("w", encoding="utf-8", newline="\n") as file:
        file.writelines(bag_lines(header, records))


def _summary(similarity_M: np.ndarray) -> dict[str, float] | None:
    if not len(similarity_M):
        return None
    return {name: float(of(similarity_M)) for name, of in (("least", np.min), ("median", np.median), ("most", np.max))}
