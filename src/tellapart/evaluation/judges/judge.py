"""A model as a judge: answers questions about captions, and stores every answer in a ledger.

The ledger of `tellapart.boost` stores answers by prompt, model, picture and question, so an interrupted evaluation asks
nothing twice. An unparsable answer is retried once; if that fails, the judge abstains, which is counted. Next to the
ledger, ``LEDGER.dates.json`` has the dates on which each model was asked. They are part of a metric's name, because
a served model may change.
"""

from __future__ import annotations

import hashlib
import json
import random
import re
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from string import Template
from typing import Any

import numpy as np
from PIL import Image

from tellapart.boost.job import BoostJob, Tally, read_text
from tellapart.boost.ledger import Ledger, address
from tellapart.boost.load import estimate
from tellapart.boost.types import Backend, Message, Request, Stage
from tellapart.errors import PictureError, TellapartError, UsageError
from tellapart.evaluation.facts.verify import Verdict
from tellapart.language.english import word_set
from tellapart.types import Item, Picture
from tellapart.utils.files import replace_text
from tellapart.utils.messages import Progress, parse_json, say

# The judges' prompts: files with ``$placeholders``, from the package or the user.

# Maximum answer tokens by name. A prompt must have the same placeholders as the package's prompt.
PROMPTS = {
    "clair": 256,
    "dcscore_units": 2048,
    "dcscore_verify": 2048,
    "dcscore_match": 2048,
    "rating": 512,
    "ratings": 512,
    "arena": 512,
    "captionqa": 64,
    "checklist": 2048,
}
_OURS = Path(__file__).parent / "texts"


@dataclass(frozen=True)
class Prompt:
    """The text of a prompt. ``own``: whether it is the user's."""

    name: str
    text: str
    max_tokens: int
    own: bool = False

    def fill(self, values: Mapping[str, str]) -> str:
        """Returns the text with its placeholders replaced by the unmodified values."""
        return Template(self.text).substitute(values).strip()

    @property
    def signature(self) -> str:
        """Identifies the prompt and its origin, as part of a metric's signature."""
        digest = hashlib.blake2b(self.text.encode(), digest_size=4).hexdigest()
        return f"prompt:{'own' if self.own else 'tellapart'}@{digest}"


def read_prompt(name: str, folder: Path | None = None) -> Prompt:
    """Reads ``NAME.txt`` from a folder, else from the package. Raises `UsageError` for a missing placeholder."""
    ours = _OURS / f"{name}.txt"
    own = folder is not None and (folder / ours.name).is_file()
    path = folder / ours.name if folder is not None and own else ours
    text = path.read_text(encoding="utf-8")
    found, places = Template(text).get_identifiers(), Template(ours.read_text(encoding="utf-8")).get_identifiers()
    if set(found) != set(places):
        raise UsageError(
            f"{path}: has the places {', '.join(f'${place}' for place in sorted(found)) or 'none'}; expected "
            f"{', '.join(f'${place}' for place in places)} (a dollar sign itself is $$)"
        )
    return Prompt(name, text, PROMPTS[name], own)


def check_folder(folder: Path | None) -> None:
    """Raises `UsageError` for a folder that has none of our prompts."""
    if folder is not None and not any((folder / f"{name}.txt").is_file() for name in PROMPTS):
        raise UsageError(f"{folder}: has none of {', '.join(f'{name}.txt' for name in PROMPTS)}")


# Parsers of a judge's answer: JSON, a number, a letter.

_LETTER = re.compile(r"\b([A-Z])\b")
_LED = re.compile(r"^\W*(?:[Aa]nswer\W*)?([A-Z])[.)]\W*\w")  # "B. A red car", which repeats the option
_NUMBER = re.compile(r"-?\d+(?:\.\d+)?")


def json_in(text: str) -> Any:
    """Returns the first JSON object or list in an answer, ignoring other text and code fences, or None."""
    decoder = json.JSONDecoder()
    for match in re.finditer(r"[\[{]", text):
        try:
            return decoder.raw_decode(text[match.start() :])[0]
        except (ValueError, RecursionError):
            continue
    return None


