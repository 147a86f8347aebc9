"""The three stages of Visual Caption Boosting (paper 2, section 2 and appendix A.1) as questions to models.

| stage | paper 2 | asks | sees |
|---|---|---|---|
| `blend` | BlendCap | the language model | the references |
| `describe` | VisualCap | the multimodal model | the picture |
| `holistic` | HolisticCap | the language model | both answers; people's captions win conflicts |
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from tellapart.boost.check import trouble
from tellapart.boost.template import Prompt, check_folder, read_prompt
from tellapart.boost.types import Backend, BackendError, Request, Stage
from tellapart.errors import UsageError, nearest
from tellapart.types import Item

NAMES = ("blend", "describe", "holistic")
TITLES = {"blend": "BlendCap", "describe": "VisualCap", "holistic": "HolisticCap"}  # as paper 2 calls what they write
_OF_MLLM = ("describe",)
AGAIN_TEMPERATURE, AGAIN_SEED = 0.7, 1  # at temperature 0 the same question would get the same answer


def stages(names: Sequence[str], llm: Backend | None, mllm: Backend | None, prompts: Path | None = None) -> list[Stage]:
    """The stages of these names in their order, each with its backend and prompt.

    ``prompts``: a folder with ``NAME.txt`` files of one's own; a stage without one has the paper's. Raises `UsageError`
    for names and backends that do not fit together.
    """
    _check_names(names)
    chosen = [name for name in NAMES if name in names]
    needs = {"llm": [name for name in chosen if name not in _OF_MLLM], "mllm": [n for n in chosen if n in _OF_MLLM]}
    for option, backend in (("llm", llm), ("mllm", mllm)):
        if backend is None and needs[option]:
            raise UsageError(f"stage {needs[option][0]} needs a model; type --{option} openai:MODEL, or scripted")
        if backend is not None and not needs[option]:
            raise UsageError(f"--{option} is of no use to stages {','.join(chosen)}; leave it out")
    if prompts is not None:
        check_folder(prompts)
    made = []
    for name in chosen:
        backend = mllm if name in _OF_MLLM else llm
        assert backend is not None
        if getattr(backend, "sampling", None):
            raise UsageError(f"{backend.name}: boost's prompts set the temperature; leave it out, or type --prompts")
        requests = _PromptRequests(read_prompt(name, prompts))
        made.append(
            Stage(name, backend, requests.prompt.text, requests.build_request, requests.check, requests.build_retry)
        )
    return made


def _check_names(names: Sequence[str]) -> None:
    for name in names:
        if name not in NAMES:
            raise UsageError(f"no stage is called '{name}'{nearest(name, NAMES)}")
    if not names:
        raise UsageError(f"no stage is named; type --stages {','.join(NAMES)}, or some of them")
    if "holistic" in names and len(set(names)) < len(NAMES):
        raise UsageError(f"stage holistic needs blend and describe before it; type --stages {','.join(NAMES)}")


@dataclass(frozen=True, slots=True)
class _PromptRequests:
    """The requests that one prompt makes about an item, and the check of the answer."""

    prompt: Prompt

    def build_request(self, item: Item, answers: Mapping[str, str]) -> Request:
        """The first request. Raises `BackendError` where the item lacks what the stage reads."""
        return self._request(item, answers, "", self.prompt.temperature, None)

    def build_retry(self, item: Item, answers: Mapping[str, str], bad: str) -> Request:
        """The request after the ``bad`` answer: it names the problem, and is sampled."""
        more = self.prompt.again
        if reason := self.check(item, answers, bad):
            more = f"{more} (The last answer was {reason}.)"
        return self._request(item, answers, more, max(AGAIN_TEMPERATURE, self.prompt.temperature), AGAIN_SEED)

    def check(self, item: Item, answers: Mapping[str, str], text: str) -> str | None:
        """Why an answer cannot be used, or None."""
        return trouble(text, self._sources(item, answers), self.prompt, item.references)

    def _sources(self, item: Item, answers: Mapping[str, str]) -> list[str]:
        """The texts that the request quotes."""
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
            raise BackendError(f"no answer of stage {lacking[0]}, which stage {name} reads")
        seen = name in _OF_MLLM
        return Request(
            messages=self.prompt.messages(answers, item.references, more),
            picture=item.picture if seen else None,
            temperature=temperature,
            max_tokens=self.prompt.max_tokens,
            seed=seed,
            truth=item.truth if seen else None,
        )
