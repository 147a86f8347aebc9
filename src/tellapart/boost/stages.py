"""The stages of Visual Caption Boosting, with their models, inputs and prompts.

Paper 2, section 2 and appendix A.1:

| stage | paper 2 | model | input |
|---|---|---|---|
| `blend` | BlendCap | the language model | the references |
| `describe` | VisualCap | the multimodal model | the picture |
| `holistic` | HolisticCap | the language model | both answers; the references' facts take precedence |
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from tellapart.boost.answer_checks import trouble
from tellapart.boost.stage_prompts import StagePrompt, check_folder, read_prompt
from tellapart.boost.types import Backend, BackendError, Request, Stage
from tellapart.errors import UsageError, nearest
from tellapart.types import Item

STAGE_NAMES = ("blend", "describe", "holistic")
HUMAN = "human"
CAPTION_KINDS = (HUMAN, *STAGE_NAMES)
TITLES = {HUMAN: "human", "blend": "BlendCap", "describe": "VisualCap", "holistic": "HolisticCap"}  # as in paper 2
_OF_MLLM = ("describe",)
PER_REFERENCE = ("blend", "holistic")  # stages that can run once per reference; in paper 2, five times per picture
AGAIN_TEMPERATURE, AGAIN_SEED = 0.7, 1  # at temperature 0, the same question gives the same answer


def stages(names: Sequence[str], llm: Backend | None, mllm: Backend | None, prompts: Path | None = None) -> list[Stage]:
    """Creates the named stages in their order, each with its backend and prompt.

    ``prompts``: a folder with custom ``NAME.txt`` files; stages without one use the paper's prompts. Raises
    `UsageError` if names and backends do not fit together.
    """
    _check_names(names)
    chosen = [name for name in STAGE_NAMES if name in names]
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
        if name not in STAGE_NAMES:
            raise UsageError(f"unknown stage '{name}'{nearest(name, STAGE_NAMES)}")
    if not names:
        raise UsageError(f"--stages is empty; pass --stages {','.join(STAGE_NAMES)}, or some of them")
    if "holistic" in names and len(set(names)) < len(STAGE_NAMES):
        raise UsageError(f"stage holistic requires blend and describe; pass --stages {','.join(STAGE_NAMES)}")


@dataclass(frozen=True, slots=True)
class _PromptRequests:
    """Builds the requests of one prompt for an item, and checks the answers."""

    prompt: StagePrompt

    def build_request(self, item: Item, answers: Mapping[str, str]) -> Request:
        """Builds the first request. Raises `BackendError` if the item lacks an input of the stage."""
        return self._request(item, answers, "", self.prompt.temperature, None)

    def build_retry(self, item: Item, answers: Mapping[str, str], bad: str) -> Request:
        """Builds the request after a ``bad`` answer: it states the problem, and samples the new answer."""
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
        return [answers[name] for name in STAGE_NAMES if name in answers] if self.prompt.name == "holistic" else []

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
