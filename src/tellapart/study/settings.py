"""A study's settings: ``study.toml`` contains the researcher's decisions and texts. Everything except ``[recruitment]``
is stamped.
"""

from __future__ import annotations

import json
import re
import secrets
import string
import tomllib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator

from tellapart.errors import UsageError

INSTRUCTIONS = {
    "pick": (
        "You will see a description and several pictures that look alike. Choose the picture that the description fits "
        "best.",
        (
            "Some descriptions were written by a computer and may be vague or partly wrong. Always "
            "choose the picture that you find most plausible."
        ),
        (
            "There is no time limit. Some items are checks with an obvious answer; they show us whether "
            "participants are answering carefully."
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
            "There is no time limit. Some items are checks with an obvious answer; they show us whether "
            "participants are answering carefully."
        ),
    ),
    "compare": (
        (
            "You will see a picture and two captions, A and B. Choose the one that tells you more "
            "about the picture, and the one that says something wrong."
        ),
        "A caption that tells more may also be the one that is wrong: answer the two questions independently.",
        (
            "There is no time limit. Some items are checks with an obvious answer; they show us whether "
            "participants are answering carefully."
        ),
    ),
}
CONSENT = (
    "You are invited to take part in a research study about descriptions of pictures. Please read this page before you "
    "decide.",
    "What you will do: {task} This takes about {minutes} minutes. {payment}",
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
    "pick": "read short descriptions and choose the picture that each one fits best.",
    "rate": "read captions of pictures and rate each one.",
    "compare": "read pairs of captions of the same picture and compare them.",
}
CHECK_CAPTION = "This is an attention check. Please choose {} ({}) for all three ratings."
SETTINGS_FILE = "study.toml"
OPEN = "TODO"  # marks a text that the researcher has yet to write


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
    """The number of participants per block, and whether excluded participants are replaced."""

    raters: int = Field(ge=1)
    replace_excluded: bool = True
    screen_out_early: bool = False


class Analysis(Section):
    """Settings of the confidence intervals in the report."""

    resamples: int = Field(2000, ge=100, le=100_000)
    confidence: float = Field(0.95, gt=0.5, lt=1)
    seed: int = Field(0, ge=0)


class Recruitment(Section):
    """Recruitment-platform codes and block reservations. May change while the study is running."""

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
    """The content of study.toml."""

    title: str
    instructions: tuple[str, ...] = Field(min_length=1)
    consent: Consent
    sampling: Sampling
    exclusion: Exclusion = Exclusion()
    analysis: Analysis = Analysis()
    recruitment: Recruitment = Recruitment()

    def stamped(self) -> dict[str, Any]:
        """Returns the settings that must not change once the first participant has begun."""
        return self.model_dump(mode="json", exclude={"recruitment"})

    def unwritten(self) -> list[str]:
        """Returns the keys of ``[consent]``, and the title, that still contain `OPEN`."""
        texts = {"title": self.title, **{f"consent.{k}": str(v) for k, v in self.consent.model_dump().items()}}
        return [key for key, text in texts.items() if OPEN in text]


def read_settings(path: Path) -> Settings:
    """Reads study.toml. Raises a `UsageError` that names the key."""
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
    """Returns the text of a new study.toml. writing: researcher, institution, contact, ethics; empty texts become
    `OPEN`.
    """
    researcher, institution, contact, ethics = (json.dumps(text or OPEN, ensure_ascii=False) for text in writing)
    paid = payment or f"{OPEN}: describe how participants are paid."
    consent = [text.format(task=TASKS[kind], minutes=minutes, payment=paid) for text in CONSENT]
    return f"""\
# Written by `tellapart study create`. Fill in everything marked {OPEN}, read the rest, and change what you
# need, before anyone takes part. Everything except [recruitment] is stamped (hashed) when the first participant begins.
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
screen_out_early = false  # end a participation as soon as exclusion is certain, with the code screened_out

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
return_url = ""  # the code is appended; Prolific: "https://app.prolific.com/submissions/complete?cc="
"""


def _lines(texts: Sequence[str]) -> str:
    return "[\n" + "".join(f"  {json.dumps(text, ensure_ascii=False)},\n" for text in texts) + "]"
