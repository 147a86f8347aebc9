"""Prompts, checks of answers, and the stages of Visual Caption Boosting.

A prompt is a text file of sections, each under its name in brackets on its own line: ``[settings]``, ``[system]``,
alternating ``[user]`` and ``[assistant]``, and ``[again]``, which is added after a bad answer. The last ``[user]`` is
the question, earlier turns are examples. Placeholders in braces are filled in; a line with ``{reference}`` is repeated
for each reference.

Bad answers are detected by a few explainable rules, without a model.

An answer is bad if it is broken text, is empty, repeats the API key, is a refusal, is too long for a caption, has more
than one paragraph, talks about itself, repeats the prompt, or is in another language than the references.

The three stages of Visual Caption Boosting (paper 2, section 2 and appendix A.1) are:

| stage | paper 2 | asks | sees |
|---|---|---|---|
| `blend` | BlendCap | the language model | the references |
| `describe` | VisualCap | the multimodal model | the picture |
| `holistic` | HolisticCap | the language model | both answers; people's captions win conflicts |
"""

from __future__ import annotations

import re
import unicodedata
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

from tellapart.boost.types import REDACTED, Backend, BackendError, Message, Request, Stage
from tellapart.errors import UsageError, nearest
from tellapart.language.answers import refusal
from tellapart.types import Item
from tellapart.utils.messages import broken

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
    """Raises `UsageError` if ``folder`` has no prompt of any stage, so that typos do not go unnoticed."""
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


RUN = 8  # consecutive words that a caption shares with a prompt only by copying
SCRIPT_SHARE = 0.3  # share of letters; quoted names and signs have fewer
WORDS_FOR_A_LANGUAGE = 3

_WORD = re.compile(r"\w+(?:['’]\w+)*")
_PREAMBLE = re.compile(
    r"""^\W*(?:(?:sure|certainly|of\s+course|absolutely|okay|ok)\s*[,!.:]
      |here(?:'s|\s+is|\s+are)\s+(?:the|an?|your|my)\s+(?:[\w-]+\s+){0,3}(?:captions?|descriptions?)\b[^.]*:
      |(?:assistant|user|system|caption|description|answer|output|response)\s*:)""",
    re.IGNORECASE | re.VERBOSE,
)
# Words so frequent that a sentence of ten words has some, but rare in other languages.
_FREQUENT = {
    "English": "the of and with is are in on to that an at by his her their has from which there",
    "German": "der die das und mit ist sind auf einem einer einen ein eine dem den im am zwei von steht vor",
    "French": "le la les des et avec est sont dans sur une un du au qui deux devant assis pour il",
    "Spanish": "el los las del y con es está están en una un sobre que dos junto por su al para",
    "Italian": "il lo gli della del e con è sono nel sulla una un di che due accanto per su al",
    "Portuguese": "o os as do da e com é está estão em uma um no na sobre que dois ao para",
    "Dutch": "de het een en met is zijn op van aan twee voor die naast staat zit in dat naar bij",
}
_LANGUAGES = {language: frozenset(words.split()) for language, words in _FREQUENT.items()}


def trouble(text: str, sources: Sequence[str], prompt: StagePrompt, references: Sequence[str] = ()) -> str | None:
    """Returns why the answer is bad, as words that follow "the answer was"; None if it can be used.

    sources: the captions quoted in the question; words shared with them are not an echo, and the answer may be as long
        as all of them together.
    references: define the expected language; without references the prompt does.
    """
    if (why := unusable(text)) is not None:
        return why
    if sum(bool(line.strip()) for line in text.strip().splitlines()) > 1:
        return "more than one paragraph"
    if _PREAMBLE.search(text.replace("’", "'")):
        return "talk about the answer"
    if echoes(text, sources, prompt):
        return "an echo of the prompt"
    longest = max(prompt.max_words, sum(len(source.split()) for source in sources))
    if length(text) > longest:
        return f"longer than {longest} words"
    expected = [*references] or [turn.text for turn in prompt.turns]
    return "in another language" if foreign(text, " ".join(expected)) else None


