"""``study.toml``: what a researcher decides and writes before the study. All of it but ``[recruitment]`` is stamped."""

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
from tellapart.study.questions import CONSENT, INSTRUCTIONS, TASKS

FILE = "study.toml"
OPEN = "TODO"  # in a text that the researcher has yet to write


class Section(BaseModel):
    """A table of study.toml; an unknown key is an error."""

    model_config = ConfigDict(extra="forbid", frozen=True)


class Consent(Section):
    """Who asks, what for, and what the page says before anybody agrees."""

    researcher: str
    institution: str
    contact: str
    ethics: str
    paragraphs: tuple[str, ...] = Field(min_length=1)


class Exclusion(Section):
    """Whose answers are left out. Paper 3 excludes more than one mistake on the control items."""

    max_control_errors: int = Field(1, ge=0)
    min_median_seconds: float = Field(0.0, ge=0)
    max_same_answer: float = Field(1.0, gt=0, le=1)


class Sampling(Section):
    """How many participants answer each block, and who takes the place of whom."""

    raters: int = Field(ge=1)
    replace_excluded: bool = True
    screen_out_early: bool = False


class Analysis(Section):
    """The intervals of the report."""

    resamples: int = Field(2000, ge=100, le=100_000)
    confidence: float = Field(0.95, gt=0.5, lt=1)
    seed: int = Field(0, ge=0)


class Recruitment(Section):
    """Codes for the recruiting platform, and the reservation of a block. May change while the study runs."""

    id_parameter: str = "PROLIFIC_PID"
    id_pattern: str = r"[\w.@-]{1,100}"
    require_id: bool = False
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
            raise ValueError(f"is no regular expression ({error})") from None
        return pattern

    @field_validator("return_url")
    @classmethod
    def _is_https(cls, url: str) -> str:
        if url and not re.fullmatch(r"https://[^\s\"'<>]+", url):
            raise ValueError("expected an address that starts with https://")
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
        """What must not change once somebody has answered."""
        return self.model_dump(mode="json", exclude={"recruitment"})

    def unwritten(self) -> list[str]:
        """The keys of ``[consent]`` and the title that still hold `OPEN`."""
        texts = {"title": self.title, **{f"consent.{k}": str(v) for k, v in self.consent.model_dump().items()}}
        return [key for key, text in texts.items() if OPEN in text]


def read_settings(path: Path) -> Settings:
    """Raises `UsageError` that names the key."""
    try:
        return Settings.model_validate(tomllib.loads(path.read_text(encoding="utf-8")))
    except FileNotFoundError:
        raise UsageError(f"{path}: no such file; type: tellapart study create --help") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise UsageError(f"{path}: is not TOML ({error})") from None
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(map(str, first["loc"]))
        raise UsageError(f"{path}: {where}: {first['msg'].removeprefix('Value error, ')}") from None


def new_code() -> str:
    """A code that cannot be guessed, in the form of Prolific's."""
    return "C" + "".join(secrets.choice(string.ascii_uppercase + string.digits) for _ in range(7))


def settings_text(kind: str, *, title: str, raters: int, minutes: int, payment: str, writing: Sequence[str]) -> str:
    """A new study.toml. writing: researcher, institution, contact, ethics; what is empty is left `OPEN`."""
    researcher, institution, contact, ethics = (json.dumps(text or OPEN, ensure_ascii=False) for text in writing)
    paid = payment or f"{OPEN}: what participants are paid."
    consent = [text.format(task=TASKS[kind], minutes=minutes, payment=paid) for text in CONSENT]
    return f"""\
# Written by `tellapart study create`. Write what says {OPEN}, read the rest, and change what you need, before anybody
# takes part. All but [recruitment] is stamped (hashed) when the first participant begins.
title = {json.dumps(title or OPEN, ensure_ascii=False)}
instructions = {_lines(INSTRUCTIONS[kind])}

[consent]
researcher = {researcher}
institution = {institution}
contact = {contact}
ethics = {ethics}  # the board's name and the number of its approval
paragraphs = {_lines(consent)}

[sampling]
raters = {raters}  # participants whose answers count, for each block
replace_excluded = true  # somebody else answers the block of a participant who is excluded
screen_out_early = false  # end a participation as soon as its exclusion is certain, with the code screened_out

[exclusion]  # decided before the study; the report lists everybody whom it excludes
max_control_errors = 1  # more mistakes on the control items exclude (paper 3: 1)
min_median_seconds = 0.0  # a median time per item below this excludes; 0: no such rule
max_same_answer = 1.0  # a larger share of one and the same answer excludes; 1: no such rule

[analysis]
resamples = 2000  # of participants and of items
confidence = 0.95
seed = 0

[recruitment]  # not stamped: may change while the study runs
id_parameter = "PROLIFIC_PID"  # of the link; MTurk: workerId
id_pattern = '[\\w.@-]{{1,100}}'  # of identifiers; Prolific: '[0-9a-f]{{24}}'
require_id = false  # true: only links with an identifier can begin
timeout_minutes = 90  # without an answer, after which the block goes to another participant
completed = "{new_code()}"
screened_out = "{new_code()}"  # the study is full, or the time has run out
no_consent = "{new_code()}"
return_url = ""  # the code follows it; Prolific: "https://app.prolific.com/submissions/complete?cc="
"""


def _lines(texts: Sequence[str]) -> str:
    return "[\n" + "".join(f"  {json.dumps(text, ensure_ascii=False)},\n" for text in texts) + "]"
