"""Boosts a data set or one of its shards, writes the result to a file, shows the progress and returns a summary."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from tellapart.boost.job import BoostJob, Tally
from tellapart.boost.ledger import Ledger, ledger_of
from tellapart.boost.made_record import made_by, made_file, stage_identities
from tellapart.boost.output import open_output, stage_of_captions
from tellapart.boost.records import read_records, record
from tellapart.boost.types import Boosted, Stage
from tellapart.data import Dataset
from tellapart.errors import UsageError
from tellapart.utils.messages import say
from tellapart.utils.outputs import check_output
from tellapart.utils.progress import Progress

IN_FLIGHT = 16


@dataclass(frozen=True, slots=True)
class Summary:
    """Summary of a job.

    items: number of items that were written.
    boosted: number of items whose caption is the text of the stage ``captions_of``.
    unanswered: number of items that lack an answer because a server failed.
    captions_of: the stage whose texts are the captions, or "" if no stage has a good answer.
    without: stages that ran but have no good answer for any item.
    failure: why the last failed request failed.
    """

    out: Path
    ledger: Path
    items: int
    boosted: int
    unanswered: int
    retries: int
    captions_of: str
    stages: dict[str, Tally]
    without: tuple[str, ...]
    failure: str = ""

    def to_json(self) -> dict[str, Any]:
        """Returns the JSON that ``boost --json`` prints."""
        value = {**asdict(self), "out": str(self.out), "ledger": str(self.ledger)}
        return {key: value[key] for key in value if key not in ("without", "failure")}


def boost_dataset(
    dataset: Dataset,
    stages: Sequence[Stage],
    out: Path,
    ledger: Path | None = None,
    *,
    in_flight: int = IN_FLIGHT,
    shard: tuple[int, int] = (1, 1),
    per_reference: bool = False,
    each: Callable[[Boosted], None] = lambda done: None,
    **retry: Any,
) -> Summary:
    """Boosts a data set and writes it to ``out``. Resumes from the answers in ``ledger``.

    Skips unreadable pictures and adds them to the data set's list of unreadable pictures.

    Args:
        ledger: file that stores the answers. Default: a file next to ``out``.
        shard: (i, n) for the i-th of n consecutive parts.
        per_reference: see `BoostJob`.
        each: called with every written item.
        retry: options of `RetryingBackend`.

    Raises:
        TellapartError: if no request can succeed. Earlier answers remain in the ledger.
    """
    check_out(out)
    check_same_data(out, dataset)
    ledger = ledger or ledger_of(out)
    made = made_by(dataset.spec, (item.id for item in dataset), stage_identities(stages), shard, per_reference)
    place, of = shard
    part = range(len(dataset) * (place - 1) // of, len(dataset) * place // of)
    unanswered = written = 0
    good: Counter[str] = Counter()
    last = stages[-1].name
    with Ledger.open(ledger) as answers, open_output(out, made) as output, Progress(len(part), "boosting") as progress:
        job = BoostJob(stages, answers, in_flight, per_reference, **retry)
        try:
            for done in job.run((dataset[row] for row in part), progress.advance):
                if done.unreadable is not None:
                    dataset.unreadable.add_error(done.item.picture.name, done.unreadable)
                    continue
                output.write(record(done, last, out))
                each(done)
                written += 1
                unanswered += done.unanswered
                good.update(done.texts.keys())
        except KeyboardInterrupt:
            say(f"{len(answers):,} answers are in {ledger}")
            raise
    source = stage_of_captions(good, last)
    without = tuple(stage.name for stage in stages if written and not good[stage.name])
    return Summary(out, ledger, written, good[source], unanswered, job.retries, source, job.tally, without, job.failure)


def check_out(out: Path) -> None:
    """Raises `UsageError` if ``out`` is a URL, has a suffix other than .jsonl, or must not be replaced."""
    if out.parts and out.parts[0].endswith(":"):  # as a path, s3://bucket/x.jsonl becomes s3:/bucket/x.jsonl
        raise UsageError(
            f"-o {out}: boost cannot write to a URL; use a local file, such as -o boosted.jsonl, "
            "and upload it afterwards"
        )
    if out.suffix != ".jsonl":
        raise UsageError(f"-o {out}: the result is written as JSON lines; use a name such as -o boosted.jsonl")
    for path in (out, made_file(out), out.with_suffix(".html")):
        check_output(path)


def check_same_data(out: Path, dataset: Dataset) -> None:
    """Raises `UsageError` if ``out`` exists and contains captions of other pictures, which would be overwritten."""
    if out.exists() and {item.id for item in dataset}.isdisjoint(value["id"] for value in read_records(out)):
        raise UsageError(
            f"{out} contains captions of pictures that are not in {dataset.spec}; specify another file with -o"
        )