def unusable(text: str) -> str | None:
    """Returns why the answer is unusable for any question; None if it may be usable."""
    if (why := broken(text)) is not None:
        return why
    if REDACTED in text:
        return "an echo of the API key"
    if not _WORD.search(text):
        return "empty"
    return "a refusal" if refusal(text) else None


def length(text: str) -> int:
    """Counts words; in scripts without spaces every two letters count as one word."""
    unspaced = sum(_script(letter) in ("CJK", "HIRAGANA", "KATAKANA", "THAI") for letter in text)
    return max(len(text.split()), unspaced // 2)


def echoes(text: str, sources: Sequence[str], prompt: StagePrompt) -> bool:
    """Returns whether the answer repeats a label ("Reference caption 2:") or eight consecutive words of the prompt."""
    if any(re.search(rf"{re.escape(label)}(?: \d+)?:", text, re.IGNORECASE) for label in _labels(prompt)):
        return True
    own = _runs(text)
    return bool((own & _prompt_runs(prompt)) - {run for source in sources for run in _runs(source)})


def foreign(text: str, expected: str) -> bool:
    """Returns whether the text has another script than ``expected``, or clearly another language of the same script."""
    ours, theirs = _scripts(text), _scripts(expected)
    if not theirs:
        return False
    if sum(count for script, count in ours.items() if script not in theirs) > SCRIPT_SHARE * ours.total():
        return True
    own, home = _evidence(text), _evidence(expected)
    native = max(home, key=lambda language: home[language])
    other = max(own, key=lambda language: own[language])
    if home[native] < WORDS_FOR_A_LANGUAGE or other == native:
        return False
    return own[other] >= WORDS_FOR_A_LANGUAGE and own[other] > 2 * own[native]


def _scripts(text: str) -> Counter[str]:
    """Counts letters by script."""
    return Counter(script for letter in text if (script := _script(letter)))


@lru_cache(maxsize=8192)
def _script(letter: str) -> str:
    """Returns the script of a letter, e.g. LATIN, CYRILLIC or CJK; empty for other characters."""
    return unicodedata.name(letter, "").split(" ")[0].split("-")[0] if letter.isalpha() else ""


def _evidence(text: str) -> dict[str, int]:
    """Counts the text's words that are frequent in each language."""
    words = [word.lower() for word in _WORD.findall(text)]
    return {language: sum(word in frequent for word in words) for language, frequent in _LANGUAGES.items()}


def _runs(text: str) -> set[tuple[str, ...]]:
    words = [word.lower() for word in _WORD.findall(text)]
    return {tuple(words[at : at + RUN]) for at in range(len(words) - RUN + 1)}


@lru_cache(maxsize=16)
def _prompt_runs(prompt: StagePrompt) -> frozenset[tuple[str, ...]]:
    return frozenset(run for turn in (*prompt.turns,) for run in _runs(turn.text)) | _runs(prompt.again)


@lru_cache(maxsize=16)
def _labels(prompt: StagePrompt) -> frozenset[str]:
    """Returns the labels before a colon at the start of the prompt's lines."""
    found = (re.findall(r"(?m)^([^\W\d][\w -]{2,40}?)(?: \d+| \{number\})?:", turn.text) for turn in prompt.turns)
    return frozenset(label for labels in found for label in labels)


NAMES = ("blend", "describe", "holistic")
TITLES = {"blend": "BlendCap", "describe": "VisualCap", "holistic": "HolisticCap"}  # names of their captions in paper 2
_OF_MLLM = ("describe",)
PER_REFERENCE = ("blend", "holistic")  # stages that can run per reference; paper 2 has five of each per picture
AGAIN_TEMPERATURE, AGAIN_SEED = 0.7, 1  # at temperature 0 the same question gives the same answer


def stages(names: Sequence[str], llm: Backend | None, mllm: Backend | None, prompts: Path | None = None) -> list[Stage]:
    """Creates the named stages in their order, each with its backend and prompt.

    ``prompts``: a folder with custom ``NAME.txt`` files; other stages use the paper's prompts. Raises `UsageError` if
    names and backends do not fit together.
    """
    _check_names(names)
    chosen = [name for name in NAMES if name in names]
    needs = {"llm": [name for name in chosen if name not in _OF_MLLM], "mllm": [n for n in chosen if n in _OF_MLLM]}
    for option, backend in (("llm", llm), ("mllm", mllm)):
        if backend is None and needs[option]:
            raise UsageError(f"stage {needs[option][0]} requires a model; pass --{option} openai:MODEL, or scripted")
        if backend is not None and not needs[option]:
            raise UsageError(f"--{option} has no effect on stages {','.join(chosen)}; remove it")
    if prompts is not None:
        check_folder(prompts)
    made = []
    for name in chosen:
        backend = mllm if name in _OF_MLLM else llm
        assert backend is not None
        if getattr(backend, "sampling", None):
            raise UsageError(f"{backend.name}: the temperature is set by boost's prompts; remove it, or pass --prompts")
        requests = _PromptRequests(read_prompt(name, prompts))
        made.append(
            Stage(name, backend, requests.prompt.text, requests.build_request, requests.check, requests.build_retry)
        )
    return made


def _check_names(names: Sequence[str]) -> None:
    for name in names:
        if name not in NAMES:
            raise UsageError(f"unknown stage '{name}'{nearest(name, NAMES)}")
    if not names:
        raise UsageError(f"--stages is empty; pass --stages {','.join(NAMES)}, or some of them")
    if "holistic" in names and len(set(names)) < len(NAMES):
        raise UsageError(f"stage holistic requires blend and describe; pass --stages {','.join(NAMES)}")


@dataclass(frozen=True, slots=True)
class _PromptRequests:
    """Builds the requests of one prompt for an item, and checks the answers."""

    prompt: StagePrompt

    def build_request(self, item: Item, answers: Mapping[str, str]) -> Request:
        """Builds the first request. Raises `BackendError` if the item lacks an input of the stage."""
        return self._request(item, answers, "", self.prompt.temperature, None)

    def build_retry(self, item: Item, answers: Mapping[str, str], bad: str) -> Request:
        """Builds the request after the ``bad`` answer, which names the problem and samples."""
        more = self.prompt.again
        if reason := self.check(item, answers, bad):
            more = f"{more} (The last answer was {reason}.)"
        return self._request(item, answers, more, max(AGAIN_TEMPERATURE, self.prompt.temperature), AGAIN_SEED)

    def check(self, item: Item, answers: Mapping[str, str], text: str) -> str | None:
        """Returns why an answer cannot be used, or None."""
        return trouble(text, self._sources(item, answers), self.prompt, item.references)

    def _sources(self, item: Item, answers: Mapping[str, str]) -> list[str]:
        """Returns the texts that the request quotes."""
        if self.prompt.name == "blend":
            return list(item.references)
        return [answers[name] for name in NAMES if name in answers] if self.prompt.name == "holistic" else []

    def _request(
        self, item: Item, answers: Mapping[str, str], more: str, temperature: float, seed: int | None
    ) -> Request:
        name = self.prompt.name
        if name == "blend" and not item.references:
            raise BackendError("no reference to blend")
        if name == "holistic" and (lacking := [n for n in ("blend", "describe") if n not in answers]):
            raise BackendError(f"no answer from stage {lacking[0]}, which stage {name} requires")
        seen = name in _OF_MLLM
        return Request(
            messages=self.prompt.messages(answers, item.references, more),
            picture=item.picture if seen else None,
            temperature=temperature,
            max_tokens=self.prompt.max_tokens,
            seed=seed,
            truth=item.truth if seen else None,
            item=item.id,
        )
