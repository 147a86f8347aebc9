"""An evaluation's settings. The command line is generated from them, and `evaluate` accepts them as arguments.

Each field is an option of ``tellapart eval`` (if annotated with `typer.Option`) or a key for ``--set KEY=VALUE`` (if
annotated with a line of help).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from importlib import import_module
from pathlib import Path
from typing import Annotated, Any, ClassVar, get_type_hints

import typer
from pydantic import TypeAdapter, ValidationError

from tellapart.errors import UsageError, nearest
from tellapart.evaluation.judge_inputs import LEDGER, JudgeInputs


def metric_names(incomplete: str) -> list[str]:
    """Shell completion for the last metric name in a comma-separated list."""
    metrics = import_module("tellapart.metrics.registry").METRICS  # imported late so that completion stays fast
    before, comma, begun = incomplete.rpartition(",")
    return [before + comma + name for name in ("all", "list", *metrics) if name.startswith(begun)]


@dataclass(frozen=True, kw_only=True)
class EvalSettings:
    """Settings shared by the command line (`EvalOptions`) and the Python API (`EvalInputs`).

    metrics: by default, all metrics that the inputs allow (`tellapart.evaluation.chosen_metrics.choose`).
    human: score a reference as a system: the "first" (paper 3), a "random" one (paper 1), or the "mean" over all
        references (paper 2). Each reference is scored against the picture's other references.

    Raises `UsageError` for an invalid value.
    """

    metrics: Annotated[
        list[str] | None,
        typer.Option(
            help="Comma-separated metrics; 'list' lists all, 'all' computes every metric that the inputs allow. "
            "Default: five main metrics.",
            autocompletion=metric_names,
        ),
    ] = None
    human: Annotated[
        str | None, typer.Option(help="Score the human references as a system: first, random, or mean.")
    ] = None
    chance: Annotated[bool, "add random choice as a system: true or false"] = False
    resamples: Annotated[int, typer.Option(min=1, help="Number of bootstrap resamples.")] = 1000
    seed: Annotated[int, typer.Option(min=0, help="Random seed for the bootstrap and for shuffled pools.")] = 0
    lookalike: Annotated[int, "number of pictures in a look-alike set"] = 10
    long_texts: Annotated[
        str, "how to handle captions that exceed the scorer's window: truncate, or sentences (score each sentence)"
    ] = "truncate"
    emscore_idf: Annotated[str | None, "IDF weights for EMScore's tokens: from references or captions"] = None
    words: Annotated[int, "how many of each system's most characteristic adjectives and nouns to show"] = 0
    pairs: Annotated[str, "paired tests: first (each system against the first) or all"] = "first"
    correction: Annotated[
        str, typer.Option(help="Correction of p-values for multiple comparisons (all pairs and metrics): none or holm.")
    ] = "none"

    least: ClassVar = {"resamples": 1, "lookalike": 2, "words": 0}
    choices: ClassVar[dict[str, tuple[str | None, ...]]] = {
        "pairs": ("first", "all"),
        "correction": ("none", "holm"),
        "long_texts": ("truncate", "sentences"),
        "emscore_idf": (None, "references", "captions"),
    }

    def __post_init__(self) -> None:
        """Checks the values."""
        for name, least in self.least.items():
            if (value := getattr(self, name)) < least:
                raise UsageError(f"{name} is {value}; expected at least {least}")
        for name, known in self.choices.items():
            if (value := getattr(self, name)) not in known:
                raise UsageError(f"{name} is '{value}'; expected one of {', '.join(filter(None, known))}")

    def settings(self) -> dict[str, Any]:
        """Returns only the fields that `EvalSettings` defines, without those of subclasses."""
        return {each.name: getattr(self, each.name) for each in fields(EvalSettings)}


@dataclass(frozen=True)
class EvalFiles:
    """Files, specifications and model names. Creating an instance opens nothing.

    captions: caption files. Each file is a system and is named after the file.
    references: one or more files, whose references are joined by id.
    data: a specification such as ``coco:FOLDER?split=test``. Its references are used if ``references`` is not given.
    scorer, eval_scorers, language_model, bertscore: model folders or names.
    allow_missing: score only pictures that have captions from all systems. Two files must still share at least
        ``min_overlap`` of the ids, as a fraction of the larger file's ids.
    bags: files of candidate sets (`tellapart.evaluation.file_sets`).
    distractors: the specification of additional pictures, which compete with each caption's own picture.
    synonyms: a file of objects and their synonyms in CHAIR's layout. instances: COCO's ``instances_*.json``.
    device, precision: where and in which precision models run; here, ``auto`` means fp32 (`tellapart.models.devices`).
    """

    captions: Annotated[
        list[Path] | None,
        typer.Option(help="Caption file, one per system: JSON, JSONL, CSV, Parquet, text, … Repeatable."),
    ] = None
    references: Annotated[
        list[Path] | None, typer.Option(help="Reference captions, in any layout that --captions accepts. Repeatable.")
    ] = None
    data: Annotated[str | None, typer.Option(help="Folder of pictures, or a data set as kind:path?split=test.")] = None
    scorer: Annotated[str | None, typer.Option(help="Scorer: folder, run, hub name, or 'scenes'.")] = None
    eval_scorers: Annotated[
        list[str] | None,
        typer.Option("--eval-scorer", help="Held-out scorer, to detect reward hacking. Repeatable."),
    ] = None
    allow_missing: Annotated[
        bool, typer.Option("--allow-missing", help="Score only the pictures that have a caption in every file.")
    ] = False
    bags: Annotated[
        list[Path] | None,
        typer.Option(help="Candidate sets: bags.jsonl, TrueMatch's 3.json, ImageCoDe's JSON. Repeatable."),
    ] = None
    distractors: Annotated[str | None, typer.Option(help="Additional candidate pictures, as kind:path.")] = None
    queries: Annotated[Path | None, typer.Option(help="Search queries for each picture (search metrics).")] = None
    llm_judge: Annotated[
        str | None,
        typer.Option(help="Judge model: openai:MODEL@URL (API key from the environment), or local:FOLDER."),
    ] = None
    min_overlap: Annotated[float, "minimum fraction of ids that two files must share"] = 0.5
    language_model: Annotated[str | None, "causal language model for perplexity: a folder or hub name"] = None
    bertscore: Annotated[str | None, "text encoder for BERTScore: a folder or a hub name such as roberta-large"] = None
    query_encoder: Annotated[str | None, "sentence encoder for queries and capture_soft: a folder or hub name"] = None
    synonyms: Annotated[Path | None, "synonym file for CHAIR and facts, in the layout of CHAIR's synonyms.txt"] = None
    instances: Annotated[Path | None, "COCO's instances_*.json for CHAIR"] = None
    questions: Annotated[Path | None, "CaptionQA's questions: {picture: [{question, choices, answer}]}"] = None
    ledger: Annotated[Path, "file that stores the judge's answers for reuse"] = LEDGER
    prompts: Annotated[Path | None, "folder of custom prompts for the judge"] = None
    device: str = "auto"
    precision: str = "auto"

    @property
    def models(self) -> list[str]:
        """Returns the names of all models except judges."""
        models = (self.scorer, *(self.eval_scorers or ()), self.language_model, self.bertscore, self.query_encoder)
        return [model for model in models if model is not None]

    @property
    def judge(self) -> JudgeInputs:
        """Returns the judge's model and files."""
        return JudgeInputs(self.llm_judge, self.ledger, self.prompts)


