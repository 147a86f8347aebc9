"""The work of boosting: the captions of a shard, and the file of all shards that a single process would write."""

from __future__ import annotations

import hashlib
import json
import os
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from tellapart.boost.boost_dataset import check_out
from tellapart.boost.job import BoostJob
from tellapart.boost.ledger import Ledger
from tellapart.boost.made_record import made_by, stage_identities
from tellapart.boost.output import open_output
from tellapart.boost.records import read_records, record
from tellapart.boost.stages import stages as make_stages
from tellapart.boost.types import Stage
from tellapart.data import Dataset
from tellapart.errors import TellapartError, UsageError
from tellapart.inference.describers import open_backends
from tellapart.jobs.job import ANEW, JOB, Job
from tellapart.jobs.shard_results import results, wanted_shards
from tellapart.jobs.works.base import Done


@dataclass(frozen=True)
class Boosts:
    """Boosts captions. Writes answers to this worker's ledger, and reads the ledgers of all workers.

    If a shard lacks answers because a server failed, raises an error. The retry requests only the missing answers.

    ``out``: the path of the merged result. ``ledgers``: a folder that all workers share.
    """

    stages: list[str]
    llm: str | None
    mllm: str | None
    prompts: str | None
    out: str
    ledgers: str
    in_flight: int
    device: str
    precision: str
    per_reference: bool = False

    @cached_property
    def _stages(self) -> list[Stage]:
        backends = open_backends(self.llm, self.mllm, None, self.device, self.precision)
        return make_stages(self.stages, *backends, Path(self.prompts) if self.prompts else None)

    def models(self) -> dict[str, Any]:
        """See `Work`."""
        return {
            "stages": stage_identities(self._stages),
            **({"per_reference": True} if self.per_reference else {}),
        }

    def run(self, dataset: Dataset, out: Path) -> Done:
        """See `Work`."""
        written = unanswered = 0
        ledgers = Path(self.ledgers)
        ledgers.mkdir(parents=True, exist_ok=True)
        first = dataset[0].id if len(dataset) else ""
        name = hashlib.blake2b(f"{dataset.spec}\0{first}".encode("utf-8", "backslashreplace"), digest_size=8)
        with (
            Ledger.open(ledgers / f"{name.hexdigest()}.jsonl") as ledger,
            out.open("w", encoding="utf-8", errors="backslashreplace", newline="\n") as file,
        ):
            job = BoostJob(self._stages, ledger, self.in_flight, self.per_reference)
            for done in job.run(iter(dataset)):
                if done.unreadable is not None:
                    dataset.unreadable.add_error(done.item.picture.name, done.unreadable)
                    continue
                value = record(done, self._stages[-1].name, Path(self.out))
                file.write(json.dumps(value, ensure_ascii=False) + "\n")
                written += 1
                unanswered += done.unanswered
        if unanswered:
            raise TellapartError(f"{unanswered:,} of {written:,} items have no answer ({job.failure})")
        return Done.of(dataset, written)


def merge_boosted(job: Job, out: str, *, without_failed: bool = False) -> int:
    """Merges the lines of all shards into the same file that a single process would write. Returns the number of lines.

    Raises `UsageError` if ``out`` exists but was not written by boosting.
    """
    check_out(Path(out))
    numbers = wanted_shards(job, without_failed)
    try:
        stages = [{"name": str(stage["name"]), **stage} for stage in job.value["models"]["stages"]]
    except (KeyError, TypeError):
        raise UsageError(f"{job.path}/{JOB}: damaged; {ANEW}") from None
    ids: list[str] = []
    made: dict[str, Any] = {"stages": stages}
    with open_output(Path(out), made) as output:
        for _, path in results(job, numbers, "merging shards"):
            for value in read_records(path):
                output.write(value)
                ids.append(value["id"])
        per_reference = bool(job.value["models"].get("per_reference"))
        made |= made_by(" ".join(job.value["typed"]), ids, stages, (1, 1), per_reference)
    return len(ids)


def ledgers_of(path: str) -> str:
    """Returns the folder for a job's ledgers."""
    return os.path.join(path, "ledgers")  # noqa: PTH118 (a string, like all paths of a job)
