"""An evaluation's settings. The command line is generated from them, and `evaluate` accepts them as arguments.

Each field is an option of ``tellapart eval`` (if its class lists it under ``Args``) or a key for ``--set KEY=VALUE``
(if listed under ``Keys``).
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from importlib import import_module
from pathlib import Path
from typing import Annotated, Any, ClassVar, get_type_hints

import typer
from pydantic import TypeAdapter, ValidationError

from tellapart.errors import UsageError, nearest
from tellapart.evaluation.judge_options import LEDGER, JudgeOptions
from tellapart.utils.validation_errors import validation_message


def metric_names(incomplete: str) -> list[str]:
    """Shell completion for the last metric name in a comma-separated list."""
    metrics = import_module("tellapart.metrics.registry").METRICS  # imported late so that completion stays fast
    before, comma, begun = incomplete.rpartition(",")
    return [before + comma + name for name in ("all", "list", *metrics) if name.startswith(begun)]


@dataclass(frozen=True, kw_only=True)
class EvalSettings:
    """Settings shared by the command line (`EvalOptions`) and the Python API (`EvalInputs`).

    By default, all metrics that the inputs allow are computed (`tellapart.evaluation.chosen_metrics.choose`). ``human``
    is the "first" reference (paper 3), a "random" one (paper 1), or the "mean" over all references (paper 2). Each
    reference is scored against the picture's other references. Raises `UsageError` for an invalid value.

    Args:
        metrics: Comma-separated metrics; 'list' lists all, 'all' computes every metric that the inputs allow. Default:
            five main metrics.
        human: Score the human references as a system: first, random, or mean.
        resamples: Number of bootstrap resamples.
        seed: Random seed for the bootstrap and for shuffled pools.
        correction: Correction of p-values for multiple comparisons (all pairs and metrics): none or holm.

    Keys:
        chance: add random choice as a system: true or false
        lookalike: number of pictures in a look-alike set
        long_texts: how to handle captions that exceed the scorer's window: truncate, or sentences (score each sentence)
        emscore_idf: IDF weights for EMScore's tokens: from references or captions
        words: how many of each system's most characteristic adjectives and nouns to show
        pairs: paired tests: first (each system against the first) or all
    """

    metrics: Annotated[list[str] | None, typer.Option(autocompletion=metric_names)] = None
    human: str | None = None
    chance: bool = False
    resamples: Annotated[int, typer.Option(min=1)] = 1000
    seed: Annotated[int, typer.Option(min=0)] = 0
    lookalike: int = 10
    long_texts: str = "truncate"
    emscore_idf: str | None = None
    words: int = 0
    pairs: str = "first"
    correction: str = "none"

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

    Each caption file is a system and is named after the file. The references of several files are joined by id; without
    such files, those of the data are used. With ``allow_missing``, two files must still share at least ``min_overlap``
    of the ids, as a fraction of the larger file's ids. Distractors compete with each caption's own picture. For the
    ``precision`` of models, ``auto`` means fp32 (`tellapart.models.precision`).

    Args:
        captions: Caption file, one per system: JSON, JSONL, CSV, Parquet, text, … Repeatable.
        references: Reference captions, in any layout that --captions accepts. Repeatable.
        data: Folder of pictures, or a data set as kind:path?split=test.
        scorer: Scorer: folder, run, hub name, or 'scenes'.
        eval_scorers: Held-out scorer, to detect reward hacking. Repeatable.
        allow_missing: Score only the pictures that have a caption in every file.
        bags: Candidate sets: bags.jsonl, TrueMatch's 3.json, ImageCoDe's JSON. Repeatable.
        distractors: Additional candidate pictures, as kind:path.
        queries: Search queries for each picture (search metrics).
        llm_judge: Judge model: openai:MODEL@URL (API key from the environment), or local:FOLDER.

    Keys:
        min_overlap: minimum fraction of ids that two files must share
        language_model: causal language model for perplexity: a folder or hub name
        bertscore: text encoder for BERTScore: a folder or a hub name such as roberta-large
        query_encoder: sentence encoder for queries and capture_soft: a folder or hub name
        synonyms: synonym file for CHAIR and facts, in the layout of CHAIR's synonyms.txt
        instances: COCO's instances_*.json for CHAIR
        questions: CaptionQA's questions: {picture: [{question, choices, answer}]}
        ledger: file that stores the judge's answers for reuse
        prompts: folder of custom prompts for the judge
    """

    captions: list[Path] | None = None
    references: list[Path] | None = None
    data: str | None = None
    scorer: str | None = None
    eval_scorers: Annotated[list[str] | None, typer.Option("--eval-scorer")] = None
    allow_missing: bool = False
    bags: list[Path] | None = None
    distractors: str | None = None
    queries: Path | None = None
    llm_judge: str | None = None
    min_overlap: float = 0.5
    language_model: str | None = None
    bertscore: str | None = None
    query_encoder: str | None = None
    synonyms: Path | None = None
    instances: Path | None = None
    questions: Path | None = None
    ledger: Path = LEDGER
    prompts: Path | None = None
    device: str = "auto"
    precision: str = "auto"

    @property
    def models(self) -> list[str]:
        """Returns the names of all models except judges."""
        models = (self.scorer, *(self.eval_scorers or ()), self.language_model, self.bertscore, self.query_encoder)
        return [model for model in models if model is not None]

    @property
    def judge(self) -> JudgeOptions:
        """Returns the judge's model and files."""
        return JudgeOptions(self.llm_judge, self.ledger, self.prompts)


@dataclass(frozen=True)
class EvalOptions(EvalSettings, EvalFiles):
    """The options of ``tellapart eval``."""

    @classmethod
    def keys(cls) -> dict[str, tuple[Any, str]]:
        """Returns the keys that ``--set`` accepts, with their types and help."""
        sections = [str(each.__doc__).partition("    Keys:\n")[2] for each in (EvalFiles, EvalSettings)]
        help_of = dict(re.findall(r"^ +(\w+): (.*)", "".join(sections), re.MULTILINE))
        hints = get_type_hints(cls)
        return {name: (hints[name], help_of[name]) for name in hints if name in help_of}

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
                raise UsageError(f"--set {assignment}: {validation_message(error)}") from error
        return replace(self, **values)
