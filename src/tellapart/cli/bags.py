"""``tellapart bags``: mines bags of look-alikes, and builds, reviews and describes benchmarks."""

from __future__ import annotations

import json
from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

import numpy as np
import rich
import rich.table
import typer

from tellapart.bags import file as bag_file
from tellapart.bags import truematch
from tellapart.bags.review import export_review
from tellapart.bags.review.store import decisions_of, reviewer_name
from tellapart.cli.app import DATA, App
from tellapart.cli.encode_job import encode_ahead
from tellapart.cli.options import (
    Count,
    Device,
    ExactPrecision,
    Json,
    OpenPage,
    OutFile,
    OutFolder,
    Pictures,
    Port,
)
from tellapart.cli.output import show
from tellapart.cli.worker_options import WorkerOptions
from tellapart.data import Dataset, open_many
from tellapart.errors import UsageError, need_extra
from tellapart.evaluation import benchmark_card
from tellapart.evaluation.benchmark_card import Card
from tellapart.utils.comma_lists import comma_list
from tellapart.utils.locks import locked
from tellapart.utils.messages import say
from tellapart.utils.outputs import check_output, write_output
from tellapart.utils.tables import table_of
from tellapart.utils.typed_command import typed_command

if TYPE_CHECKING:
    from tellapart.bags.mine_dataset import MinedBags
    from tellapart.scorers import Scorer

app = App(
    name="bags",
    help="Find bags (sets) of look-alike pictures, build and review benchmarks, and write their cards.",
    no_args_is_help=True,
    rich_help_panel=DATA,
)


CARDS = ("card.md", "card.html")
ScorerName = Annotated[
    str, typer.Option("--scorer", help="Scorer whose features define similarity: folder, run, or hub name.")
]
Decisions = Annotated[
    Path | None, typer.Option(help="File that stores the decisions. Default: BAGS.review.sqlite next to the bags.")
]


@dataclass(frozen=True)
class MiningOptions:
    """The options of ``mine`` and ``build`` that determine the bags.

    Args:
        size: Comma-separated bag sizes.
        captions: Captions for text similarity: 'references', or a caption file.
        max_cosine: Maximum similarity to the first picture in the bag.
        max_cosine_pairs: Apply --max-cosine to every pair in the bag, not only to pairs with the first picture.
        min_cosine: Minimum similarity to the first picture in the bag or, with --all-pairs, between all of its
            pictures.
        all_pairs: Average the similarity over all pairs in a bag, not only pairs with the first picture.
        exact: Nearest-neighbour search. Default: exact below a million pictures.
    """

    size: str = "3,5,7"
    captions: str | None = None
    max_cosine: float | None = None
    max_cosine_pairs: bool = False
    min_cosine: float | None = None
    all_pairs: bool = False
    exact: Annotated[bool | None, typer.Option("--exact/--approximate")] = None


class Model(NamedTuple):
    """A scorer's name, and the device and precision to run it with."""

    name: str
    device: str
    precision: str


Licence = Annotated[str, typer.Option(help="Licence of the pictures, for the card.")]


