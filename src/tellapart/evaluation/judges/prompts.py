"""Prompts for judges: files with ``$placeholders``, provided by the package or by the user."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from string import Template

from tellapart.data.text_files import read_text
from tellapart.errors import UsageError
from tellapart.evaluation.digests import short_digest

# The maximum number of answer tokens for each prompt. A user's prompt must have the same placeholders as ours.
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
    """The text of a prompt. ``own``: whether the user wrote it."""

    name: str
    text: str
    max_tokens: int
    own: bool = False

    def fill(self, values: Mapping[str, str]) -> str:
        """Returns the text with its placeholders replaced. Values are inserted verbatim."""
        return Template(self.text).substitute(values).strip()

    @property
    def signature(self) -> str:
        """Identifies the prompt and its origin, as part of a metric's signature."""
        return f"prompt:{'own' if self.own else 'tellapart'}@{short_digest(self.text.encode())}"


def read_prompt(name: str, folder: Path | None = None) -> Prompt:
    """Reads ``NAME.txt`` from the folder if it exists there, otherwise from the package. Raises `UsageError` if
    it cannot be read, or if its placeholders differ from those of the package's prompt.
    """
    ours = _OURS / f"{name}.txt"
    own = folder is not None and (folder / ours.name).is_file()
    path = folder / ours.name if folder is not None and own else ours
    text = read_text(path)
    if not Template(text).is_valid():
        raise UsageError(f"{path} contains a $ that begins no placeholder; write $$ for a dollar sign")
    found, places = Template(text).get_identifiers(), Template(read_text(ours)).get_identifiers()
    if set(found) != set(places):
        listed = ", ".join(f"${place}" for place in sorted(found))
        raise UsageError(
            f"{path} has {f'the placeholders {listed}' if listed else 'no placeholders'}; expected "
            f"{', '.join(f'${place}' for place in places)} (write $$ for a dollar sign)"
        )
    return Prompt(name, text, PROMPTS[name], own)


def check_folder(folder: Path | None) -> None:
    """Raises `UsageError` if the folder contains no file named after one of the package's prompts."""
    if folder is not None and not any((folder / f"{name}.txt").is_file() for name in PROMPTS):
        raise UsageError(f"{folder} contains none of {', '.join(f'{name}.txt' for name in PROMPTS)}")