@dataclass(frozen=True)
class EvalOptions(EvalSettings, EvalFiles):
    """The options of ``tellapart eval``."""

    @classmethod
    def keys(cls) -> dict[str, tuple[Any, str]]:
        """Returns the keys that ``--set`` accepts, with their types and help."""
        hints = get_type_hints(cls, include_extras=True)
        help_of = {name: getattr(hint, "__metadata__", (None,))[0] for name, hint in hints.items()}
        return {name: (hints[name].__origin__, text) for name, text in help_of.items() if isinstance(text, str)}

    def with_keys(self, assignments: Sequence[str]) -> EvalOptions:
        """Returns the options after applying ``--set KEY=VALUE`` assignments. Raises `UsageError`."""
        values: dict[str, Any] = {}
        known = self.keys()
        for assignment in assignments:
            name, equals, text = assignment.partition("=")
            if not equals or name not in known:
                raise UsageError(f"--set {assignment}: expected KEY=VALUE{nearest(name, known)}")
            if name in values:
                raise UsageError(f"--set {name} is given twice; remove one of them")
            try:
                values[name] = TypeAdapter(known[name][0]).validate_python(text)
            except ValidationError as error:
                raise UsageError(f"--set {assignment}: {error.errors()[0]['msg']}") from error
        return replace(self, **values)
