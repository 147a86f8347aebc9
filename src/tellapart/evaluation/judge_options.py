"""The options of commands that ask a judge."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from tellapart.errors import UsageError
from tellapart.evaluation.judges.judge import Judge
from tellapart.evaluation.judges.prompts import check_folder

LEDGER = Path("judge.ledger.jsonl")


@dataclass(frozen=True)
class JudgeOptions:
    """The options of commands that use a judge. Files are opened only when needed.

    Args:
        llm_judge: Judge model: openai:MODEL@URL (API key from the environment), or local:FOLDER.
        ledger: File that stores the judge's answers for reuse.
        prompts: Folder of custom prompts for the judge: clair.txt, arena.txt, …
    """

    llm_judge: str | None = None
    ledger: Path = LEDGER
    prompts: Path | None = None

    def open(self) -> Judge | None:
        """Returns the judge, or None if no judge is given. Raises `UsageError`."""
        if self.llm_judge is None:
            if self.prompts is not None:
                raise UsageError("prompts requires a judge; add --llm-judge openai:MODEL@URL")
            return None
        from tellapart.boost.backends import open_backend

        check_folder(self.prompts)
        return Judge(open_backend(self.llm_judge), self.ledger, self.prompts)
