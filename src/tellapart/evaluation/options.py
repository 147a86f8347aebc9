"""The settings of an evaluation, each spelled once: the command line is made of them, and `evaluate` takes them."""

from __future__ import annotations

from dataclasses import dataclass, fields
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from tellapart.errors import UsageError

if TYPE_CHECKING:
    from tellapart.evaluation.judges.judge import Judge

PAIRS = ("first", "all")
CORRECTIONS = ("none", "holm")
LONG_TEXTS = ("truncate", "sentences")
EMSCORE_IDF = ("references", "captions")


def metric_names(incomplete: str) -> list[str]:
    """Completes the names of metrics in a shell, the last of several with commas between them."""
    metrics = import_module("tellapart.metrics.registry").METRICS  # whose types are those of an evaluation's context
    before, comma, begun = incomplete.rpartition(",")
    return [before + comma + name for name in ("all", "list", *metrics) if name.startswith(begun)]


@dataclass(frozen=True)
class JudgeInputs:
    """The options of commands that ask a judge; nothing is opened before it is needed."""

    llm_judge: Annotated[
        str | None,
        typer.Option(help="The model that judges: openai:MODEL@URL (its key from the environment), or local:FOLDER."),
    ] = None
    ledger: Annotated[
        Path, typer.Option(help="Where the judge's answers are kept; what is there is not asked again.")
    ] = Path("judge.ledger.jsonl")
    prompts: Annotated[
        Path | None, typer.Option(help="A folder with prompts of your own for the judge: clair.txt, arena.txt, …")
    ] = None

    def open(self) -> Judge | None:
        """Returns the judge; None where none is named. Raises `UsageError`."""
        if self.llm_judge is None:
            if self.prompts is not None:
                raise UsageError("--prompts are of a judge; add --llm-judge openai:MODEL@URL")
            return None
        from tellapart.boost.backends import open_backend
        from tellapart.evaluation.judges.judge import Judge, check_folder

        check_folder(self.prompts)
        return Judge(open_backend(self.llm_judge), self.ledger, self.prompts)


@dataclass(frozen=True, kw_only=True)
class EvalSettings:
    """Says what is measured and how, for files of captions (`EvalOptions`) and for programs (`EvalInputs`).

    Without ``metrics`` all are computed that the inputs allow (`tellapart.evaluation.evaluate.choose`). ``human``
    scores the references as a system: the "first" (paper 3), a "random" one (paper 1), or the "mean" over all (paper
    2); it is left out of the references then. Raises `UsageError` for a value that is none.
    """

    metrics: Annotated[
        list[str] | None,
        typer.Option(
            help="Names, with commas; 'list' shows them, 'all' is all that inputs allow. Default: five. Repeatable.",
            autocompletion=metric_names,
        ),
    ] = None
    human: Annotated[str | None, typer.Option(help="Score references as a system too: first, random, or mean.")] = None
    chance: Annotated[bool, typer.Option("--chance", help="Add random chance as a system.")] = False
    lookalike: Annotated[int, typer.Option(min=2, help="Pictures in a look-alike set.")] = 10
    resamples: Annotated[int, typer.Option(min=1, help="Bootstrap resamples behind each interval.")] = 1000
    seed: Annotated[int, typer.Option(min=0, help="Seed of the bootstrap, and of the shuffled pools of 100.")] = 0
    long_texts: Annotated[
        str, typer.Option(help="Captions beyond the scorer's window: truncate, or sentences (scored one by one).")
    ] = "truncate"
    emscore_idf: Annotated[
        str | None, typer.Option(help="Weight EMScore's tokens by IDF: of the references, or captions.")
    ] = None
    words: Annotated[
        int, typer.Option(min=0, metavar="N", help="Show each system's N most characteristic adjectives and nouns.")
    ] = 0
    pairs: Annotated[
        str, typer.Option(help="Paired tests: first (each system against the first one), or all (every two).")
    ] = "first"
    correction: Annotated[str, typer.Option(help="Correct p-values over all pairs and metrics: none, or holm.")] = (
        "none"
    )

    def __post_init__(self) -> None:
        """Checks the values."""
        if self.resamples < 1 or self.lookalike < 2:
            raise UsageError(
                f"resamples is {self.resamples} and lookalike is {self.lookalike}; expected at least 1 and 2"
            )
        for option, value, known in (
            ("--pairs", self.pairs, PAIRS),
            ("--correction", self.correction, CORRECTIONS),
            ("--long-texts", self.long_texts, LONG_TEXTS),
            ("--emscore-idf", self.emscore_idf, (None, *EMSCORE_IDF)),
        ):
            if value not in known:
                raise UsageError(f"{option} is '{value}'; expected one of {', '.join(filter(None, known))}")

    def settings(self) -> dict[str, Any]:
        """Returns the settings alone, without what a subclass adds."""
        return {each.name: getattr(self, each.name) for each in fields(EvalSettings)}


