"""Checks and tokenizes the references that a run learns from."""

from __future__ import annotations

from collections.abc import Sequence

from tellapart.captioners import Captioner
from tellapart.data.blip_references import blip_clean
from tellapart.errors import UsageError
from tellapart.recipe.schema import Recipe
from tellapart.scorers import Scorer
from tellapart.types import Item
from tellapart.utils.messages import say


def check_references(items: Sequence[Item], specs: str | tuple[str, ...], why: str) -> None:
    """Raises `UsageError` if a picture has no reference."""
    if bare := [item.id for item in items if not item.references]:
        raise UsageError(f"{specs}: {len(bare)} of {len(items)} pictures have no reference (first: {bare[0]}); {why}")


def tokenize_references(
    learner: Captioner | Scorer, recipe: Recipe, texts: Sequence[str], what: str
) -> list[list[int]]:
    """Tokenizes the references for training or validation, and reports on stderr how many were truncated."""
    limit = recipe.training.max_reference_tokens
    if recipe.data.clean == "blip":
        texts = [blip_clean(text) for text in texts]
    before = learner.cut_texts
    if isinstance(learner, Scorer):
        rows, limit = learner.tokenize(texts), learner.window
    else:
        room = learner.max_caption_tokens
        if room is not None and limit is not None and limit > room:
            raise UsageError(
                f"training.max_reference_tokens is {limit}, but {learner.name} supports at most {room} tokens; "
                "lower or remove training.max_reference_tokens"
            )
        limit = room if limit is None else limit
        rows = learner.tokenize(texts, limit)
    if cut := learner.cut_texts - before:
        say(f"{cut:,} of {len(texts):,} {what} exceed {limit} tokens and are truncated{how_to_keep(recipe)}")
    return rows


def how_to_keep(recipe: Recipe) -> str:
    """Returns a hint about the setting that reduces the truncation of references, or "" if there is no such setting."""
    captioner = recipe.captioner
    if recipe.training.max_reference_tokens is not None:
        return "; raise training.max_reference_tokens to keep more of them"
    if captioner is not None and captioner.new is not None and captioner.new.kind == "clipcap":
        return "; raise captioner.new.max_tokens to keep more of them"
    return ""
