"""The requirements of metrics: whether an evaluation meets them, and the options that add what is missing."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from tellapart.evaluation.context import POOL, EvalContext


@dataclass(frozen=True)
class Need:
    """A metric's requirement: a test of the context, the requirement's name, and the option to add if the test
    fails.
    """

    has: Callable[[EvalContext], bool]
    label: str
    hint: str

    @property
    def message(self) -> str:
        """Returns the text that follows "requires" in messages."""
        return f"{self.label}; {self.hint}"


def first_missing(needs: Sequence[str], context: EvalContext) -> str | None:
    """Returns the first unmet requirement and the option that would satisfy it, or None if all ``needs`` are met."""
    return next((NEEDS[need].message for need in needs if not NEEDS[need].has(context)), None)


NEEDS: dict[str, Need] = {
    "references": Need(
        lambda context: context.references is not None,
        "references",
        "add --references FILE, or --data SPEC with references",
    ),
    "synonyms": Need(
        lambda context: bool(context.inputs.synonyms),
        "objects with their synonyms",
        "add --set synonyms=FILE with CHAIR's synonyms.txt; or use facts_precision_object, which compares all nouns "
        "and needs no such file",
    ),
    "pictures": Need(
        lambda context: context.items is not None or context.image_ND is not None, "pictures", "add --data SPEC"
    ),
    "scorer": Need(lambda context: context.scorer is not None, "a scorer", "add --scorer MODEL"),
    "truth": Need(
        lambda context: context.items is not None and all(item.truth is not None for item in context.items),
        "pictures with known ground truth",
        "add --data scenes:…",
    ),
    "hundred": Need(
        lambda context: len(context.ids) >= POOL,
        f"at least {POOL} pictures",
        "use recall@1.lookalike, or pass more captions",
    ),
    "two": Need(lambda context: len(context.ids) >= 2, "at least two pictures", "pass more captions"),
    "six": Need(
        lambda context: min(context.inputs.lookalike, len(context.ids)) > 5,
        "look-alike sets of more than 5 pictures",
        "add --set lookalike=10, or pass more captions",
    ),
    "six-clips": Need(lambda context: len(context.ids) > 5, "more than 5 clips", "pass more captions"),
    "clips": Need(lambda context: context.of_clips, "clips", "add --data 'scenes:plain?frames=8'"),
    "tokens": Need(
        # Assumes that a scorer that is not loaded yet returns token features.
        lambda context: bool(getattr(context.scorer, "has_token_features", True)),
        "a scorer that returns token features",
        "pass a --scorer that has a text tower, such as CLIP",
    ),
    "language_model": Need(
        lambda context: context.inputs.language_model is not None,
        "a language model",
        "add --set language_model=gpt2, or the folder of another model",
    ),
    "text_encoder": Need(
        lambda context: context.inputs.text_encoder is not None,
        "a text encoder",
        "add --set bertscore=roberta-large, or the folder of another model",
    ),
    "judge": Need(
        lambda context: context.inputs.judge is not None,
        "a judge",
        "add --llm-judge openai:MODEL@http://127.0.0.1:8000/v1",
    ),
    "questions": Need(
        lambda context: bool(context.inputs.questions),
        "questions about the pictures",
        "add --set questions=FILE in CaptionQA's layout",
    ),
    "queries": Need(lambda context: bool(context.inputs.queries), "queries", "add --queries FILE"),
    "query_encoder": Need(
        lambda context: context.inputs.query_encoder is not None,
        "a sentence encoder",
        "add --set query_encoder=minilm-l6, or the folder of another model",
    ),
    "several": Need(
        lambda context: context.several,
        "several captions per picture",
        "pass a caption file that repeats ids",
    ),
    "confidences": Need(
        lambda context: context.several or any(context.inputs.confidences.values()),
        "several captions per picture, or the confidence of each claim",
        "pass a caption file that repeats ids, or one written by tellapart caption --claims",
    ),
}
