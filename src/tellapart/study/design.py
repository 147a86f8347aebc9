"""The design of studies: questions, settings, trials, blocks and the study's folder.

An answer has one option number per question. *Canonical* options do not depend on the display: for ``pick`` option 0 is
the target, for ``compare`` "first" is the first system's caption.

``study.toml`` has the researcher's decisions and texts. All of it except ``[recruitment]`` is stamped.

The folder of a study has its trials in ``items.json``, its settings in ``study.toml``, and pictures by content hash.

The *stamp* is a hash of everything that affects results: trials, texts, exclusion rule, analysis. It is stored with the
first participant and printed in the report, so that readers can check that nothing was decided afterwards.
"""

from __future__ import annotations

import hashlib
import json
import re
import secrets
import string
import tomllib
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict, Field, TypeAdapter, ValidationError, field_validator

from tellapart.errors import UsageError
from tellapart.utils.messages import parse_json

KINDS = ("pick", "rate", "compare")
SCALE = ("terrible", "poor", "fair", "good", "excellent")  # paper 1, Table 2: 1 to 5
ASPECTS = ("descriptiveness", "accuracy", "fluency")
MORE, WRONG = "more", "wrong"


@dataclass(frozen=True)
class StudyQuestion:
    """One question and its options in display order; options that are pictures have no words."""

    name: str
    text: str
    help: str = ""
    options: tuple[str, ...] = ()


PICK = StudyQuestion("picture", "Which picture does this description fit best?")
RATE = (
    StudyQuestion("descriptiveness", "Descriptiveness", "How much correct detail does it give?", SCALE),
    StudyQuestion("accuracy", "Accuracy", "Is everything that it says really in the picture?", SCALE),
    StudyQuestion("fluency", "Fluency", "Does it read like good English?", SCALE),
)
COMPARE = (
    StudyQuestion(MORE, "Which caption tells you more about the picture?", "", ("A", "About the same", "B")),
    StudyQuestion(WRONG, "Which caption says something wrong?", "", ("Neither", "A", "B", "Both")),
)
# Canonical to displayed options (and back) if the two captions are swapped.
FLIPPED = ((2, 1, 0), (0, 2, 1, 3))


def questions(kind: str) -> tuple[StudyQuestion, ...]:
    """Returns the questions of one item."""
    return {"pick": (PICK,), "rate": RATE, "compare": COMPARE}[kind]


def option_counts(kind: str, pictures: int) -> tuple[int, ...]:
    """Returns the number of options of each question."""
    return (pictures,) if kind == "pick" else tuple(len(question.options) for question in questions(kind))


INSTRUCTIONS = {
    "pick": (
        "You will see a description and several pictures that look alike. Choose the picture that the description fits "
        "best.",
        (
            "Some descriptions were written by a computer and may be vague or partly wrong. Always "
            "choose the picture that you find most plausible."
        ),
        (
            "There is no time limit. Some items are checks with an obvious answer; they show us that "
            "participants answer carefully."
        ),
    ),
    "rate": (
        ("You will see a picture and a caption. Rate the caption on three scales from 1 (terrible) to 5 (excellent)."),
        (
            "Descriptiveness: how much correct detail about the picture it gives. Accuracy: whether "
            "everything that it says is in the picture. Fluency: whether it reads like good English."
        ),
        (
            "A short caption can be accurate but say little; a long one can say a lot but be partly "
            "wrong. Rate the three scales independently of each other."
        ),
        (
            "There is no time limit. Some items are checks with an obvious answer; they show us that "
            "participants answer carefully."
        ),
    ),
    "compare": (
        (
            "You will see a picture and two captions, A and B. Choose the one that tells you more "
            "about the picture, and the one that says something wrong."
        ),
        "A caption that tells more may also be the one that is wrong: answer the two questions independently.",
        (
            "There is no time limit. Some items are checks with an obvious answer; they show us that "
            "participants answer carefully."
        ),
    ),
}
CONSENT = (
    "You are invited to take part in a research study about descriptions of pictures. Please read this page before you "
    "decide.",
    "What you do: {task} This takes about {minutes} minutes. {payment}",
    (
        "Pictures and descriptions come from public collections or were written by a computer, and "
        "may contain content that upsets you. You may stop at any time, without giving a reason, by "
        "closing the page or with the button “Leave”, which also lets you delete your answers."
    ),
    (
        "What we store: your answers, how long each one took and, if you came from a recruitment "
        "platform, the identifier that it gave you. We use the identifier only to pay you and delete "
        "it afterwards; we never publish it. We store no name, no address and nothing about your "
        "device. Your browser stores a random number, so that you can pause and continue later."
    ),
    ("We publish the answers without identifiers, together with the results, so that others can check them."),
)
TASKS = {
    "pick": "you read short descriptions and choose the picture that each one fits best.",
    "rate": "you read captions of pictures and rate each one.",
    "compare": "you read pairs of captions of the same picture and compare them.",
}
CHECK_CAPTION = "This is an attention check. Please choose {} ({}) for all three ratings."


