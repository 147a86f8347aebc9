"""What a metric can need beyond captions, and what to type where it is missing."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from tellapart.evaluation.context import POOL, EvalContext


@dataclass(frozen=True)
class Need:
    """Whether a context has it, what it is called, and what to type where the context lacks it."""

    has: Callable[[EvalContext], bool]
    label: str
    hint: str

    @property
    def message(self) -> str:
        """As it stands behind "it needs"."""
        return f"{self.label}; {self.hint}"


NEEDS: dict[str, Need] = {
    "references": Need(
        lambda context: context.references is not None,
        "references",
        "add --references FILE, or --data SPEC with references",
    ),
    "pictures": Need(
        lambda context: context.items is not None or context.image_ND is not None, "pictures", "add --data SPEC"
    ),
    "scorer": Need(lambda context: context.scorer is not None, "a scorer", "add --scorer MODEL"),
    "truth": Need(
        lambda context: context.items is not None and all(item.truth is not None for item in context.items),
        "pictures whose truth is known",
        "add --data scenes:…",
    ),
    "hundred": Need(
        lambda context: len(context.ids) >= POOL,
        f"at least {POOL} pictures",
        "use recall@1.lookalike, or give more captions",
    ),
    "two": Need(lambda context: len(context.ids) >= 2, "at least two pictures", "give more captions"),
    "six": Need(
        lambda context: min(context.lookalike, len(context.ids)) > 5,
        "look-alike sets of more than 5 pictures",
        "raise --lookalike, or give more captions",
    ),
    "six-clips": Need(lambda context: len(context.ids) > 5, "more than 5 clips", "give more captions"),
    "clips": Need(lambda context: context.of_clips, "clips", "add --data 'scenes:plain?frames=8'"),
    "tokens": Need(
        # A scorer that is named and not loaded yet is assumed to have them.
        lambda context: bool(getattr(context.scorer, "has_token_features", True)),
        "a scorer with features of single tokens",
        "add --scorer with a text tower such as CLIP's",
    ),
    "language_model": Need(
        lambda context: context.language_model is not None,
        "a language model",
        "add --language-model gpt2, or a model's folder",
    ),
    "text_encoder": Need(
        lambda context: context.text_encoder is not None,
        "a text encoder",
        "add --bertscore roberta-large, or a model's folder",
    ),
    "judge": Need(
        lambda context: context.judge is not None,
        "a judge",
        "add --llm-judge openai:MODEL@http://127.0.0.1:8000/v1",
    ),
    "questions": Need(
        lambda context: bool(context.questions),
        "questions about the pictures",
        "add --questions FILE, in CaptionQA's layout",
    ),
    "several": Need(
        lambda context: context.several,
        "several captions of a picture",
        "give a caption file that has every id several times",
    ),
}