def number_in(text: str, low: float, high: float, key: str = "score") -> float | None:
    """Returns the number under ``key``, else the only number in the answer; None if outside ``low`` … ``high``.

    Finds ``key`` in damaged JSON, too. Several numbers without a key are not a valid answer.
    """
    value = json_in(text)
    found = value.get(key) if isinstance(value, dict) else None
    if isinstance(found, bool) or not isinstance(found, int | float | str):
        rest = text if found is None else ""
        named = re.search(rf'"{re.escape(key)}"\W*?(-?\d+(?:\.\d+)?)', rest)
        numbers = _NUMBER.findall(re.sub(r"(?<=\d)\s*(?:/|(?:out )?of)\s*\d+", "", rest))  # "85/100" is 85
        found = named[1] if named else numbers[0] if len(numbers) == 1 else None
    try:
        number = float(found) if found is not None else None
    except ValueError:
        return None
    return number if number is not None and low <= number <= high else None


def strings_in(text: str) -> list[str] | None:
    """Parses a list of distinct texts, in order; None if the answer is not such a list."""
    value = json_in(text)
    if not isinstance(value, list) or not all(isinstance(part, str) for part in value):
        return None
    return list(dict.fromkeys(part.strip() for part in value if part.strip()))


def flags_in(text: str, count: int) -> list[bool] | None:
    """Parses a list of ``count`` booleans; None if the answer is not such a list."""
    value = json_in(text)
    whole = isinstance(value, list) and len(value) == count and all(isinstance(part, bool) for part in value)
    return value if whole else None


def places_in(text: str, count: int, most: int) -> list[int] | None:
    """Parses a list of ``count`` integers from 0 to ``most``; None if the answer is not such a list."""
    value = json_in(text)
    if not isinstance(value, list) or len(value) != count:
        return None
    return value if all(type(part) is int and 0 <= part <= most for part in value) else None


def letter_in(text: str, options: int) -> int | None:
    """Returns the index of the option that an answer names by its letter, or None.

    The last line takes precedence, because models that explain themselves end with the letter.
    """
    lines = [line for line in text.strip().splitlines() if line.strip()]
    for line in reversed(lines):
        line = line.upper() if len(line) <= 4 else line
        led = _LED.match(line)
        letters = [led[1]] if led else _LETTER.findall(line)
        if found := [place for letter in letters if (place := ord(letter) - ord("A")) < options]:
            return found[-1]
    return None


RETRY_TEMPERATURE, RETRY_SEED = 0.7, 1  # at temperature 0 the same question gets the same answer
RETRY_STEP = 1000  # between the seeds of repeats, each of which may retry
Check = Callable[[str], bool]  # whether an answer can be parsed


@dataclass(frozen=True)
class Question:
    """One question: the values of the prompt's placeholders, and the picture shown with it, if any."""

    id: str
    values: Mapping[str, str]
    picture: Picture | None = None


class NoPicture:
    """Placeholder for questions without a picture."""

    name = "no picture"

    def key(self) -> str:
        """Returns the same key for all instances."""
        return "none"

    def image(self) -> Image.Image:
        """Raises `PictureError`, because there is no picture."""
        raise PictureError("the question has no picture")


