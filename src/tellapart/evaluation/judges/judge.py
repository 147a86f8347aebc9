"""Uses a model as a judge: asks it questions about captions, and stores every answer in a ledger.

The ledger of `tellapart.boost` stores answers by prompt, model, picture and question, so an interrupted evaluation
never repeats a question. If an answer cannot be parsed, the question is asked once more. If that fails too, the judge
abstains; abstentions are counted. Next to the ledger, ``LEDGER.dates.json`` lists the dates on which each model was
asked. The dates are part of a metric's name, because the model behind a server can change.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from PIL import Image

from tellapart.boost.cost_estimate import estimate
from tellapart.boost.dry_run import missing_answers
from tellapart.boost.job import BoostJob
from tellapart.boost.ledger import Ledger
from tellapart.boost.types import Backend, Message, Request, Stage
from tellapart.errors import PictureError, TellapartError
from tellapart.evaluation.judges.prompts import Prompt, read_prompt
from tellapart.types import Item, Picture
from tellapart.utils.atomic_writes import replace_text
from tellapart.utils.messages import say
from tellapart.utils.progress import Progress
from tellapart.utils.strict_json import parse_json

RETRY_TEMPERATURE, RETRY_SEED = 0.7, 1  # at temperature 0, asking again would give the same answer
RETRY_STEP = 1000  # seeds of different repeats are this far apart, since each repeat can retry


@dataclass(frozen=True)
class Question:
    """One question: the values of the prompt's placeholders, and the picture to show, or None.

    read: parses an answer. Returns None if the answer is unusable.
    """

    id: str
    values: Mapping[str, str]
    read: Callable[[str], Any]
    picture: Picture | None = None


class NoPicture:
    """A placeholder for questions without a picture."""

    name = "no picture"

    def key(self) -> str:
        """Returns the same key for all instances."""
        return "none"

    def image(self) -> Image.Image:
        """Raises `PictureError`, because there is no picture."""
        raise PictureError("this question has no picture")


@dataclass
class Judge:
    """A backend with its ledger. For each prompt, ``questions`` counts the questions and ``abstained`` those without a
    usable answer.

    prompts: the folder of the user's own prompts.
    retry: options of `tellapart.boost.retries.RetryingBackend`.
    repeat: 0 uses the backend's settings. Repeats 1, 2, … ask the same questions again at temperature 0.7, each with
        its own seed and its own answers in the ledger.
    """

    backend: Backend
    ledger: Path
    prompts: Path | None = None
    retry: Mapping[str, Any] = field(default_factory=dict)
    abstained: Counter[str] = field(default_factory=Counter)
    questions: Counter[str] = field(default_factory=Counter)
    repeat: int = 0

    @property
    def model(self) -> str:
        """Returns the model's name without the backend prefix."""
        return self.backend.name.partition(":")[2].rsplit("/", 1)[-1] or self.backend.name

    def tag(self) -> str:
        """Returns the model and the dates for a metric's name: "gpt-4o 2026-11-22"."""
        days = self._dates().get(self.backend.name) or [_today()]
        return f"{self.model} {'…'.join(dict.fromkeys([days[0], days[-1]]))}"

    def prompt(self, name: str) -> Prompt:
        """Reads a prompt, from the user's folder if it is there."""
        return read_prompt(name, self.prompts)

    def ask(self, name: str, questions: Sequence[Question]) -> list[Any]:
        """Asks a prompt's questions and returns what each question's ``read`` returns, in order; None where the judge
        abstains.

        First prints the number of questions and, if the backend has prices, the cost. Raises `TellapartError` if the
        server fails. The answers received so far are stored, so repeating the call asks only the remaining questions.
        """
        question_of = {f"{number}:{question.id}": question for number, question in enumerate(questions)}
        items = [Item(id_, NoPicture() if own.picture is None else own.picture) for id_, own in question_of.items()]
        stage = self._stage(name, question_of)
        texts: list[str | None] = []
        unanswered = 0
        with Ledger.open(self.ledger) as ledger:
            self._announce(stage, items, ledger)
            job = BoostJob([stage], ledger, **self.retry)
            with Progress(len(items), f"asking {self.model} ({name})") as progress:
                for done in job.run(iter(items), progress.advance):
                    texts.append(done.texts.get(name))
                    unanswered += done.unanswered
        self.questions[name] += len(questions)
        self.abstained[name] += texts.count(None)
        if job.tally[name].asked:
            dates = self._dates()
            dates[self.backend.name] = sorted({*dates.get(self.backend.name, []), _today()})
            replace_text(self._dates_file, json.dumps(dates, indent=1) + "\n")
        if unanswered:
            raise TellapartError(
                f"{unanswered:,} of {len(texts):,} questions ({name}) were not answered ({job.failure}); "
                f"repeat the command to ask only these again; the other answers are stored in {self.ledger}"
            )
        return [None if text is None else own.read(text) for text, own in zip(texts, questions, strict=True)]

    def notes(self) -> list[str]:
        """Returns a note for each prompt on which the judge abstained."""
        return [
            f"{self.model} abstained from {count:,} of {self.questions[name]:,} questions ({name})"
            for name, count in self.abstained.items()
            if count
        ]

    def _stage(self, name: str, question_of: Mapping[str, Question]) -> Stage:
        prompt, step = self.prompt(name), RETRY_STEP * self.repeat

        def request(item: Item, temperature: float | None, seed: int | None) -> Request:
            question = question_of[item.id]
            messages = (Message("user", prompt.fill(question.values)),)
            return Request(messages, question.picture, temperature, prompt.max_tokens, seed=seed)

        first = (RETRY_TEMPERATURE, step) if self.repeat else (None, None)
        return Stage(
            name,
            self.backend,
            prompt.text,
            lambda item, _: request(item, *first),
            lambda item, _, text: "unreadable" if question_of[item.id].read(text) is None else None,
            lambda item, _, bad: request(item, RETRY_TEMPERATURE, RETRY_SEED + step),
        )

    def _announce(self, stage: Stage, items: Sequence[Item], ledger: Ledger) -> None:
        """Prints the number of new requests, their tokens, and the expected and maximum cost."""
        if missing := missing_answers([stage], items, ledger):
            new, again = ([each.request for each in missing if each.attempt == attempt] for attempt in (0, 1))
            cost = estimate(new, again, self.backend)
            say(f"{stage.name} by {self.model}: {cost}; {len(items) - len(new):,} answers are reused")

    def _dates(self) -> dict[str, list[str]]:
        try:
            value = parse_json(self._dates_file.read_text(encoding="utf-8"))
        except (OSError, ValueError):
            return {}
        return {str(name): sorted(map(str, days)) for name, days in value.items()} if isinstance(value, dict) else {}

    @property
    def _dates_file(self) -> Path:
        return self.ledger.with_name(f"{self.ledger.name}.dates.json")


def _today() -> str:
    return datetime.now(UTC).date().isoformat()
