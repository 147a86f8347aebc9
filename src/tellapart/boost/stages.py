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
from tellapart.boost.stage_prompts import INPUTS, StagePrompt, check_folder, read_prompt
from tellapart.boost.types import Backend, BackendError, Request, Stage
from tellapart.errors import UsageError, nearest
from tellapart.types import Item

STAGE_NAMES = tuple(INPUTS)
HUMAN = "human"
CAPTION_KINDS = (HUMAN, *STAGE_NAMES)
TITLES = {HUMAN: "human", "blend": "BlendCap", "describe": "VisualCap", "holistic": "HolisticCap"}  # as in paper 2
SEES = "describe"  # the stage that uses the multimodal model
PER_REFERENCE = ("blend", "holistic")  # stages that can run once per reference; in paper 2, five times per picture
AGAIN_TEMPERATURE, AGAIN_SEED = 0.7, 1  # at temperature 0, the same question gives the same answer


def stages(names: Sequence[str], llm: Backend | None, mllm: Backend | None, prompts: Path | None = None) -> list[Stage]:
    """Creates the named stages, each with its backend and prompt, in the order in which they run.

    ``prompts``: a folder with custom ``NAME.txt`` files. Stages for which it has no file use the paper's prompts.
    Raises `UsageError` if a stage lacks its backend or a backend has no stage.
    """
    _check_names(names)
    chosen = [name for name in STAGE_NAMES if name in names]
    if prompts is not None:
        check_folder(prompts)
    for option, backend in (("llm", llm), ("mllm", mllm)):
        needs = [name for name in chosen if (name == SEES) == (option == "mllm")]
        if backend is None and needs:
            raise UsageError(f"stage {needs[0]} requires a model; pass --{option} openai:MODEL, or scripted")
        if backend is not None and not needs:
            raise UsageError(f"--{option} has no effect on stages {','.join(chosen)}; remove it")
        if getattr(backend, "sampling", None):
            name = getattr(backend, "name", "")
            raise UsageError(f"{name}: the temperature is set by boost's prompts; remove it, or pass --prompts")
    created = []
    for name in chosen:
        backend = mllm if name == SEES else llm
        assert backend is not None
        own = _PromptRequests(read_prompt(name, prompts))
        created.append(Stage(name, backend, own.prompt.text, own.build_request, own.check, own.build_retry))
    return created


def sources_of(stage: str, references: Sequence[str], texts: Mapping[str, str]) -> list[str]:
    """Returns the texts that a stage's request quotes. The describer's request quotes none."""
    inputs = INPUTS[stage]
    return [*references] if "reference" in inputs else [texts[name] for name in inputs if name in texts]


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
    """Builds a prompt's requests for an item and checks the answers."""

    prompt: StagePrompt

    def build_request(self, item: Item, answers: Mapping[str, str]) -> Request:
        """Builds the first request. Raises `BackendError` if the item lacks one of the stage's inputs."""
        return self._request(item, answers, "", self.prompt.temperature, None)

    def build_retry(self, item: Item, answers: Mapping[str, str], bad: str) -> Request:
        """Builds the request that follows a ``bad`` answer. It states the problem and samples a new answer."""
        more = self.prompt.again
        if reason := self.check(item, answers, bad):
            more = f"{more} (The last answer was {reason}.)"
        return self._request(item, answers, more, max(AGAIN_TEMPERATURE, self.prompt.temperature), AGAIN_SEED)

    def check(self, item: Item, answers: Mapping[str, str], text: str) -> str | None:
        """Returns why an answer cannot be used, or None if it can."""
        return trouble(text, sources_of(self.prompt.name, item.references, answers), self.prompt, item.references)

    def _request(
        self, item: Item, answers: Mapping[str, str], more: str, temperature: float, seed: int | None
    ) -> Request:
        stage, sees = self.prompt.name, self.prompt.name == SEES
        sources = sources_of(stage, item.references, answers)
        if stage == "blend" and not sources:
            raise BackendError("no reference to blend")
        if len(sources) < len(INPUTS[stage]):
            missing = next(name for name in INPUTS[stage] if name not in answers)
            raise BackendError(f"no answer from stage {missing}, which stage {stage} requires")
        return Request(
            messages=self.prompt.messages(answers, item.references, more),
            picture=item.picture if sees else None,
            temperature=temperature,
            max_tokens=self.prompt.max_tokens,
            seed=seed,
            truth=item.truth if sees else None,
            item=item.id,
        )
