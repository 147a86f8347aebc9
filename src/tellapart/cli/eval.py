"""``tellapart eval``: measure caption files."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Annotated

import typer

from tellapart.cli.common import MEASURING, App, metric_names
from tellapart.cli.devices import Device, ExactPrecision
from tellapart.cli.job_options import (
    CpusPerWorker,
    GpusPerWorker,
    JobOptions,
    RayAddress,
    ShardItems,
    WorkerCount,
)
from tellapart.cli.judge_options import LEDGER, JudgeLedger, JudgePrompts, LlmJudge
from tellapart.cli.output import Json, show
from tellapart.errors import UsageError
from tellapart.utils.messages import say, typed_command

app = App()


@app.command(name="eval", rich_help_panel=MEASURING)
def evaluate(
    captions: Annotated[
        list[Path] | None,
        typer.Option(help="JSON, JSONL, CSV, Parquet, a caption a line, … (docs/data.md). Repeatable."),
    ] = None,
    captioner: Annotated[
        list[str] | None,
        typer.Option(
            help="A captioner, which writes captions of --data first: a name, or openai:MODEL@URL. Repeatable."
        ),
    ] = None,
    references: Annotated[
        list[Path] | None,
        typer.Option(
            help="References, in any layout of --captions or Karpathy's. Several files are joined. Repeatable."
        ),
    ] = None,
    data: Annotated[str | None, typer.Option(help="The pictures, as kind:path?split=test.")] = None,
    scorer: Annotated[str | None, typer.Option(help="Scorer: folder, run, hub name, or 'scenes'.")] = None,
    eval_scorer: Annotated[
        list[str] | None, typer.Option(help="A held-out scorer, measured too: detects reward hacking. Repeatable.")
    ] = None,
    metrics: Annotated[
        list[str] | None,
        typer.Option(
            help="Names, with commas; 'list' shows them, 'all' is all that inputs allow. Default: five. Repeatable.",
            autocompletion=metric_names,
        ),
    ] = None,
    human: Annotated[
        str | None,
        typer.Option(help="Score references as a system too: first, random, or mean."),
    ] = None,
    chance: Annotated[bool, typer.Option("--chance", help="Add random chance as a system.")] = False,
    lookalike: Annotated[int, typer.Option(min=2, help="Pictures in a look-alike set.")] = 10,
    resamples: Annotated[int, typer.Option(min=1, help="Bootstrap resamples behind each interval.")] = 1000,
    seed: Annotated[int, typer.Option(min=0, help="Seed of the bootstrap, and of the shuffled pools of 100.")] = 0,
    allow_missing: Annotated[bool, typer.Option("--allow-missing", help="Score the ids that all files have.")] = False,
    min_overlap: Annotated[
        float, typer.Option(min=0, max=1, help="Refuse files that share a smaller part of their ids.")
    ] = 0.5,
    language_model: Annotated[
        str | None, typer.Option(help="For perplexity: a causal language model, folder or hub name.")
    ] = None,
    bertscore: Annotated[
        str | None, typer.Option(help="For BERTScore: a text encoder such as roberta-large, folder or hub name.")
    ] = None,
    long_texts: Annotated[
        str, typer.Option(help="Captions beyond the scorer's window: truncate, or sentences (scored one by one).")
    ] = "truncate",
    emscore_idf: Annotated[
        str | None,
        typer.Option(help="Weight EMScore's tokens by IDF: of the references, or captions."),
    ] = None,
    words: Annotated[
        int,
        typer.Option(min=0, metavar="N", help="Show each system's N most characteristic adjectives and nouns."),
    ] = 0,
    bags: Annotated[
        list[Path] | None,
        typer.Option(help="Candidate sets: bags.jsonl, TrueMatch's 3.json, ImageCoDe's JSON. Repeatable."),
    ] = None,
    distractors: Annotated[
        str | None, typer.Option(help="A hard pool: further candidate pictures, as kind:path.")
    ] = None,
    pairs: Annotated[
        str, typer.Option(help="Paired tests: first (each system against the first one), or all (every two).")
    ] = "first",
    synonyms: Annotated[
        Path | None, typer.Option(help="For CHAIR and facts: objects with their synonyms, as in CHAIR's synonyms.txt.")
    ] = None,
    instances: Annotated[
        Path | None, typer.Option(help="For CHAIR: COCO's instances_*.json, whose objects count as there too.")
    ] = None,
    llm_judge: LlmJudge = None,
    ledger: JudgeLedger = LEDGER,
    prompts: JudgePrompts = None,
    questions: Annotated[
        Path | None, typer.Option(help="For CaptionQA: questions by picture, {picture: [{question, choices, answer}]}.")
    ] = None,
    out: Annotated[
        Path | None,
        typer.Option("--out", "-o", help="Write the result: .json, .csv, .md, .tex, or .txt.", dir_okay=False),
    ] = None,
    format: Annotated[
        str | None, typer.Option(help="table, markdown, latex, csv, or json. Default: as -o ends, else a table.")
    ] = None,
    per_caption: Annotated[
        Path | None, typer.Option("--per-caption", help="Write each caption's scores: .jsonl or .csv.")
    ] = None,
    report: Annotated[
        Path | None, typer.Option(help="Write a page, with a gallery where --data has the pictures: .html.")
    ] = None,
    device: Device = "auto",
    precision: ExactPrecision = "auto",
    workers: WorkerCount = None,
    ray: RayAddress = None,
    cpus_per_worker: CpusPerWorker = None,
    gpus_per_worker: GpusPerWorker = None,
    shard_items: ShardItems = None,
    as_json: Json = False,
) -> None:
    """Measure captions: retrieval among similar pictures, agreement with references, diversity, truth."""
    from tellapart.evaluation import formats
    from tellapart.evaluation.evaluate import run_eval
    from tellapart.evaluation.judges.judge import JudgeInputs
    from tellapart.evaluation.selection import main_metrics
    from tellapart.metrics.results import WORDS

    names = None if metrics is None else [name.strip() for name in ",".join(metrics).split(",") if name.strip()]
    if names is not None and [name.lower() for name in names] == ["list"]:
        from tellapart.cli.metric_list import list_metrics, table

        found = list_metrics()
        show({"metrics": [metric.to_json() for metric in found]}, lambda: table(found), as_json)
        return
    if not captions and not captioner:
        raise UsageError("Missing option '--captions'; type: tellapart eval --help")
    if captioner and data is None:
        raise UsageError("--captioner writes captions of pictures; add --data SPEC, or type --captions FILE")
    if names == []:
        raise UsageError(
            "--metrics names none; type --metrics length,clipscore, or --metrics all for all that the inputs allow"
        )
    five = names is None
    if names is not None and [name.lower() for name in names] == ["all"]:
        names = None
    if as_json and format not in (None, "json") and out is None:
        raise UsageError(f"--json and --format {format} contradict each other; leave one of them out")
    chosen_format = formats.format_of(out, format)
    for path, suffixes in ((out, ()), (per_caption, (".jsonl", ".csv")), (report, (".html", ".htm"))):
        if path is not None:
            formats.check_file(path, suffixes)
    options = JobOptions(workers, ray, cpus_per_worker, gpus_per_worker, shard_items, False, None)
    if options.wanted:
        from tellapart.cli.job_features import encode_ahead

        if data is None or scorer is None:
            raise UsageError("--workers encode the pictures of --data for --scorer; type both, or leave out --workers")
        specs = [[spec] for spec in (data, distractors) if spec is not None]
        models, place = [scorer, *(eval_scorer or ())], None if out is None else str(out)
        encode_ahead(models, specs, place, options, device=device, precision=precision)
    files = [*(captions or ())]
    if captioner:
        from tellapart.inference.system import captions_of

        # --precision is of metrics, which are exact by default; captions are written as `caption` writes them.
        files += [captions_of(name, str(data), device) for name in captioner]
        if not (scorer or language_model or bertscore) and precision == "auto":
            device = "auto"  # was the captioner's; text metrics refuse one
    results = run_eval(
        files,
        references,
        data,
        scorer,
        names,
        eval_scorers=eval_scorer or (),
        human=human,
        chance=chance,
        lookalike=lookalike,
        resamples=resamples,
        seed=seed,
        allow_missing=allow_missing,
        min_overlap=min_overlap,
        language_model=language_model,
        bertscore=bertscore,
        long_texts=long_texts,
        emscore_idf=emscore_idf,
        words=words,
        bags=bags or (),
        distractors=distractors,
        pairs=pairs,
        device=device,
        precision=precision,
        synonyms=synonyms,
        instances=instances,
        judge=JudgeInputs(llm_judge, ledger, prompts, questions),
    )
    if out is not None:
        formats.write(out, formats.FORMATS[chosen_format](results))
    if per_caption is not None:
        formats.write(per_caption, formats.per_caption(results, per_caption))
    if report is not None:
        from tellapart.evaluation.formats import write_eval_page

        write_eval_page(results, report, typed_command(), results.extra["items"])
    if out is None and format is not None and chosen_format != "json":
        print(formats.FORMATS[chosen_format](results), end="")
    else:
        only = main_metrics(key for key in results.signatures if key != WORDS) if five else None
        shown = partial(results.table, only=only, signatures=True)
        show(results.to_json(), shown, as_json or (out is None and chosen_format == "json"))
    for label, path in (("result", out), ("per caption", per_caption), ("report", report)):
        if path is not None:
            say(f"{label}: {path}")