@app.command()
def mine(
    data: Annotated[list[str] | None, typer.Argument()] = None,
    scorer: str | None = None,
    *,
    out: OutFile = Path("bags.jsonl"),
    mining: MiningOptions,
    features: Path | None = None,
    memory_gb: Annotated[float | None, typer.Option(min=0.1)] = None,
    cluster_size: Annotated[int | None, typer.Option(min=100)] = None,
    overwrite: bool = False,
    device: Device = "auto",
    precision: ExactPrecision = "auto",
    options: WorkerOptions,
    as_json: Json = False,
) -> None:
    """Mine disjoint bags of similar pictures, the most similar first.

    Args:
        data: Folders, picture files, or data sets as kind:path?key=value.
        scorer: Scorer whose features define similarity: folder, run, or hub name.
        out: Output file for the bags.
        features: Folder of precomputed features (.npy or .safetensors), for millions of pictures.
        memory_gb: Memory for the search in each worker, in GB (requires --features). Default: 4.
        cluster_size: Mean cluster size (requires --features). Default: 5,000; one cluster for up to 25,000 pictures.
        overwrite: Replace a file that was mined with other settings.
    """
    if features is not None:
        kept = {
            "--captions": mining.captions,
            "--max-cosine-pairs": mining.max_cosine_pairs,
            "--all-pairs": mining.all_pairs,
            "--min-cosine": mining.min_cosine is not None,
            "--exact and --approximate": mining.exact is not None,
            "--shard-items": options.shard_items is not None,
            "--ray ?gpus=": "gpus" in options.resources(),
            "--device and --precision": (device, precision) != ("auto", "auto"),
        }
        for option, given in kept.items():
            if given:
                raise UsageError(f"{option} applies to pictures and cannot be combined with --features; remove it")
        if data or scorer:
            raise UsageError("--features cannot be combined with DATA or --scorer; remove them")
        _mine_features(features, out, mining, memory_gb, cluster_size, overwrite, options, as_json)
        return
    if memory_gb is not None or cluster_size is not None:
        raise UsageError(f"{'--cluster-size' if memory_gb is None else '--memory-gb'} requires --features; remove it")
    if not data or scorer is None:
        raise UsageError("nothing to mine; pass pictures and --scorer, or --features FOLDER")
    if options.wanted:
        encode_ahead(scorer, data, str(out), options, device=device, precision=precision)
    _, mined = mined_from(data, Model(scorer, device, precision), mining, kept=None if overwrite else out)
    bag_file.write_bags(out, mined.file)
    show({"bags": str(out), **summary(mined)}, lambda: table(mined), as_json)


def _mine_features(
    folder: Path,
    out: Path,
    mining: MiningOptions,
    memory_gb: float | None,
    cluster_size: int | None,
    overwrite: bool,
    options: WorkerOptions,
    as_json: bool,
) -> None:
    from tellapart.bags import mine_folder
    from tellapart.jobs import neighbours

    sizes, max_cosine = sizes_of(mining.size), mining.max_cosine
    if not overwrite:
        of_bags = bag_file.Header(
            "", "", f"features:{folder}", tuple(sizes), max_cosine=max_cosine, max_cosine_of="target"
        )
        bag_file.refuse_others(out, of_bags)
    spreading: Any = nullcontext()
    if options.wanted:
        spreading = neighbours.spread_by_ray(options.cluster())
    with spreading as spread:
        mined = mine_folder.mine_folder(
            folder,
            out,
            sizes,
            memory_gb=memory_gb or mine_folder.MEMORY_GB,
            max_cosine=max_cosine,
            pictures=cluster_size,
            spread=spread,
        )
    show({"bags": str(out), **mined.to_json()}, lambda: "\n".join([*mined.lines(), f"bags: {out}"]), as_json)


def sizes_of(size: str) -> list[int]:
    """Parses ``3,5,7`` as numbers. Raises `UsageError`."""
    from tellapart.bags.mine import check_sizes

    try:
        return check_sizes(list(map(int, comma_list(size))))
    except ValueError:
        raise UsageError(f"--size {size}: expected integers separated by commas, such as 3,5,7") from None