@dataclass
class Judge:
    """A backend with its ledger. ``abstained`` counts questions without a usable answer, ``tally`` all, by prompt.

    repeat: 0 asks with the backend's settings; 1, 2, … ask the same questions again at temperature 0.7, each with its
    own seed and its own answers in the ledger.
    retry: options of `tellapart.boost.retries.RetryingBackend`.
    """

    backend: Backend
    ledger: Path
    prompts: Path | None = None
    in_flight: int = 16
    retry: Mapping[str, Any] = field(default_factory=dict)
    abstained: Counter[str] = field(default_factory=Counter)
    questions: Counter[str] = field(default_factory=Counter)
    tally: dict[str, Tally] = field(default_factory=dict)
    repeat: int = 0

    @property
    def model(self) -> str:
        """Returns the model's name without the kind of its backend."""
        return self.backend.name.partition(":")[2].rsplit("/", 1)[-1] or self.backend.name

    def tag(self) -> str:
        """Returns model and dates, as in a metric's name: "gpt-4o 2026-11-22"."""
        days = self._dates().get(self.backend.name, [])
        when = days[0] if len(days) == 1 else f"{days[0]}…{days[-1]}" if days else _today()
        return f"{self.model} {when}"

    def ask(self, prompt: Prompt, questions: Sequence[Question], usable: Check) -> list[str | None]:
        """Returns the answer to each question in order, None where the judge abstains.

        Prints what it will ask, and the cost if the backend has prices. Raises `TellapartError` if the server fails;
        the answers so far are stored, and repeating the call asks only for the others.
        """
        items = {f"{number}:{question.id}": question for number, question in enumerate(questions)}
        stage = self._stage(prompt, items, usable)
        found: list[str | None] = []
        unanswered = 0
        with Ledger.open(self.ledger) as ledger:
            self._announce(prompt, stage, items, ledger)
            job = BoostJob([stage], ledger, self.in_flight, **self.retry)
            with Progress(len(items), f"asking {self.model} ({prompt.name})") as progress:
                for done in job.run((_item(id_, question) for id_, question in items.items()), progress.advance):
                    found.append(done.texts.get(stage.name))
                    unanswered += done.unanswered
        tally = job.tally[stage.name]
        self.tally[prompt.name] = tally
        self.questions[prompt.name] += len(questions)
        self.abstained[prompt.name] += sum(text is None for text in found)
        if tally.asked:
            self._note_date()
        if unanswered:
            raise TellapartError(
                f"{unanswered:,} of {len(found):,} questions ({prompt.name}) have no answer ({job.failure}); "
                f"the same command asks only these, the others are in {self.ledger}"
            )
        return found

    def notes(self) -> list[str]:
        """Returns notes on abstentions, if any."""
        return [
            f"{self.model} abstained from {count:,} of {self.questions[name]:,} questions ({name})"
            for name, count in self.abstained.items()
            if count
        ]

    def _stage(self, prompt: Prompt, items: Mapping[str, Question], usable: Check) -> Stage:
        def request(item: Item, temperature: float | None, seed: int | None) -> Request:
            question = items[item.id]
            messages = (Message("user", prompt.fill(question.values)),)
            return Request(messages, question.picture, temperature, prompt.max_tokens, seed=seed)

        first = (RETRY_TEMPERATURE, RETRY_STEP * self.repeat) if self.repeat else (None, None)
        return Stage(
            prompt.name,
            self.backend,
            prompt.text,
            lambda item, _: request(item, *first),
            lambda item, _, text: None if usable(text) else "cannot be read",
            lambda item, _, bad: request(item, RETRY_TEMPERATURE, RETRY_SEED + RETRY_STEP * self.repeat),
        )

    def _announce(self, prompt: Prompt, stage: Stage, items: Mapping[str, Question], ledger: Ledger) -> None:
        """Prints the number of new requests, their tokens, and the expected and maximum cost."""
        new: dict[str, Request] = {}
        again: dict[str, Request] = {}
        for id_, question in items.items():
            item = _item(id_, question)
            request = stage.build_request(item, {})
            try:
                key = address(stage, item, request, 0)
                if (kept := ledger.get(key)) is None:
                    new[key] = request
                elif (text := read_text(stage, item, {}, request, kept))[1] is not None:
                    second = stage.build_retry(item, {}, text[0])
                    if ledger.get(key := address(stage, item, second, 1)) is None:
                        again[key] = second
            except PictureError:
                continue
        if new or again:
            cost = estimate([*new.values()], [*again.values()], self.backend)
            say(f"{prompt.name} by {self.model}: {cost}; {len(items) - len(new):,} answers are kept")

    def _dates(self) -> dict[str, list[str]]:
        try:
            value = parse_json(self._dates_file.read_text(encoding="utf-8"))
        except (OSError, ValueError):
            return {}
        return {str(name): sorted(map(str, days)) for name, days in value.items()} if isinstance(value, dict) else {}

    def _note_date(self) -> None:
        dates = self._dates()
        dates[self.backend.name] = sorted({*dates.get(self.backend.name, []), _today()})
        replace_text(self._dates_file, json.dumps(dates, indent=1) + "\n")

    @property
    def _dates_file(self) -> Path:
        return self.ledger.with_name(f"{self.ledger.name}.dates.json")


