"""The judges' prompts: files with ``$places``, those of the package or one's own."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from string import Template

from tellapart.errors import UsageError

# By name: how many tokens an answer may have, and the places that the text must have.
PROMPTS: dict[str, tuple[int, tuple[str, ...]]] = {
    "clair": (256, ("candidate", "references")),
    "dcscore_units": (2048, ("caption",)),
    "dcscore_verify": (2048, ("units", "references")),
    "dcscore_match": (2048, ("units", "facts")),
    "rating": (512, ("request", "reference", "candidate")),
    "arena": (512, ("first", "second")),
    "captionqa": (64, ("caption", "question", "options")),
}
_OURS = Path(__file__).parent / "texts"


@dataclass(frozen=True)
class Prompt:
    """A prompt's whole text. ``own``: it is the user's."""

    name: str
    text: str
    max_tokens: int
    own: bool = False

    def fill(self, values: Mapping[str, str]) -> str:
        """The text with its places filled; what is filled in is taken as it stands."""
        return Template(self.text).substitute(values).strip()

    @property
    def signature(self) -> str:
        """Whose prompt, and which: part of a metric's signature."""
        digest = hashlib.blake2b(self.text.encode(), digest_size=4).hexdigest()
        return f"prompt:{'own' if self.own else 'tellapart'}@{digest}"


def read_prompt(name: str, folder: Path | None = None) -> Prompt:
    """``NAME.txt`` of a folder where it is there, else the package's. Raises `UsageError` for a place that it lacks."""
    own = folder is not None and (folder / f"{name}.txt").is_file()
    path = folder / f"{name}.txt" if folder is not None and own else _OURS / f"{name}.txt"
    max_tokens, places = PROMPTS[name]
    text = path.read_text(encoding="utf-8")
    found = set(Template(text).get_identifiers())
    if found != set(places):
        raise UsageError(
            f"{path}: has the places {', '.join(f'${place}' for place in sorted(found)) or 'none'}; expected "
            f"{', '.join(f'${place}' for place in places)} (a dollar sign itself is $$)"
        )
    return Prompt(name, text, max_tokens, own)


def check_folder(folder: Path | None) -> None:
    """Raise `UsageError` for a folder of prompts with none of ours."""
    if folder is not None and not any((folder / f"{name}.txt").is_file() for name in PROMPTS):
        raise UsageError(f"{folder}: has none of {', '.join(f'{name}.txt' for name in PROMPTS)}")
