"""``tellapart boost``: rewrites captions to be more detailed and still faithful (caption boosting)."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import rich
import rich.console
import rich.table
import typer

from tellapart.boost.boost_dataset import Summary, boost_dataset, check_out
from tellapart.boost.merge import merge
from tellapart.boost.output import stage_of_captions
from tellapart.boost.records import read_records
from tellapart.boost.stages import stages as make_stages
from tellapart.boost.statistics import Statistics
from tellapart.boost.statistics_text import statistics_lines, statistics_table
from tellapart.cli.app import DATA, App
from tellapart.cli.options import Device, InferencePrecision, Json, OutFile
from tellapart.cli.output import show
from tellapart.cli.worker_options import JobOptions
from tellapart.cli.workers import finished_job, job_counts, refuse_mostly_unreadable
from tellapart.data import open_many
from tellapart.errors import TellapartError, UsageError
from tellapart.jobs.job import SUFFIX
from tellapart.jobs.prepare import JobRequest
from tellapart.utils.comma_lists import comma_list
from tellapart.utils.messages import say
from tellapart.utils.tables import table_of
from tellapart.utils.typed_command import typed_command

app = App()


@dataclass(frozen=True)
class BoostOptions:
    """The options of ``tellapart boost``, except for the data and the workers.

    Args:
        out: Boosted data set.
        llm: LLM for the blend stage: openai:MODEL@URL, local:FOLDER, or scripted (for scenes).
        mllm: Model that describes pictures: a VLM, in the same form as --llm; local:CAPTIONER; or file:CAPTIONS.
        stages: Stages to run, separated by commas.
        per_reference: Write one blend and one holistic caption per reference, or one of each per picture.
        prompts: Folder with custom prompts: blend.txt, describe.txt, holistic.txt.
        shard: Boost only the I-th of N parts; see job merge.
        in_flight: Maximum number of concurrent requests.
        ledger: File that stores the answers. Default: --out with the suffix .ledger.jsonl.
        tokenizer: Also count tokens with this tokenizer: folder or hub name. Paper 2 uses openai/clip-vit-base-patch32.
    """

    out: OutFile = Path("boosted.jsonl")
    llm: str | None = None
    mllm: str | None = None
    stages: str = "blend,describe,holistic"
    per_reference: Annotated[bool, typer.Option("--per-reference/--one-caption")] = True
    prompts: Path | None = None
    shard: Annotated[str, typer.Option(metavar="I/N")] = "1/1"
    in_flight: Annotated[int, typer.Option(min=1, max=1024)] = 16
    ledger: Path | None = None
    tokenizer: str | None = None

    @property
    def names(self) -> list[str]:
        """Returns the names of the stages."""
        return comma_list(self.stages)


def parse_shard(text: str) -> tuple[int, int]:
    """Parses ``2/8`` as (2, 8). Raises `UsageError` for invalid text."""
    match = re.fullmatch(r"([1-9]\d*)/([1-9]\d*)", text)
    if not match or int(match[1]) > int(match[2]):
        raise UsageError(f"--shard {text}: expected I/N, such as 2/8 for the second of eight parts")
    return int(match[1]), int(match[2])


@app.command(rich_help_panel=DATA)
def boost(
    data: list[str],
    *,
    options: BoostOptions,
    device: Device = "auto",
    precision: InferencePrecision = "auto",
    overwrite: bool = False,
    job: JobOptions,
    as_json: Json = False,
) -> None:
    """Make captions more detailed with language models. Interrupted runs resume when you repeat the command.

    Args:
        data: Data sets as kind:path?key=value, or folders.
        overwrite: Replace files that have been edited; with --workers, also start over.
    """
    from tellapart.boost.token_counts import tokens_of
    from tellapart.inference.describers import open_backends

    out, part = options.out, parse_shard(options.shard)
    check_out(out)
    local = any((spec or "").startswith("local:") for spec in (options.llm, options.mllm))
    if (device, precision) != ("auto", "auto") and not local:
        raise UsageError("--device and --precision require a local model; pass --mllm local:FOLDER, or remove them")
    if job.wanted:
        if part != (1, 1) or options.ledger is not None:
            raise UsageError("--workers manages its own shards and ledgers; remove --shard and --ledger")
        _by_workers(data, options, device, precision, overwrite, job, as_json)
        return
    dataset = open_many(data)
    backends = open_backends(options.llm, options.mllm, dataset, device, precision)
    selected = make_stages(options.names, *backends, options.prompts)
    statistics = Statistics(tokens_of(options.tokenizer) if options.tokenizer else None)
    summary = boost_dataset(
        dataset, selected, out, options.ledger, in_flight=options.in_flight, shard=part,
        per_reference=options.per_reference,
        each=statistics.add,
    )  # fmt: skip
    show_all({**summary.to_json(), "statistics": statistics.to_json()}, [table(summary)], statistics, out, as_json)
    for line in dataset.report():
        say(line)
    dataset.refuse_mostly_unreadable()
    if summary.unanswered:
        raise TellapartError(
            f"{summary.unanswered:,} of {summary.items:,} items have no answer ({summary.failure}) "
            "and keep their original captions; run the same command again to request only the missing answers"
        )
    if summary.without:
        raise TellapartError(no_answers_message(summary.without[0], summary.captions_of, out, statistics))


def _by_workers(
    data: list[str],
    options: BoostOptions,
    device: str,
    precision: str,
    overwrite: bool,
    workers: JobOptions,
    as_json: bool,
) -> None:
    """Boosts with multiple workers, dividing the maximum number of concurrent requests among them."""
    from tellapart.boost.token_counts import tokens_of
    from tellapart.jobs.works.boost import ledgers_of
    from tellapart.jobs.works.table import merge_job

    out, prompts = options.out, options.prompts
    count_tokens = tokens_of(options.tokenizer) if options.tokenizer else None
    place = out.absolute()
    texts = {file.name: file.read_text(encoding="utf-8") for file in sorted(prompts.glob("*.txt"))} if prompts else {}
    deciding: dict[str, Any] = {
        "stages": options.names, "llm": options.llm, "mllm": options.mllm, "prompts": texts, "out": str(place),
    }  # fmt: skip
    deciding |= {"per_reference": True} if options.per_reference else {}
    settings = deciding | {
        "prompts": None if prompts is None else str(prompts.absolute()), "ledgers": ledgers_of(f"{place}{SUFFIX}"),
        "device": device, "precision": precision, "in_flight": max(1, options.in_flight // (workers.workers or 1)),
        "per_reference": options.per_reference,
    }  # fmt: skip
    request = JobRequest("boost", settings, deciding)
    with finished_job(request, data, str(out), workers, "boosting", overwrite=overwrite, suffix=".jsonl") as (job, _):
        counts = job_counts(job)
        items = merge_job(job, str(out))
    statistics = Statistics(count_tokens)
    for record in read_records(out):
        statistics.add_record(record, out.parent)
    value = {"out": str(out), "items": items, "left_out": counts["left_out"], "statistics": statistics.to_json()}
    show_all(value, [f"{out}: {items:,} items from {job.shards:,} shards"], statistics, out, as_json)
    refuse_mostly_unreadable(counts)
    names = [stage["name"] for stage in job.value["models"]["stages"]]
    if without := [name for name in names if name not in statistics.kinds]:
        captions_of = stage_of_captions(statistics.kinds, names[-1])
        raise TellapartError(no_answers_message(without[0], captions_of, out, statistics))


def merge_parts(parts: Sequence[Path], out: Path, as_json: bool) -> None:
    """Joins the results of ``--shard 1/N`` to ``N/N`` into the file that a single job would have written."""
    check_out(out)
    items = merge(parts, out)
    statistics = Statistics()
    for record in read_records(out):
        statistics.add_record(record, out.parent)
    value = {"out": str(out), "items": items, "statistics": statistics.to_json()}
    show_all(value, [f"{out}: {items:,} items from {len(parts)} shards"], statistics, out, as_json)


def show_all(value: dict[str, Any], tables: list[Any], statistics: Statistics, out: Path, as_json: bool) -> None:
    """Prints the summary and the captions' statistics, and writes the page next to the result."""
    from tellapart.boost.page import write_page

    page = out.with_suffix(".html")
    write_page(statistics, page, typed_command())
    show(
        value, lambda: rich.console.Group(*tables, statistics_table(statistics), *statistics_lines(statistics)), as_json
    )
    say(f"page: {page}")