@app.command()
def build(
    pictures: Pictures,
    scorer: ScorerName,
    out: OutFolder = Path("benchmark"),
    *,
    mining: MiningOptions,
    licence: Licence = "",
    name: str | None = None,
    device: Device = "auto",
    precision: ExactPrecision = "auto",
    as_json: Json = False,
) -> None:
    """Build a benchmark from pictures: bags.jsonl, 3.json, 5.json, …, pictures.jsonl, and a card.

    Args:
        out: Output folder of the benchmark.
        name: Name of the benchmark on its card. Default: the folder's name.
    """
    for file in ("bags.jsonl", "pictures.jsonl", *CARDS, *(f"{each}.json" for each in sizes_of(mining.size))):
        check_output(out / file)
    with locked(out, wait=False):
        scorer_model, mined = mined_from(pictures, Model(scorer, device, precision), mining)
        truematch.remove_truematch(out)
        bag_file.write_bags(out / "bags.jsonl", mined.file)
        truematch.write_truematch(out, mined.file.bags)
        used = {id_ for bag in mined.file.bags for id_ in bag.ids}
        rows = [
            {"id": i.id, "content": i.picture.key(), "captions": list(i.references)}
            for i in mined.items
            if i.id in used
        ]
        write_output(out / "pictures.jsonl", "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows))
        card = benchmark_card.make_card(
            name or out.resolve().name,
            mined.file,
            mined.items,
            mined.image_ND,
            scorer_model,
            licence=licence,
            repeat=typed_command(),
        )
        write_card(card, out)
    show({"folder": str(out), **card.to_json()}, lambda: card_table(card), as_json)


@app.command()
def pool(
    data: list[str],
    among: Annotated[list[str], typer.Option("--among")],
    scorer: ScorerName,
    out: OutFile = Path("pool.jsonl"),
    nearest: Count = 5,
    device: Device = "auto",
    precision: ExactPrecision = "auto",
    as_json: Json = False,
) -> None:
    """Build a pool of hard distractors: pictures that look like the test pictures, for eval --distractors.

    Args:
        data: Test pictures: folders, or data sets as kind:path?key=value.
        among: Data set to search for distractors. Repeatable.
        out: Output list, to pass to eval --distractors.
        nearest: Number of look-alikes per test picture.
    """
    from tellapart.bags.hard_pool import hard_pool
    from tellapart.scorers import load_scorer

    check_output(out)
    targets, others = open_many(data), open_many(among)
    found = hard_pool(targets, others, load_scorer(scorer, device, precision), nearest)
    write_output(out, found.lines())
    for line in (*targets.report(), *others.report()):
        say(line)
    made = {"pool": str(out), "pictures": len(found.items), "targets": found.asked}
    show(
        made,
        lambda: (
            f"{out}: found {len(found.items):,} look-alikes for {found.asked:,} pictures; pass it to eval --distractors"
        ),
        as_json,
    )


@app.command()
def card(
    bags: Path,
    data: list[str],
    scorer: ScorerName,
    out: OutFolder = Path(),
    licence: Licence = "",
    name: str | None = None,
    device: Device = "auto",
    precision: ExactPrecision = "auto",
    as_json: Json = False,
) -> None:
    """Write a card that describes a file of bags, as Markdown and HTML.

    Args:
        bags: File of bags.
        data: Pictures that the bags were mined from.
        out: Output folder for card.md and card.html.
        name: Name of the benchmark on its card. Default: the file's name.
    """
    from tellapart.features import store as feature_store
    from tellapart.scorers import load_scorer

    for each in CARDS:
        check_output(out / each)
    file = bag_file.read_bags(bags)
    model, dataset = load_scorer(scorer, device, precision), open_many(data)
    file = bag_file.read_bags(bags, fingerprint=model.fingerprint, known={item.id for item in dataset})
    used = {id_ for bag in file.bags for id_ in bag.ids}
    items = [item for item in dataset if item.id in used]
    image_ND = np.asarray(feature_store.FeatureStore().features(items, model.encoder))
    repeat = typed_command()
    made = benchmark_card.make_card(name or bags.stem, file, items, image_ND, model, licence=licence, repeat=repeat)
    write_card(made, out)
    show({"folder": str(out), **made.to_json()}, lambda: card_table(made), as_json)


def mined_from(
    data: Sequence[str], scorer: Model, options: MiningOptions, *, kept: Path | None = None
) -> tuple[Scorer, MinedBags]:
    """Returns the scorer and the bags mined with it. Prints what was skipped.

    ``kept``: the output file. If it already exists, it must contain bags that were mined with these settings.
    """
    from tellapart.bags.mine_dataset import mine_dataset
    from tellapart.scorers import load_scorer

    if options.max_cosine_pairs and options.max_cosine is None:
        raise UsageError("--max-cosine-pairs requires --max-cosine, such as 0.8; add it, or remove --max-cosine-pairs")
    sizes = sizes_of(options.size)
    dataset: Dataset = open_many(list(data))
    model = load_scorer(*scorer)
    limits: dict[str, Any] = {
        "similarity": "pairs" if options.all_pairs else "query",
        "max_cosine": options.max_cosine,
        "max_cosine_of": "pairs" if options.max_cosine_pairs else "target",
        "min_cosine": options.min_cosine,
    }
    if kept is not None:
        header = bag_file.Header(
            str(model.name), model.fingerprint, dataset.spec, tuple(sizes), captions=options.captions or "", **limits
        )
        bag_file.refuse_others(kept, header)
    approximate = None if options.exact is None else not options.exact
    mined = mine_dataset(dataset, model, sizes, captions=options.captions, approximate=approximate, **limits)
    for line in (*dataset.report(), *filter(None, [mined.unlike_line()])):
        say(line)
    return model, mined


@app.command()
def review(
    bags: Path,
    data: Annotated[list[str] | None, typer.Argument()] = None,
    reviewer: str | None = None,
    decisions: Decisions = None,
    port: Port = 8765,
    open_page: OpenPage = False,
) -> None:
    """Review bags on a local page, with the keyboard. Repeat the command to continue.

    Args:
        bags: File of bags.
        data: Pictures. Default: the data that the bags were mined from.
        reviewer: Name of the reviewer. Default: the page asks for it.
    """
    need_extra("review", "the review page", "starlette", "uvicorn")
    from tellapart.review.app import serve_page
    from tellapart.review.bags import requests, session

    name = reviewer_name(reviewer) if reviewer is not None else None
    review_session = session.open_review(bags, data or (), decisions, name)
    with review_session.store:
        saved = f"; decisions are saved in {review_session.store.path}"
        serve_page(
            requests.bags_page(review_session), port, f"{len(review_session.bags):,} bags", saved, open_page=open_page
        )


@app.command()
def export(
    bags: Path,
    out: OutFolder = Path("curated"),
    decisions: Decisions = None,
    keep: str = "majority",
    as_json: Json = False,
) -> None:
    """Export the bags that the reviewers kept, along with their decisions.

    Args:
        bags: File of reviewed bags.
        out: Output folder of the curated benchmark.
        keep: How to combine reviewers' decisions: majority (ties are dropped), all, or any.
    """
    done = export_review(bags, decisions or decisions_of(bags), out, keep)
    kappa = "" if done.kappa is None else f"; κ {done.kappa:.2f}"
    line = (
        f"{out}: {done.kept:,} bags kept, {done.dropped:,} dropped, {done.undecided:,} undecided; "
        f"reviewers: {', '.join(done.reviewers)}{kappa}"
    )
    show(done.to_json(), lambda: line, as_json)


def summary(mined: MinedBags) -> dict[str, Any]:
    """Returns the mined bags as JSON values."""
    header = mined.file.header
    return {
        "pictures": header.pictures,
        "left_out": header.left_out,
        **({"unlike": list(mined.unlike)} if header.min_cosine is not None else {}),
        "scorer": header.scorer,
        "sizes": {
            str(size): {"bags": len(own), "similarity": [own[0].similarity, own[-1].similarity]}
            for size, own in mined.file.of_size().items()
        },
    }


def table(mined: MinedBags) -> rich.table.Table:
    """Returns the mined bags as a table."""
    header = mined.file.header
    copies = "".join(f", {count:,} {what} excluded" for what, count in header.left_out.items())
    rows = [
        (str(size), f"{len(own):,}", f"{size * len(own):,}", *(f"{own[place].similarity:.3f}" for place in (0, -1)))
        for size, own in mined.file.of_size().items()
    ]
    heads = ("bag", "bags", "pictures", "most alike", "least alike")
    return table_of(heads, rows, f"{header.pictures:,} pictures{copies}")


def card_table(card: Card) -> rich.table.Table:
    """Returns a card as a table."""
    title = f"{card.name}: {card.file.header.pictures:,} pictures"
    return table_of(benchmark_card.COLUMNS, [own.cells() for own in card.sizes], title)


def write_card(card: Card, folder: Path) -> None:
    """Writes card.md and card.html."""
    for name, text in zip(CARDS, (benchmark_card.markdown(card), benchmark_card.page(card)), strict=True):
        write_output(folder / name, text)
