"""The options of ``tellapart eval``: one object, from which the command line is made and which `run_eval` reads."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Annotated

import typer

from tellapart.errors import UsageError

if TYPE_CHECKING:
    from tellapart.evaluation.judges.judge import ChoiceQuestion, Judge


def metric_names(incomplete: str) -> list[str]:
    """Completes the names of metrics in a shell, the last of several with commas between them."""
    from tellapart.metrics.registry import METRICS

    before, comma, begun = incomplete.rpartition(",")
    return [before + comma + name for name in ("all", "list", *METRICS) if name.startswith(begun)]


LEDGER = Path("judge.ledger.jsonl")  # in the folder of the command


@dataclass(frozen=True)
class JudgeInputs:
    """Options of a judge and CaptionQA's questions; nothing is opened or read before it is needed."""

    spec: str | None = None
    ledger: Path = LEDGER
    prompts: Path | None = None
    questions: Path | None = None
    in_flight: int = 16

    def open(self) -> Judge | None:
        """Returns the judge; None where none is named. Raises `UsageError`."""
        if self.spec is None:
            if self.prompts is not None:
                raise UsageError("--prompts are of a judge; add --llm-judge openai:MODEL@URL")
            return None
        from tellapart.boost.backends import open_backend
        from tellapart.evaluation.judges.judge import Judge, check_folder

        check_folder(self.prompts)
        return Judge(open_backend(self.spec), self.ledger, self.prompts, self.in_flight)

    def read_questions(self, ids: Sequence[str]) -> Mapping[str, Sequence[ChoiceQuestion]]:
        """Returns CaptionQA's questions of the pictures by id; a picture may go by its file's name there."""
        if self.questions is None:
            return {}
        from tellapart.evaluation.judges.judge import read_questions

        found = read_questions(self.questions)
        by_stem = {PurePosixPath(picture).stem: own for picture, own in found.items()}
        matched = {id_: own for id_ in ids if (own := found.get(id_) or by_stem.get(PurePosixPath(id_).stem))}
        if not matched:
            first = next(iter(found))
            raise UsageError(f"{self.questions}: none of its pictures (such as '{first}') has a caption")
        return matched


@dataclass(frozen=True)
class EvalOptions:
    """Options of an evaluation: files, specifications and names, none of which is opened yet.

    ``captions`` are files, each a system named after its file. ``references`` is a file, or several whose references of
    an id are joined; ``data`` a specification such as ``coco:FOLDER?split=test`` (its references are used where no file
    is given). ``scorer``, ``eval_scorers``, ``language_model`` and ``bertscore`` are model folders or names. Without
    ``metrics`` all are computed that the inputs allow. ``allow_missing`` scores what all systems have; where two sides
    share less than ``min_overlap`` of the larger one's ids, that is an error all the same. ``bags`` are files of
    candidate sets (`tellapart.evaluation.test_sets`), ``distractors`` the specification of further pictures that every
    caption has to be told from. ``synonyms`` is a file of objects in the layout of CHAIR's, ``instances`` COCO's
    ``instances_*.json``. Models run on ``device`` in ``precision``, of which ``auto`` is fp32 here
    (`tellapart.models.devices`). For the rest see `tellapart.evaluation.evaluate.evaluate`.
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
    metrics: Annotated[
        list[str] | None,
        typer.Option(
            help="Names, with commas; 'list' shows them, 'all' is all that inputs allow. Default: five. Repeatable.",
            autocompletion=metric_names,
        ),
    ] = None
    eval_scorers: Annotated[
        list[str] | None,
        typer.Option("--eval-scorer", help="A held-out scorer, measured too: detects reward hacking. Repeatable."),
    ] = None
    human: Annotated[str | None, typer.Option(help="Score references as a system too: first, random, or mean.")] = None
    chance: Annotated[bool, typer.Option("--chance", help="Add random chance as a system.")] = False
    lookalike: Annotated[int, typer.Option(min=2, help="Pictures in a look-alike set.")] = 10
    resamples: Annotated[int, typer.Option(min=1, help="Bootstrap resamples behind each interval.")] = 1000
    seed: Annotated[int, typer.Option(min=0, help="Seed of the bootstrap, and of the shuffled pools of 100.")] = 0
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
    long_texts: Annotated[
        str, typer.Option(help="Captions beyond the scorer's window: truncate, or sentences (scored one by one).")
    ] = "truncate"
    emscore_idf: Annotated[
        str | None, typer.Option(help="Weight EMScore's tokens by IDF: of the references, or captions.")
    ] = None
    words: Annotated[
        int, typer.Option(min=0, metavar="N", help="Show each system's N most characteristic adjectives and nouns.")
    ] = 0
    bags: Annotated[
        list[Path] | None,
        typer.Option(help="Candidate sets: bags.jsonl, TrueMatch's 3.json, ImageCoDe's JSON. Repeatable."),
    ] = None
    distractors: Annotated[str | None, typer.Option(help="A hard pool: further candidate pictures, as kind:path.")] = (
        None
    )
    pairs: Annotated[
        str, typer.Option(help="Paired tests: first (each system against the first one), or all (every two).")
    ] = "first"
    correction: Annotated[str, typer.Option(help="Correct p-values over all pairs and metrics: none, or holm.")] = (
        "none"
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
    device: str = "auto"
    precision: str = "auto"
    judge: JudgeInputs | None = None