def no_answers_message(stage: str, captions_of: str, out: Path, statistics: Statistics) -> str:
    """Explains why ``stage`` has no usable answer, and which captions the result contains instead.

    captions_of: the stage that the result's captions come from; empty for the original captions.
    """
    reasons = ", ".join(f"{count:,} {why}" for why, count in statistics.bad[stage].most_common(3))
    instead = f"those of stage {captions_of}" if captions_of else "the original human captions"
    option = "--mllm" if stage == "describe" else "--llm"
    return (
        f"stage {stage} has no usable answer for any of {statistics.items:,} items ({reasons}); "
        f"the captions in {out} are {instead}; choose another model with {option}, or change the "
        "prompt with --prompts"
    )


def table(summary: Summary) -> rich.table.Table:
    """Returns a job's summary as a table."""
    title = f"{summary.out}: {summary.boosted:,} of {summary.items:,} captions boosted; {summary.retries:,} retries"
    rows = []
    for name, own in summary.stages.items():
        counts = (own.kept, own.asked, own.second, own.bad, own.prompt_tokens, own.completion_tokens)
        rows.append((name, *(f"{count:,}" for count in counts), "–" if own.cost is None else f"{own.cost:.2f}"))
    heads = ("stage", "from the ledger", "asked", "retries", "rejected", "tokens in", "out", "cost")
    return table_of(heads, rows, title)
