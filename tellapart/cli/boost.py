"""``tellapart boost``: a data set's captions made dense, and still true; and the merging of its parts."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from tellapart.cli.common import DATA, App
from tellapart.cli.output import Json, show
from tellapart.errors import TellapartError
from tellapart.utils.messages import typed_command

if TYPE_CHECKING:
    from rich.table import Table

    from tellapart.boost.run import Summary
    from tellapart.boost.statistics import Statistics

app = App()


@app.command(rich_help_panel=DATA)
def boost(
    data: Annotated[list[str], typer.Argument(help="Data sets as kind:path?key=value, or folders.")],
    out: Annotated[Path, typer.Option("--out", "-o", help="The boosted data set.")] = Path("boosted.jsonl"),
    llm: Annotated[
        str | None, typer.Option(help="Who blends: openai:MODEL@URL, local:FOLDER, or scripted (for scenes).")
    ] = None,
    mllm: Annotated[str | None, typer.Option(help="Who describes pictures: the same kinds of names.")] = None,
    stages: Annotated[str, typer.Option(help="Which stages, with commas.")] = "blend,describe,holistic",
    prompts: Annotated[
        Path | None, typer.Option(help="A folder with prompts of your own: blend.txt, describe.txt, holistic.txt.")
    ] = None,
    shard: Annotated[str, typer.Option(metavar="I/N", help="Only the I-th of N parts; see boost-merge.")] = "1/1",
    in_flight: Annotated[int, typer.Option(min=1, max=1024, help="Requests at a time.")] = 16,
    ledger: Annotated[
        Path | None, typer.Option(help="Where answers are kept. Default: beside the result, RESULT.ledger.jsonl.")
    ] = None,
    tokenizer: Annotated[
        str | None,
        typer.Option(help="Count its tokens too: a folder or hub name. The paper's: openai/clip-vit-base-patch32."),
    ] = None,
    as_json: Json = False,
) -> None:
    """Make captions dense, and still true. Type the same command again to go on after an interruption."""
    from tellapart.boost.backends import open_backend
    from tellapart.boost.run import boost_dataset, check_out, parse_shard
    from tellapart.boost.stages import stages as make_stages
    from tellapart.boost.statistics import Statistics, tokens_of
    from tellapart.data import open_many
    from tellapart.utils.messages import say

    check_out(out)
    part = parse_shard(shard)
    names = [name.strip() for name in stages.split(",") if name.strip()]
    # One backend where both names are one: a local model is loaded once, a server's pauses hold for both.
    made = {spec: open_backend(spec) for spec in dict.fromkeys((llm, mllm)) if spec}
    chosen = make_stages(names, made.get(llm or ""), made.get(mllm or ""), prompts)
    dataset = open_many(data)
    found = Statistics(tokens_of(tokenizer) if tokenizer else None)
    summary = boost_dataset(
        dataset, chosen, out, ledger, in_flight=in_flight, shard=part,
        each=lambda done: found.add(done.item, done.texts, done.bad),
    )  # fmt: skip
    show_all({**summary.to_json(), "statistics": found.to_json()}, [table(summary)], found, out, as_json)
    for line in dataset.report():
        say(line)
    dataset.refuse_mostly_unreadable()
    if summary.unanswered:
        raise TellapartError(
            f"{summary.unanswered:,} of {summary.items:,} items lack an answer because the server failed, and keep "
            "people's captions; the same command asks for these alone"
        )
    if summary.without:
        raise TellapartError(without_answers(summary, found))


@app.command(name="boost-merge", rich_help_panel=DATA)
def boost_merge(
    parts: Annotated[list[Path], typer.Argument(help="The results of --shard 1/N to N/N, in any order.")],
    out: Annotated[Path, typer.Option("--out", "-o", help="The whole.")] = Path("boosted.jsonl"),
    as_json: Json = False,
) -> None:
    """Join the parts of a boosted data set, as one job would have written them."""
    from tellapart.boost.output import merge, read_records
    from tellapart.boost.run import check_out
    from tellapart.boost.statistics import Statistics

    check_out(out)
    items = merge(parts, out)
    found = Statistics()
    for value in read_records(out):
        found.add_record(value, out.parent)
    told = {"out": str(out), "items": items, "statistics": found.to_json()}
    show_all(told, [f"{out}: {items:,} items of {len(parts)} parts"], found, out, as_json)


def show_all(told: dict[str, Any], tables: list[Any], found: Statistics, out: Path, as_json: bool) -> None:
    """What was done, then what the captions are like; and the page beside the result."""
    from rich.console import Group

    from tellapart.boost.page import write_page
    from tellapart.utils.messages import say

    page = out.with_suffix(".html")
    write_page(found, page, typed_command())
    show(told, lambda: Group(*tables, found.table(), *found.lines()), as_json)
    say(f"page: {page}")


def without_answers(summary: Summary, found: Statistics) -> str:
    """Of which stage every answer was bad, why, and what the result has instead."""
    stage = summary.without[0]
    reasons = ", ".join(f"{count:,} {why}" for why, count in found.bad[stage].most_common(3))
    instead = f"those of stage {summary.captions_of}" if summary.captions_of else "people's own"
    option = "--mllm" if stage == "describe" else "--llm"
    return (
        f"stage {stage} has no good answer about any of {summary.items:,} items ({reasons}); the captions in "
        f"{summary.out} are {instead}; name another model with {option}, or mend the prompt with --prompts"
    )


def table(summary: Summary) -> Table:
    """What a job did, for people."""
    from rich import box
    from rich.table import Table

    title = f"{summary.out}: {summary.boosted:,} of {summary.items:,} captions boosted; {summary.retries:,} retries"
    shown = Table(box=box.SIMPLE_HEAD, title=title)
    for column in ("stage", "from the ledger", "asked", "second tries", "marked bad", "tokens in", "out", "cost"):
        shown.add_column(column, justify="left" if column == "stage" else "right")
    for name, own in summary.stages.items():
        counts = (own.kept, own.asked, own.second, own.bad, own.prompt_tokens, own.completion_tokens)
        shown.add_row(name, *(f"{count:,}" for count in counts), "–" if own.cost is None else f"{own.cost:.2f}")
    return shown