def _item(id_: str, question: Question) -> Item:
    return Item(id_, question.picture if question.picture is not None else NoPicture())


def _today() -> str:
    return datetime.now(UTC).date().isoformat()


# Judge metrics of one caption: CLAIR, DCScore, a rating from 1 to 10, and question answering from the caption.
#
# All are NaN where the judge abstains. The prompts' wording is ours, or that of ``Judge.prompts``.

References = Sequence[Sequence[str]]
REQUEST = "Describe the following image."  # paper 1, appendix D
CANNOT = "Cannot answer from the caption"
_CANNOT_BONUS = 0.05
_YES_NO = word_set("is are was were do does did have has had can could will would should shall may might must")


def clair(judge: Judge, ids: Sequence[str], captions: Sequence[str], references: References) -> np.ndarray:
    """Computes CLAIR (Chan et al. 2023): how likely the caption describes the references' picture, 0..1, N."""
    questions = [
        Question(id_, {"candidate": f"- {caption}", "references": _bullets(texts)})
        for id_, caption, texts in zip(ids, captions, references, strict=True)
    ]
    read = partial(number_in, low=0, high=100)
    answers = judge.ask(read_prompt("clair", judge.prompts), questions, lambda text: read(text) is not None)
    return np.array([np.nan if text is None else (read(text) or 0.0) / 100 for text in answers])


def rating(
    judge: Judge,
    ids: Sequence[str],
    captions: Sequence[str],
    references: References,
    requests: Sequence[str] | None = None,
) -> np.ndarray:
    """Computes the GPT-4 rating of paper 1's appendix B, 1..10, N. The judge compares the caption with the first
    reference as another assistant's answer, by helpfulness, relevance, accuracy and detail (after Vicuna's evaluation).

    requests: the instruction that each caption answers, N; by default a request to describe the picture."""
    questions = _pairs(ids, captions, references, requests)
    read = partial(number_in, low=1, high=10)
    answers = judge.ask(read_prompt("rating", judge.prompts), questions, lambda text: read(text) is not None)
    return np.array([np.nan if text is None else read(text) for text in answers], dtype=float)


def ratings(
    judge: Judge,
    ids: Sequence[str],
    captions: Sequence[str],
    references: References,
    requests: Sequence[str] | None = None,
) -> np.ndarray:
    """Returns ratings N×2, 1..10, of the caption and the first reference, asked together as in Vicuna's evaluation."""

    def read(text: str) -> list[float] | None:
        found = json_in(text)
        both: list[Any] = [found.get(whose) for whose in ("candidate", "reference")] if isinstance(found, dict) else []
        right = bool(both) and all(type(each) in (int, float) and 1 <= each <= 10 for each in both)
        return [float(each) for each in both] if right else None

    questions = _pairs(ids, captions, references, requests)
    answers = judge.ask(read_prompt("ratings", judge.prompts), questions, lambda text: read(text) is not None)
    return np.array([(None if text is None else read(text)) or [np.nan, np.nan] for text in answers]).reshape(-1, 2)


def _pairs(
    ids: Sequence[str], captions: Sequence[str], references: References, requests: Sequence[str] | None
) -> list[Question]:
    return [
        Question(id_, {"request": request, "reference": texts[0], "candidate": caption})
        for id_, caption, texts, request in zip(
            ids, captions, references, requests or [REQUEST] * len(ids), strict=True
        )
    ]


