"""Reads the prompt files for the stages.

A prompt is a text file with sections. Each section starts with its name in brackets on a separate line:
``[settings]``, ``[system]``, alternating ``[user]`` and ``[assistant]``, and ``[again]``, which is added to the
question after a bad answer. The last ``[user]`` is the question; earlier turns are examples. Placeholders in braces are
replaced with their values. A line that contains ``{reference}`` is repeated for each reference.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from tellapart.boost.types import Message
from tellapart.errors import UsageError, nearest

BUILTIN = Path(__file__).parent / "prompts"
# Placeholders that each stage's question must contain.
INPUTS: dict[str, tuple[str, ...]] = {"blend": ("reference",), "describe": (), "holistic": ("blend", "describe")}
_OTHER_PLACEHOLDERS = {"blend": ("count", "number")}
_SECTION = re.compile(r"^\[(\w+)\][ \t]*$", re.MULTILINE)
_PLACEHOLDER = re.compile(r"\{(\w+)\}")
_TURNS = ("system", "user", "assistant")
_SECTIONS = ("settings", *_TURNS, "again")
_LEAST: Mapping[str, float] = {"temperature": 0, "max_tokens": 1, "max_words": 1}


@dataclass(frozen=True, slots=True)
class StagePrompt:
    """A prompt file.

    turns: messages with placeholders; the last one is the question.
    again: text that is added to the question after a bad answer.
    max_words: maximum number of words in an answer.
    """

    name: str
    text: str
    turns: tuple[Message, ...]
    again: str
    temperature: float
    max_tokens: int
    max_words: int

    def messages(
        self, values: Mapping[str, str], references: Sequence[str] = (), more: str = ""
    ) -> tuple[Message, ...]:
        """Fills in the placeholders in all turns and adds ``more`` to the question."""
        known = {**values, "count": str(len(references))}
        *examples, question = (replace(turn, text=_fill(turn.text, known, references)) for turn in self.turns)
        return (*examples, replace(question, text=f"{question.text}\n\n{more}" if more else question.text))

    @property
    def examples(self) -> tuple[Message, ...]:
        """The turns before the question."""
        return self.turns[:-1]


def read_prompt(name: str, folder: Path | None = None) -> StagePrompt:
    """Reads a stage's prompt from ``folder/NAME.txt`` or, if there is no such file, uses the paper's prompt.

    Raises `UsageError` if the file is invalid.
    """
    path = (folder or BUILTIN) / f"{name}.txt"
    if not path.is_file():
        path = BUILTIN / f"{name}.txt"
    try:
        return _parse(name, path.read_text(encoding="utf-8-sig"))
    except UnicodeDecodeError:
        raise UsageError(f"{path} is not valid UTF-8; save it as UTF-8") from None
    except OSError as error:
        raise UsageError(f"{path} cannot be read ({error.strerror}); expected a prompt, such as {BUILTIN}") from None
    except _Mistake as mistake:
        raise UsageError(f"{path}: {mistake}") from None


def check_folder(folder: Path) -> None:
    """Raises `UsageError` if ``folder`` contains no prompt for any stage, so that typos do not go unnoticed."""
    files = [f"{name}.txt" for name in INPUTS]
    if not any((folder / file).is_file() for file in files):
        what = "contains none of" if folder.is_dir() else "is not a folder with"
        raise UsageError(f"--prompts {folder} {what} {', '.join(files)}; copy the files in {BUILTIN} and edit them")


class _Mistake(Exception):
    """Raised for a mistake in a prompt file."""


def _parse(name: str, text: str) -> StagePrompt:
    _, *parts = _SECTION.split(text)
    sections = [(section, body.strip()) for section, body in zip(parts[::2], parts[1::2], strict=True)]
    for section, _ in sections:
        if section not in _SECTIONS:
            raise _Mistake(f"unknown section [{section}]{nearest(section, _SECTIONS)}")
    turns = tuple(Message(section, body) for section, body in sections if section in _TURNS)
    others = dict(sections)
    _check_turns(name, turns)
    numbers = _read_settings(others.get("settings", ""))
    max_words = int(numbers["max_words"])
    again = others.get("again", "").replace("{max_words}", str(max_words))
    if not again:
        raise _Mistake("missing section [again], which is added to the question after an unusable answer")
    return StagePrompt(name, text, turns, again, numbers["temperature"], int(numbers["max_tokens"]), max_words)


def _check_turns(name: str, turns: Sequence[Message]) -> None:
    roles = " ".join(turn.role for turn in turns)
    if not re.fullmatch("(system )?(user assistant )*user", roles):
        raise _Mistake(
            "expected an optional [system] first, then alternating [user] and [assistant], ending with [user]"
        )
    known = (*INPUTS[name], *_OTHER_PLACEHOLDERS.get(name, ()))
    for word in _PLACEHOLDER.findall("\n".join(turn.text for turn in turns)):
        if word not in known:
            raise _Mistake(f"unknown placeholder {{{word}}}{nearest(word, known or ['none'])}")
    for word in INPUTS[name]:
        if f"{{{word}}}" not in turns[-1].text:
            raise _Mistake(f"the last [user] section lacks {{{word}}}, so the model would not see it")


def _read_settings(body: str) -> dict[str, float]:
    lines = (line.partition("=") for line in body.splitlines() if line.strip())
    written = {key.strip(): value.strip() for key, _, value in lines}
    for key in written:
        if key not in _LEAST:
            raise _Mistake(f"unknown setting '{key}'{nearest(key, _LEAST)}")
    numbers: dict[str, float] = {}
    for key, least in _LEAST.items():
        if key not in written:
            raise _Mistake(f"[settings] lacks {key}; add a line such as {key} = {least:g}")
        try:
            numbers[key] = float(written[key]) if key == "temperature" else int(written[key])
        except ValueError:
            numbers[key] = math.nan
        if not least <= numbers[key] < math.inf:
            raise _Mistake(f"expected a line such as {key} = {least:g} (or more), got '{key} = {written[key]}'")
    return numbers


def _fill(text: str, values: Mapping[str, str], references: Sequence[str]) -> str:
    numbered = [{**values, "number": str(n), "reference": reference} for n, reference in enumerate(references, 1)]
    lines = [
        # A single pass, so that braces in a caption are never mistaken for placeholders.
        _PLACEHOLDER.sub(lambda match, known=known: known.get(match[1], match[0]), line)  # type: ignore[misc]
        for line in text.splitlines()
        for known in (numbered if "{reference}" in line else [values])
    ]
    return "\n".join(lines)
