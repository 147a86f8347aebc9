"""Reads a study's settings. ``study.toml`` contains the researcher's decisions and the text that participants read.
Everything except ``[recruitment]`` is part of the stamp.
"""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator

from tellapart.errors import UsageError
from tellapart.utils.validation_errors import validation_message

SETTINGS_FILE = "study.toml"
OPEN = "TODO"  # marks a text that the researcher has yet to write


class Section(BaseModel):
    """A table in study.toml. Unknown keys are errors."""

    model_config = ConfigDict(extra="forbid", frozen=True)


class Consent(Section):
    """The researcher's details, and the text of the consent page."""

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


class Analysis(Section):
    """Settings of the confidence intervals in the report."""

    resamples: int = Field(2000, ge=100, le=100_000)
    confidence: float = Field(0.95, gt=0.5, lt=1)
    seed: int = Field(0, ge=0)


class Recruitment(Section):
    """Settings for the recruitment platform and for reservations. They may change while the study is running."""

    id_parameter: str = "PROLIFIC_PID"
    id_pattern: re.Pattern[str] = re.compile(r"[\w.@-]{1,100}")
    require_id: bool = False
    link_key: str = Field("", pattern=r"^[\w-]{0,100}$")
    starts_per_address: int = Field(30, ge=0)
    timeout_minutes: float = Field(90.0, gt=0)
    completed: str = ""
    screened_out: str = ""
    no_consent: str = ""
    return_url: str = ""

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

    def unwritten(self) -> list[str]:
        """Returns the keys whose text still contains `OPEN`: the title and the keys in ``[consent]``."""
        texts = {"title": self.title, **{f"consent.{k}": str(v) for k, v in self.consent.model_dump().items()}}
        return [key for key, text in texts.items() if OPEN in text]


def read_settings(path: Path) -> Settings:
    """Reads study.toml. Raises a `UsageError` that names the invalid key."""
    try:
        return Settings.model_validate(tomllib.loads(path.read_text(encoding="utf-8")))
    except FileNotFoundError:
        raise UsageError(f"{path}: file not found; see: tellapart study create --help") from None
    except ValidationError as error:
        raise UsageError(f"{path}: {validation_message(error)}") from None
    except ValueError as error:
        raise UsageError(f"{path}: invalid TOML ({error})") from None
