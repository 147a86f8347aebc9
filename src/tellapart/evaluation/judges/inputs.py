"""A judge for an evaluation: its specification, its ledger and prompts, and CaptionQA's questions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING

from tellapart.errors import UsageError

if TYPE_CHECKING:
    from tellapart.evaluation.judges.judge import Judge
    from tellapart.evaluation.judges.measures import ChoiceQuestion

LEDGER = Path("judge.ledger.jsonl")  # in the folder of the command


@dataclass(frozen=True)
class JudgeInputs:
    """What the command line says of a judge; nothing is opened or read before it is needed."""

    spec: str | None = None
    ledger: Path = LEDGER
    prompts: Path | None = None
    questions: Path | None = None
    in_flight: int = 16

    def open(self) -> Judge | None:
        """The judge; None where none is named. Raises `UsageError`."""
        if self.spec is None:
            if self.prompts is not None:
                raise UsageError("--prompts are of a judge; add --llm-judge openai:MODEL@URL")
            return None
        from tellapart.boost.backends import open_backend
        from tellapart.evaluation.judges.judge import Judge
        from tellapart.evaluation.judges.prompts import check_folder

        check_folder(self.prompts)
        return Judge(open_backend(self.spec), self.ledger, self.prompts, self.in_flight)

    def read_questions(self, ids: Sequence[str]) -> Mapping[str, Sequence[ChoiceQuestion]]:
        """CaptionQA's questions of the pictures by id; a picture may go by its file's name there."""
        if self.questions is None:
            return {}
        from tellapart.evaluation.judges.measures import read_questions

        found = read_questions(self.questions)
        by_stem = {PurePosixPath(picture).stem: own for picture, own in found.items()}
        matched = {id_: own for id_ in ids if (own := found.get(id_) or by_stem.get(PurePosixPath(id_).stem))}
        if not matched:
            first = next(iter(found))
            raise UsageError(f"{self.questions}: none of its pictures (such as '{first}') has a caption")
        return matched
