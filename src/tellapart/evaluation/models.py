"""Loads an evaluation's models: scorers with picture features, a language model, and text encoders."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import torch

from tellapart.data import Skipped
from tellapart.errors import UsageError
from tellapart.evaluation.candidate_inputs import CandidateInputs
from tellapart.evaluation.eval_inputs import EvalInputs
from tellapart.evaluation.language_model import load_language_model
from tellapart.evaluation.options import EvalOptions
from tellapart.evaluation.sentence_encoder import load_sentence_encoder
from tellapart.evaluation.text_encoder import load_text_encoder
from tellapart.features.store import FeatureStore
from tellapart.models import devices
from tellapart.models.training_domain import warn_outside_scenes
from tellapart.scorers import Scorer, load_scorer
from tellapart.types import Item
from tellapart.utils.messages import detail


def load_scorers(
    names: Sequence[str],
    items: Sequence[Item] | None,
    notes: list[str],
    device: str | torch.device = "auto",
    precision: str = "auto",
) -> tuple[list[tuple[Scorer, np.ndarray]], Sequence[Item] | None]:
    """Loads scorers and computes their features for the items. Skips pictures that cannot be read, and adds a note."""
    if not names or items is None:
        return [], items

    detail(f"{len(items)} pictures; loading {', '.join(names)}")
    store, skipped, whole = FeatureStore(), Skipped(), len(items)
    scorers = [load_scorer(name, device, precision) for name in names]
    for scorer in scorers:
        warn_outside_scenes(scorer.name, items, "scorer")
        items = store.readable(items, scorer.encoder, skipped=skipped)
    if not items:
        raise UsageError(f"none of the pictures can be read: {skipped.line(whole)}")
    notes += [line for line in [skipped.line(whole)] if line]
    return [(scorer, np.asarray(store.features(items, scorer.encoder))) for scorer in scorers], items


def readable_candidates(inputs: EvalInputs, items: Sequence[Item], scorer: Scorer, notes: list[str]) -> CandidateInputs:
    """Returns the candidates without pictures that cannot be read. ``items``: the captioned items that can be read."""
    given = inputs.candidates
    others = FeatureStore().readable(given.items, scorer.encoder) if given.items else []
    lost = {item.id for item in (*(inputs.items or ()), *given.items)} - {item.id for item in (*items, *others)}
    return replace(given, sets=[own.without_unreadable(lost, notes) for own in given.sets], items=others)


def load_models(options: EvalOptions, inputs: EvalInputs, notes: list[str]) -> tuple[EvalInputs, dict[str, str]]:
    """Loads the models and drops pictures that cannot be read. Returns the updated inputs, and the hardware that the
    models run on.
    """
    others = options.eval_scorers or []
    on = (options.device, options.precision)
    names = [name for name in (options.scorer, *others) if name is not None]
    scorers, items = load_scorers(names, inputs.items, notes, *on)

    perplexity, bertscore, search = options.language_model, options.bertscore, options.query_encoder
    language_model = None if perplexity is None else load_language_model(perplexity, *on)
    text_encoder = None if bertscore is None else load_text_encoder(bertscore, *on)
    query_encoder = None if search is None else load_sentence_encoder(search, *on)
    first, features_ND = scorers[0] if scorers else (None, None)
    candidates = readable_candidates(inputs, items or (), first, notes) if first is not None else inputs.candidates
    loaded = [model.model for model in (*(s for s, _ in scorers), language_model, text_encoder, query_encoder) if model]
    inputs = replace(
        inputs,
        items=items,
        candidates=candidates,
        scorer=first,
        image_features=features_ND,
        eval_scorers={Path(name).name: model for name, model in zip(others, scorers[1:], strict=True)},
        language_model=language_model,
        text_encoder=text_encoder,
        query_encoder=query_encoder,
        judge=options.judge.open(),
    )
    return inputs, devices.hardware(*loaded) if loaded else {}