@dataclass(frozen=True)
class EvalFiles:
    """Files, specifications and names, none of which is opened yet.

    ``captions`` are files, each a system named after its file. ``references`` is a file, or several whose references of
    an id are joined; ``data`` a specification such as ``coco:FOLDER?split=test`` (its references are used where no file
    is given). ``scorer``, ``eval_scorers``, ``language_model`` and ``bertscore`` are model folders or names.
    ``allow_missing`` scores what all systems have; where two sides share less than ``min_overlap`` of the larger one's
    ids, that is an error all the same. ``bags`` are files of candidate sets (`tellapart.evaluation.test_sets`),
    ``distractors`` the specification of further pictures that every caption has to be told from. ``synonyms`` is a file
    of objects in the layout of CHAIR's, ``instances`` COCO's ``instances_*.json``. Models run on ``device`` in
    ``precision``, of which ``auto`` is fp32 here (`tellapart.models.devices`).
    """

    captions: Annotated[
        list[Path] | None,
        typer.Option(help="JSON, JSONL, CSV, Parquet, a caption a line, … (docs/data.md). Repeatable."),
    ] = None
    references: Annotated[
        list[Path] | None,
        typer.Option(
            help="References, in any layout of --captions or Karpathy's. Several files are joined. Repeatable."
        ),
    ] = None
    data: Annotated[str | None, typer.Option(help="The pictures, as kind:path?split=test.")] = None
    scorer: Annotated[str | None, typer.Option(help="Scorer: folder, run, hub name, or 'scenes'.")] = None
    eval_scorers: Annotated[
        list[str] | None,
        typer.Option("--eval-scorer", help="A held-out scorer, measured too: detects reward hacking. Repeatable."),
    ] = None
    allow_missing: Annotated[bool, typer.Option("--allow-missing", help="Score the ids that all files have.")] = False
    min_overlap: Annotated[
        float, typer.Option(min=0, max=1, help="Refuse files that share a smaller part of their ids.")
    ] = 0.5
    language_model: Annotated[
        str | None, typer.Option(help="For perplexity: a causal language model, folder or hub name.")
    ] = None
    bertscore: Annotated[
        str | None, typer.Option(help="For BERTScore: a text encoder such as roberta-large, folder or hub name.")
    ] = None
    bags: Annotated[
        list[Path] | None,
        typer.Option(help="Candidate sets: bags.jsonl, TrueMatch's 3.json, ImageCoDe's JSON. Repeatable."),
    ] = None
    distractors: Annotated[str | None, typer.Option(help="A hard pool: further candidate pictures, as kind:path.")] = (
        None
    )
    synonyms: Annotated[
        Path | None, typer.Option(help="For CHAIR and facts: objects with their synonyms, as in CHAIR's synonyms.txt.")
    ] = None
    instances: Annotated[
        Path | None, typer.Option(help="For CHAIR: COCO's instances_*.json, whose objects count as there too.")
    ] = None
    queries: Annotated[
        Path | None, typer.Option(help="People's queries by picture: how often do the captions find them?")
    ] = None
    query_encoder: Annotated[
        str | None,
        typer.Option(help="A sentence encoder, folder or hub name: for --queries beside BM25, for capture_soft."),
    ] = None
    questions: Annotated[
        Path | None, typer.Option(help="For CaptionQA: questions by picture, {picture: [{question, choices, answer}]}.")
    ] = None
    device: str = "auto"
    precision: str = "auto"
    judge: JudgeInputs = JudgeInputs()


@dataclass(frozen=True)
class EvalOptions(EvalSettings, EvalFiles):
    """The options of ``tellapart eval``."""