def dcscore(
    judge: Judge, ids: Sequence[str], captions: Sequence[str], references: References, pictures: Sequence[Picture]
) -> list[Verdict | None]:
    """Computes DCScore (Ye et al. 2025): decomposes the caption into units of information, and verifies them against
    the picture and the references' units. None where the judge abstains at any step.

    Precision is true units / units. Recall is (Q + T) / (O + T), where O is the number of reference units, Q that of
    reference units stated by a true unit, and T that of true units that state none of them.
    """
    prompt = read_prompt("dcscore_units", judge.prompts)
    texts = [text for text in dict.fromkeys([*captions, *map(_bullets, references)]) if text.strip()]
    answers = judge.ask(prompt, [Question(str(n), {"caption": text}) for n, text in enumerate(texts)], _is_list)
    units_of: dict[str, list[str] | None] = {text: [] for text in captions if not text.strip()}
    units_of |= {
        text: None if answer is None else strings_in(answer) for text, answer in zip(texts, answers, strict=True)
    }
    rows = [
        (number, units, known)
        for number, (caption, own) in enumerate(zip(captions, references, strict=True))
        if (units := units_of[caption]) is not None and (known := units_of[_bullets(own)]) is not None
    ]
    asked = [row for row in rows if row[1]]
    verify = [
        Question(ids[n], {"units": _numbered(units), "references": _bullets(references[n])}, pictures[n])
        for n, units, _ in asked
    ]
    match = [
        Question(ids[n], {"units": _numbered(units), "facts": _numbered(known)}) for n, units, known in asked if known
    ]
    true = iter(judge.ask(read_prompt("dcscore_verify", judge.prompts), verify, _is_list))
    marked = iter(judge.ask(read_prompt("dcscore_match", judge.prompts), match, _is_list))
    found: list[Verdict | None] = [None] * len(captions)
    for number, units, known in rows:
        if not units:
            found[number] = Verdict(0, 0, len(known), 0)
            continue
        flags = flags_in(next(true) or "", len(units))
        places = places_in(next(marked) or "", len(known), len(units)) if known else []
        if flags is not None and places is not None:
            found[number] = _dcscore(flags, places)
    judge.abstained["dcscore"] += sum(verdict is None for verdict in found)
    judge.questions["dcscore"] += len(found)
    return found


def _dcscore(true: Sequence[bool], places: Sequence[int]) -> Verdict:
    matched = {place - 1 for place in places if place}
    stated = sum(1 for place in places if place and true[place - 1])
    beyond = sum(1 for number, flag in enumerate(true) if flag and number not in matched)
    return Verdict(len(true), sum(true), len(places) + beyond, stated + beyond)


@dataclass(frozen=True)
class ChoiceQuestion:
    """A question of CaptionQA with its choices and the index of the correct one."""

    question: str
    choices: tuple[str, ...]
    answer: int


def read_questions(path: Path) -> dict[str, list[ChoiceQuestion]]:
    """Reads CaptionQA's file ``{picture: [{"question", "choices", "answer"}]}``; the answer is one of the choices.

    Raises `UsageError` for anything else.
    """
    try:
        value = parse_json(path.read_text(encoding="utf-8"))
        found = {
            str(picture): [_question(path, str(picture), entry) for entry in entries]
            for picture, entries in value.items()
        }
    except OSError as error:
        raise UsageError(f"{path}: {error.strerror}; expected CaptionQA's questions") from None
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise UsageError(
            f"{path}: {type(error).__name__}: {error}; expected {{picture: [{{question, choices, answer}}]}}"
        ) from None
    if not any(found.values()):
        raise UsageError(f"{path}: has no question")
    return found


def _question(path: Path, picture: str, entry: Mapping[str, object]) -> ChoiceQuestion:
    given = entry["choices"]
    if not isinstance(given, list):
        raise TypeError("choices is no list")
    choices = tuple(str(choice["text"] if isinstance(choice, dict) else choice).strip() for choice in given)
    answer = str(entry["answer"]).strip()
    if answer not in choices or len(choices) < 2:
        raise UsageError(f"{path}: the answer '{answer}' about {picture} is none of the choices {', '.join(choices)}")
    return ChoiceQuestion(str(entry["question"]), choices, choices.index(answer))


