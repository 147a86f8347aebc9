"""The work of ``tellapart boost``: a shard's items through the stages, as lines of the boosted data set."""

from __future__ import annotations

import hashlib
import json
import os
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from tellapart.boost.job import Job as BoostJob
from tellapart.boost.ledger import Ledger
from tellapart.boost.output import Output, read_records, record
from tellapart.boost.run import check_out
from tellapart.boost.types import Stage
from tellapart.data import Dataset
from tellapart.errors import TellapartError, UsageError
from tellapart.jobs.job import ANEW, JOB, Job
from tellapart.jobs.merge import results, wanted_shards
from tellapart.jobs.works import Done


class Boosts:
    """Boosted captions. Answers are kept in a ledger of this worker, and read from those of all.

    A shard without all its answers, because a server failed, is none: it is tried again, and asks only what is missing.
    """

    def __init__(self, stages: Sequence[Stage], out: Path, ledgers: Path, in_flight: int) -> None:
        self._stages, self._out, self._ledgers, self._in_flight = stages, out, ledgers, in_flight

    @classmethod
    def open(
        cls,
        stages: list[str],
        llm: str | None,
        mllm: str | None,
        prompts: str | None,
        out: str,
        ledgers: str,
        in_flight: int,
        device: str,
        precision: str,
    ) -> Boosts:
        """With backends of these names; ``out`` is where the joined result will lie, ``ledgers`` a shared folder."""
        from tellapart.boost.backends import open_backend
        from tellapart.boost.stages import stages as make_stages

        backends = {spec: open_backend(spec, device, precision) for spec in dict.fromkeys((llm, mllm)) if spec}
        folder = Path(prompts) if prompts else None
        made = make_stages(stages, backends.get(llm or ""), backends.get(mllm or ""), folder)
        return cls(made, Path(out), Path(ledgers), in_flight)

    def models(self) -> dict[str, Any]:
        """See `tellapart.jobs.works.Work`."""
        prompts = {stage.name: hashlib.blake2b(stage.prompt.encode(), digest_size=16) for stage in self._stages}
        return {
            "stages": [
                {"name": stage.name, "model": stage.backend.name, "prompt": prompts[stage.name].hexdigest()}
                for stage in self._stages
            ]
        }

    def run(self, dataset: Dataset, out: Path) -> Done:
        """See `tellapart.jobs.works.Work`."""
        good: Counter[str] = Counter()
        written = unanswered = 0
        self._ledgers.mkdir(parents=True, exist_ok=True)
        first = dataset[0].id if len(dataset) else ""
        name = hashlib.blake2b(f"{dataset.spec}\0{first}".encode("utf-8", "backslashreplace"), digest_size=8)
        with (
            Ledger.open(self._ledgers / f"{name.hexdigest()}.jsonl") as ledger,
            out.open("w", encoding="utf-8", errors="backslashreplace", newline="\n") as file,
        ):
            job = BoostJob(self._stages, ledger, self._in_flight)
            for done in job.run(iter(dataset)):
                if done.unreadable is not None:
                    dataset.unreadable.add_error(done.item.picture.name, done.unreadable)
                    continue
                value = record(done, self._stages[-1].name, self._out)
                file.write(json.dumps(value, ensure_ascii=False) + "\n")
                written += 1
                unanswered += done.unanswered
                good.update(done.texts.keys())
        if unanswered:
            raise TellapartError(f"{unanswered:,} of {written:,} items have no answer ({job.failure})")
        return Done.of(dataset, written, **{f"good_{name}": count for name, count in good.items()})


def merge_boosted(job: Job, out: str, *, without_failed: bool = False) -> int:
    """Join the lines of all shards as one job would have written them. Returns how many there are.

    Raises `UsageError` for a file that boosting did not write.
    """
    check_out(Path(out))
    numbers = wanted_shards(job, without_failed)
    try:
        stages = [{"name": str(stage["name"]), **stage} for stage in job.value["models"]["stages"]]
    except (KeyError, TypeError):
        raise UsageError(f"{job.path}/{JOB}: damaged; {ANEW}") from None
    good: Counter[str] = Counter()
    for number in numbers:
        more = job.summary(number)["more"]
        good.update({name: more.get(f"good_{name}", 0) for name in (stage["name"] for stage in stages)})
    ids = hashlib.blake2b(digest_size=16)
    count = 0
    made: dict[str, Any] = {"data": " ".join(job.value["typed"]), "items": 0, "ids": "", "stages": stages}
    with Output.open(Path(out), made) as output:
        for _, path in results(job, numbers, "joining shards"):
            for value in read_records(path):
                output.write(value)
                ids.update(value["id"].encode("utf-8", "backslashreplace") + b"\0")
                count += 1
        made |= {"items": count, "ids": ids.hexdigest(), "shard": [1, 1]}
        output.fall_back(good, stages[-1]["name"])
    return count


def ledgers_of(path: str) -> str:
    """The folder of the ledgers of a job."""
    return os.path.join(path, "ledgers")  # noqa: PTH118 (a text, like the paths of a job)