FILE = "study.toml"
OPEN = "TODO"  # marks a text that the researcher has not written yet


class Section(BaseModel):
    """A table of study.toml; an unknown key is an error."""

    model_config = ConfigDict(extra="forbid", frozen=True)


class Consent(Section):
    """The researcher, the purpose, and the text of the consent page."""

    researcher: str
    institution: str
    contact: str
    ethics: str
    paragraphs: tuple[str, ...] = Field(min_length=1)


class Exclusion(Section):
    """The exclusion rule. Paper 3 excludes participants with more than one mistake on control items."""

    max_control_errors: int = Field(1, ge=0)
    min_median_seconds: float = Field(0.0, ge=0)
    max_same_answer: float = Field(1.0, gt=0, le=1)


class Sampling(Section):
    """The number of participants per block, and the replacement of participants."""

    raters: int = Field(ge=1)
    replace_excluded: bool = True
    screen_out_early: bool = False


class Analysis(Section):
    """The intervals of the report."""

    resamples: int = Field(2000, ge=100, le=100_000)
    confidence: float = Field(0.95, gt=0.5, lt=1)
    seed: int = Field(0, ge=0)


class Recruitment(Section):
    """Codes for the recruiting platform, and reservations of blocks. May change while the study runs."""

    id_parameter: str = "PROLIFIC_PID"
    id_pattern: str = r"[\w.@-]{1,100}"
    require_id: bool = False
    link_key: str = Field("", pattern=r"^[\w-]{0,100}$")
    starts_per_address: int = Field(30, ge=0)
    timeout_minutes: float = Field(90.0, gt=0)
    completed: str = ""
    screened_out: str = ""
    no_consent: str = ""
    return_url: str = ""

    @field_validator("id_pattern")
    @classmethod
    def _compiles(cls, pattern: str) -> str:
        try:
            re.compile(pattern)
        except re.error as error:
            raise ValueError(f"not a valid regular expression ({error})") from None
        return pattern

    @field_validator("return_url")
    @classmethod
    def _is_https(cls, url: str) -> str:
        if url and not re.fullmatch(r"https://[^\s\"'<>]+", url):
            raise ValueError("expected a URL that starts with https://")
        return url


class Settings(Section):
    """The whole of study.toml."""

    title: str
    instructions: tuple[str, ...] = Field(min_length=1)
    consent: Consent
    sampling: Sampling
    exclusion: Exclusion = Exclusion()
    analysis: Analysis = Analysis()
    recruitment: Recruitment = Recruitment()

    def stamped(self) -> dict[str, Any]:
        """Returns the settings that must not change after the first answer."""
        return self.model_dump(mode="json", exclude={"recruitment"})

    def unwritten(self) -> list[str]:
        """Returns the keys of ``[consent]``, and the title, that still contain `OPEN`."""
        texts = {"title": self.title, **{f"consent.{k}": str(v) for k, v in self.consent.model_dump().items()}}
        return [key for key, text in texts.items() if OPEN in text]