def captionqa(
    judge: Judge,
    ids: Sequence[str],
    captions: Sequence[str],
    questions: Mapping[str, Sequence[ChoiceQuestion]],
    seed: int = 0,
) -> tuple[np.ndarray, np.ndarray]:
    """Computes CaptionQA (Yang et al. 2025), question answering from the caption only. Returns score N and accuracy N.

    A correct answer scores 1. "cannot answer from the caption", an option except for yes-no questions, scores
    1 / number of choices + 0.05. Choices are shuffled by ``seed``. NaN for a picture without a usable answer.
    """
    asked: list[Question] = []
    keys: list[tuple[int, ChoiceQuestion, list[str]]] = []
    for number, (id_, caption) in enumerate(zip(ids, captions, strict=True)):
        for place, question in enumerate(questions.get(id_, ())):
            options = [*question.choices, *(() if _is_yes_no(question) else (CANNOT,))]
            random.Random(f"{seed}/{id_}/{place}").shuffle(options)
            lines = "\n".join(f"{chr(ord('A') + n)}. {text}" for n, text in enumerate(options))
            values = {"caption": caption, "question": question.question, "options": lines}
            asked.append(Question(f"{id_}#{place}", values))
            keys.append((number, question, options))
    most = max((len(options) for *_, options in keys), default=0)
    prompt = read_prompt("captionqa", judge.prompts)
    answers = judge.ask(prompt, asked, lambda text: letter_in(text, most) is not None)
    score: list[list[float]] = [[] for _ in captions]
    right: list[list[float]] = [[] for _ in captions]
    for (number, question, options), text in zip(keys, answers, strict=True):
        picked = None if text is None else letter_in(text, len(options))
        if picked is None:
            continue
        correct = options[picked] == question.choices[question.answer]
        unknown = 1 / len(question.choices) + _CANNOT_BONUS if options[picked] == CANNOT else 0.0
        score[number].append(1.0 if correct else unknown)
        right[number].append(float(correct))
    return _means(score), _means(right)


ANSWERS = ("yes", "no", "not mentioned")


def answers_in(text: str, count: int) -> list[str] | None:
    """Parses a list of ``count`` of `ANSWERS`; None if the answer is not such a list."""
    value = json_in(text)
    if not isinstance(value, list) or len(value) != count:
        return None
    said = [str(part).strip().lower().replace("_", " ") for part in value]
    return said if set(said) <= set(ANSWERS) else None


def checklist(judge: Judge, ids: Sequence[str], captions: Sequence[str], facts: Sequence[Sequence[str]]) -> np.ndarray:
    """Lets a judge count a picture's facts that the caption states, contradicts and does not mention, N×3.

    Asks one question per caption, with all facts of its picture as a checklist (as in CAPEval, 2026). NaN where the
    judge abstains, zeros for a picture without facts.
    """
    prompt = read_prompt("checklist", judge.prompts)
    rows = [number for number, own in enumerate(facts) if own]
    questions = [
        Question(ids[n], {"caption": captions[n], "facts": _numbered(facts[n]), "count": str(len(facts[n]))})
        for n in rows
    ]
    answers = judge.ask(prompt, questions, _is_list)
    count_N3 = np.zeros((len(captions), len(ANSWERS)))
    unread = 0
    for number, text in zip(rows, answers, strict=True):
        said = None if text is None else answers_in(text, len(facts[number]))
        unread += text is not None and said is None
        count_N3[number] = np.nan if said is None else [said.count(answer) for answer in ANSWERS]
    judge.abstained[prompt.name] += unread
    return count_N3


def _is_yes_no(question: ChoiceQuestion) -> bool:
    words = {choice.lower() for choice in question.choices}
    return {"yes", "no"} <= words or question.question.lower().split(" ", 1)[0] in _YES_NO


def _means(values: Sequence[Sequence[float]]) -> np.ndarray:
    return np.array([np.mean(own) if own else np.nan for own in values])


def _is_list(text: str) -> bool:

    return isinstance(json_in(text), list)


def _bullets(texts: Sequence[str]) -> str:
    return "\n".join(f"- {text}" for text in texts)


def _numbered(texts: Sequence[str]) -> str:
    return "\n".join(f"{number}. {text}" for number, text in enumerate(texts, 1))
