"""Reads the prompt files for the stages.

A prompt is a text file with sections, each of which starts with its name in brackets on a line of its own:
``[settings]``, ``[system]``, alternating ``[user]`` and ``[assistant]``, and ``[again]``, which is added after a bad
answer. The last ``[user]`` is the question; earlier turns are examples. Placeholders in braces are filled in; a line
with ``{reference}`` is repeated for each reference.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from tellapart.boost.types import Message
from tellapart.errors import UsageError, nearest

BUILTIN = Path(__file__).parent / "prompts"
PLACEHOLDERS = {
    "blend": ("count", "number", "reference"),
    "describe": (),
    "holistic": ("blend", "describe"),
}
_NEEDED = {"blend": ("reference",), "describe": (), "holistic": ("blend", "describe")}
_SECTION = re.compile(r"^\[(\w+)\][ \t]*$", re.MULTILINE)
_PLACEHOLDER = re.compile(r"\{(\w+)\}")
_SECTIONS = ("settings", "system", "user", "assistant", "again")
_LEAST: Mapping[str, float] = {"temperature": 0.0, "max_tokens": 1, "max_words": 1}


@dataclass(frozen=True, slots=True)
class StagePrompt:
    """A prompt file. ``turns``: messages with placeholders, the question last; ``max_words``: limit for answers."""

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
        """Fills in the placeholders of all turns and adds ``more`` to the question."""
        known = {**values, "count": str(len(references))}
        filled = [Message(turn.role, _fill(turn.text, known, references)) for turn in self.turns]
        if more:
            last = filled.pop()
            filled.append(Message(last.role, f"{last.text}\n\n{more}"))
        return tuple(filled)

    @property
    def examples(self) -> tuple[Message, ...]:
        """The turns before the question."""
        return self.turns[:-1]


def read_prompt(name: str, folder: Path | None = None) -> StagePrompt:
    """Reads the prompt of a stage: ``folder/NAME.txt`` if it exists, otherwise the paper's. Raises `UsageError`."""
    path = (folder or BUILTIN) / f"{name}.txt"
    if not path.is_file():
        path = BUILTIN / f"{name}.txt"
    try:
        text = path.read_text(encoding="utf-8-sig")
    except UnicodeDecodeError:
        raise UsageError(f"{path} is not valid UTF-8; save it as UTF-8") from None
    except OSError as error:
        raise UsageError(f"{path} cannot be read ({error.strerror}); expected a prompt, such as {BUILTIN}") from None
    return _parse(name, text, str(path))


def check_folder(folder: Path) -> None:
    """Raises `UsageError` if ``folder`` contains no stage's prompt, so that typos do not go unnoticed."""
    files = [f"{name}.txt" for name in PLACEHOLDERS]
    if not any((folder / file).is_file() for file in files):
        what = "contains none of" if folder.is_dir() else "is not a folder with"
        raise UsageError(f"--prompts {folder} {what} {', '.join(files)}; copy the files in {BUILTIN} and edit them")


def _parse(name: str, text: str, where: str) -> StagePrompt:
    parts = _SECTION.split(text)
    turns: list[Message] = []
    settings, again = "", ""
    for section, body in zip(parts[1::2], (part.strip() for part in parts[2::2]), strict=True):
        if section not in _SECTIONS:
            raise UsageError(f"{where}: unknown section [{section}]{nearest(section, _SECTIONS)}")
        if section == "settings":
            settings = body
        elif section == "again":
            again = body
        else:
            turns.append(Message(section, body))
    _check_turns(turns, where)
    _check_placeholders(name, turns, where)
    numbers = _settings(settings, where)
    again = again.replace("{max_words}", f"{numbers['max_words']:g}")
    if not again:
        raise UsageError(f"{where}: missing section [again], which is added to the question after an unusable answer")
    return StagePrompt(
        name, text, tuple(turns), again, numbers["temperature"], int(numbers["max_tokens"]), int(numbers["max_words"])
    )


def _check_turns(turns: Sequence[Message], where: str) -> None:
    roles = [turn.role for turn in turns if turn.role != "system"]
    system = [place for place, turn in enumerate(turns) if turn.role == "system"]
    in_turn = all(role == ("user", "assistant")[place % 2] for place, role in enumerate(roles))
    if not roles or roles[-1] != "user" or not in_turn or system not in ([], [0]):
        raise UsageError(
            f"{where}: expected an optional [system] first, then alternating [user] and [assistant], ending with [user]"
        )


def _check_placeholders(name: str, turns: Sequence[Message], where: str) -> None:
    used = {word for turn in turns for word in _PLACEHOLDER.findall(turn.text)}
    for word in sorted(used - set(PLACEHOLDERS[name])):
        raise UsageError(f"{where}: unknown placeholder {{{word}}}{nearest(word, PLACEHOLDERS[name] or ['none'])}")
    for word in _NEEDED[name]:
        if f"{{{word}}}" not in turns[-1].text:
            raise UsageError(f"{where}: the last [user] section lacks {{{word}}}, so the model would not see it")


def _settings(body: str, where: str) -> dict[str, float]:
    found: dict[str, float] = {}
    for line in filter(None, map(str.strip, body.splitlines())):
        key, equals, value = (part.strip() for part in line.partition("="))
        if key not in _LEAST:
            raise UsageError(f"{where}: unknown setting '{key}'{nearest(key, _LEAST)}")
        try:
            found[key] = float(value) if key == "temperature" else int(value)
        except ValueError:
            found[key] = -1.0
        if not equals or not _LEAST[key] <= found[key] < float("inf"):
            raise UsageError(f"{where}: expected a line such as {key} = {_LEAST[key]:g} (or more), got '{line}'")
    for key in _LEAST:
        if key not in found:
            raise UsageError(f"{where}: [settings] lacks {key}; add a line such as {key} = {_LEAST[key]:g}")
    return found


def _fill(text: str, values: Mapping[str, str], references: Sequence[str]) -> str:
    lines: list[str] = []
    for line in text.splitlines():
        if "{reference}" not in line:
            lines.append(_put(line, values))
            continue
        for number, reference in enumerate(references, 1):
            lines.append(_put(line, {**values, "number": str(number), "reference": reference}))
    return "\n".join(lines)


def _put(line: str, values: Mapping[str, str]) -> str:
    # A single pass, so that braces in a caption are never mistaken for placeholders.
    return _PLACEHOLDER.sub(lambda match: values.get(match[1], match[0]), line)