def read_settings(path: Path) -> Settings:
    """Reads study.toml. Raises `UsageError`, which names the key."""
    try:
        return Settings.model_validate(tomllib.loads(path.read_text(encoding="utf-8")))
    except FileNotFoundError:
        raise UsageError(f"{path}: file not found; see: tellapart study create --help") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise UsageError(f"{path}: invalid TOML ({error})") from None
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(map(str, first["loc"]))
        raise UsageError(f"{path}: {where}: {first['msg'].removeprefix('Value error, ')}") from None


def new_code() -> str:
    """Creates an unguessable completion code in Prolific's format."""
    return "C" + "".join(secrets.choice(string.ascii_uppercase + string.digits) for _ in range(7))


def settings_text(kind: str, *, title: str, raters: int, minutes: int, payment: str, writing: Sequence[str]) -> str:
    """Returns a new study.toml. writing: researcher, institution, contact, ethics; empty texts become `OPEN`."""
    researcher, institution, contact, ethics = (json.dumps(text or OPEN, ensure_ascii=False) for text in writing)
    paid = payment or f"{OPEN}: describe how participants are paid."
    consent = [text.format(task=TASKS[kind], minutes=minutes, payment=paid) for text in CONSENT]
    return f"""\
# Written by `tellapart study create`. Fill in everything marked {OPEN}, read the rest, and change what you
# need, before anybody takes part. All but [recruitment] is stamped (hashed) when the first participant begins.
title = {json.dumps(title or OPEN, ensure_ascii=False)}
instructions = {_lines(INSTRUCTIONS[kind])}

[consent]
researcher = {researcher}
institution = {institution}
contact = {contact}
ethics = {ethics}  # name of the board and approval number
paragraphs = {_lines(consent)}

[sampling]
raters = {raters}  # number of participants whose answers count, per block
replace_excluded = true  # give the block of an excluded participant to another participant
screen_out_early = false  # end a participation as soon as its exclusion is certain, with the code screened_out

[exclusion]  # decided before the study; the report lists everyone who is excluded
max_control_errors = 1  # exclude participants with more wrong control items (paper 3: 1)
min_median_seconds = 0.0  # exclude participants with a lower median time per item; 0: no limit
max_same_answer = 1.0  # exclude participants who give the same answer to a larger fraction of items; 1: no limit

[analysis]
resamples = 2000  # bootstrap resamples of participants and items
confidence = 0.95
seed = 0

[recruitment]  # not stamped: may change while the study runs
id_parameter = "PROLIFIC_PID"  # parameter of the link; MTurk: workerId
id_pattern = '[\\w.@-]{{1,100}}'  # format of identifiers; Prolific: '[0-9a-f]{{24}}'
link_key = "{secrets.token_urlsafe(9)}"  # &key=… in the link, required to begin; "": anyone can begin
starts_per_address = 30  # maximum number of participations that begin per hour and network address; 0: no limit
require_id = false  # true: only links with an identifier can begin
timeout_minutes = 90  # time without an answer after which the block goes to another participant
completed = "{new_code()}"
screened_out = "{new_code()}"  # the study is full, or the time has run out
no_consent = "{new_code()}"
return_url = ""  # the code follows it; Prolific: "https://app.prolific.com/submissions/complete?cc="
"""


def _lines(texts: Sequence[str]) -> str:
    return "[\n" + "".join(f"  {json.dumps(text, ensure_ascii=False)},\n" for text in texts) + "]"


FORMAT = 1
ITEMS, PICTURES = "items.json", "pictures"
ITEM, CONTROL, PRACTICE, EXAMPLE = "item", "control", "practice", "example"


@dataclass(frozen=True)
class Trial:
    """One screen, in canonical order.

    unit: id of the (target) picture.
    systems, captions: one each, two for ``compare``.
    pictures: file names; for ``pick`` the target first.
    expected: the options that pass for each question, None for any; only for controls, practice items and the example.
    feedback: explains the expected options.
    """

    role: str
    unit: str
    systems: tuple[str, ...]
    captions: tuple[str, ...]
    pictures: tuple[str, ...]
    expected: tuple[tuple[int, ...] | None, ...] = ()
    feedback: str = ""

    def passes(self, options: Sequence[int]) -> bool:
        """Returns whether canonical options are the expected ones."""
        return all(want is None or option in want for want, option in zip(self.expected, options, strict=True))


@dataclass(frozen=True)
class Place:
    """A trial as one participant sees it, with the displayed order of its options.

    slots: for ``pick``, the canonical picture at each displayed position.
    flip: for ``compare``, whether the captions are swapped.
    """

    trial: int
    slots: tuple[int, ...] = ()
    flip: bool = False


@dataclass(frozen=True)
class Study:
    """An existing study: its trials, the blocks that participants answer, and its settings.

    blocks: each block's trials and, for ``compare``, whether the captions are swapped for its first rater.
    """

    folder: Path
    id: str
    kind: str
    systems: tuple[str, ...]
    seed: int
    trials: tuple[Trial, ...]
    blocks: tuple[tuple[tuple[int, bool], ...], ...]
    made: dict[str, Any]
    settings: Settings

    @cached_property
    def of_role(self) -> dict[str, tuple[int, ...]]:
        """The trial numbers of each role."""
        roles = (ITEM, CONTROL, PRACTICE, EXAMPLE)
        return {role: tuple(n for n, trial in enumerate(self.trials) if trial.role == role) for role in roles}

    @cached_property
    def stamp(self) -> str:
        """The SHA-256 of everything that affects results."""
        return hashlib.sha256(canonical({"items": self.items_json(), "settings": self.settings.stamped()})).hexdigest()

    @property
    def quota(self) -> int:
        """The number of participants that the design requires."""
        return len(self.blocks) * self.settings.sampling.raters

    def items_json(self) -> dict[str, Any]:
        """Returns the content of items.json."""
        return {
            "format": FORMAT,
            "id": self.id,
            "kind": self.kind,
            "systems": self.systems,
            "seed": self.seed,
            "made": self.made,
            "blocks": self.blocks,
            "trials": [asdict(trial) for trial in self.trials],
        }

    def order(self, block: int, ordinal: int, seed: str) -> tuple[Place, ...]:
        """Returns the trials of a block's ``ordinal``-th rater in order: practice, then items with a control in each
        part. Depends only on the design and ``seed``, so the stored seed reproduces it. The order is by hash, so it
        does not depend on library versions.
        """
        practice = self.of_role[PRACTICE]
        items = shuffled(range(len(self.blocks[block])), seed, "items")
        controls = shuffled(self.of_role[CONTROL], seed, "controls")
        sequence: list[tuple[int, bool]] = [(number, False) for number in practice]
        parts = max(len(controls), 1)
        for part in range(parts):
            lot = items[len(items) * part // parts : len(items) * (part + 1) // parts]
            own = [self.blocks[block][number] for number in lot]
            if part < len(controls):  # in the second half of each part, so that no control comes first
                at = len(own) - draw(max(1, (len(own) + 1) // 2), seed, f"place {part}")
                own.insert(max(at, min(1, len(own))), (controls[part], bool(draw(2, seed, f"control {part}"))))
            sequence += own
        return tuple(self._place(trial, flip, ordinal, seed, n) for n, (trial, flip) in enumerate(sequence))

    def _place(self, number: int, flip: bool, ordinal: int, seed: str, position: int) -> Place:
        if self.kind == "pick":
            return Place(number, tuple(shuffled(range(len(self.trials[number].pictures)), seed, f"slots {position}")))
        return Place(number, flip=self.kind == "compare" and flip != bool(ordinal % 2))

    def canonical_options(self, place: Place, shown: Sequence[int]) -> tuple[int, ...]:
        """Converts displayed to canonical options."""
        if self.kind == "pick":
            return (place.slots[shown[0]],)
        if self.kind == "compare" and place.flip:
            return tuple(table[option] for table, option in zip(FLIPPED, shown, strict=True))
        return tuple(shown)

    def shown_options(self, place: Place, options: Sequence[int]) -> tuple[int, ...]:
        """Converts canonical to displayed options."""
        if self.kind == "pick":
            return (place.slots.index(options[0]),)
        return self.canonical_options(place, options)  # swapping two captions is its own inverse


def draw(count: int, seed: str, purpose: str) -> int:
    """Draws a number from 0 to count − 1, determined by seed and purpose."""
    return int.from_bytes(hashlib.blake2b(f"{seed}\0{purpose}".encode(), digest_size=8).digest(), "big") % count


def shuffled(numbers: Sequence[int], seed: str, purpose: str) -> list[int]:
    """Returns the numbers in a random order, determined by seed and purpose."""

    def key(number: int) -> bytes:
        return hashlib.blake2b(f"{seed}\0{purpose}\0{number}".encode(), digest_size=16).digest()

    return sorted(numbers, key=key)


def canonical(value: Any) -> bytes:
    """Encodes a value as canonical JSON, which is the same for equal values."""
    return json.dumps(value, sort_keys=True, ensure_ascii=True, separators=(",", ":"), allow_nan=False).encode()


def open_study(folder: Path) -> Study:
    """Opens a study's folder. Raises `UsageError` if it is not a study or is damaged."""
    path = folder / ITEMS
    try:
        found = parse_json(path.read_bytes())
    except FileNotFoundError:
        raise UsageError(
            f"{folder} is not a study folder (it contains no {ITEMS}); see: tellapart study create --help"
        ) from None
    except ValueError as error:
        raise UsageError(f"{path}: damaged ({error}); create the study again") from None
    if not isinstance(found, dict) or found.get("format") != FORMAT or found.get("kind") not in KINDS:
        raise UsageError(f"{path} is not a study of format {FORMAT}; create it again, or update tellapart")
    try:
        trials = TypeAdapter(tuple[Trial, ...]).validate_python(found["trials"])
        blocks = tuple(tuple((int(number), bool(flip)) for number, flip in block) for block in found["blocks"])
        if not blocks or not all(0 <= number < len(trials) for block in blocks for number, _ in block):
            raise ValueError("its blocks refer to trials that do not exist")
        return Study(
            folder=folder,
            id=str(found["id"]),
            kind=found["kind"],
            systems=TypeAdapter(tuple[str, ...]).validate_python(found["systems"]),
            seed=int(found["seed"]),
            trials=trials,
            blocks=blocks,
            made=dict(found["made"]),
            settings=read_settings(folder / FILE),
        )
    except (KeyError, TypeError, ValueError) as error:
        why = error
        if isinstance(error, ValidationError):
            first = error.errors(include_url=False)[0]
            why = ValueError(f"trial {'.'.join(map(str, first['loc']))}: {first['msg']}")
        raise UsageError(f"{path}: damaged ({why}); create the study again") from None


def check_pictures(study: Study) -> None:
    """Raises `UsageError` if a picture of the study is missing or has changed since its creation."""
    for name in sorted({name for trial in study.trials for name in trial.pictures}):
        path = study.folder / PICTURES / name
        try:
            digest = hashlib.sha256(path.read_bytes()).hexdigest()
        except OSError as error:
            raise UsageError(f"{path}: {error.strerror or error}; create the study again") from None
        if not name.startswith(digest[:32]):
            raise UsageError(f"{path} is not the picture that the study was created with; create the study again")
