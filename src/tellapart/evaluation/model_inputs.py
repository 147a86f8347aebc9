"""The models of an evaluation: scorers with their features of the pictures, a language model, a text encoder."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np

from tellapart.errors import UsageError
from tellapart.evaluation.clip_inputs import EMSCORE_IDF
from tellapart.evaluation.context import EvalContext
from tellapart.evaluation.protocols import EvalScorer
from tellapart.evaluation.scorer_texts import LONG_TEXTS
from tellapart.utils.messages import detail

if TYPE_CHECKING:
    import torch

    from tellapart.evaluation.language_model import LanguageModel
    from tellapart.evaluation.text_encoder import TextEncoder
    from tellapart.scorers import Scorer
    from tellapart.types import Item


def load_scorers(
    names: Sequence[str],
    items: Sequence[Item] | None,
    notes: list[str],
    device: str | torch.device = "auto",
    precision: str = "auto",
) -> tuple[list[tuple[Scorer, np.ndarray]], Sequence[Item] | None]:
    """Each scorer with its features of the items; items whose picture cannot be read are left out, with a note."""
    if not names or items is None:
        return [], items
    from tellapart.data import Skipped
    from tellapart.features.store import FeatureStore
    from tellapart.models.loading import warn_outside_scenes
    from tellapart.scorers import load_scorer

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


def load_language_model_from(
    name: str | None, device: str | torch.device = "auto", precision: str = "auto"
) -> LanguageModel | None:
    if name is None:
        return None
    from tellapart.evaluation.language_model import load_language_model

    return load_language_model(name, device, precision)


def load_text_encoder_from(
    name: str | None, device: str | torch.device = "auto", precision: str = "auto"
) -> TextEncoder | None:
    if name is None:
        return None
    from tellapart.evaluation.text_encoder import load_text_encoder

    return load_text_encoder(name, device, precision)


def hardware_of(models: Iterable[Scorer | LanguageModel | TextEncoder | None]) -> dict[str, str]:
    """The device and the precision that these models ran on; empty where there are none."""
    loaded = [found.model for found in models if found is not None]
    if not loaded:
        return {}
    from tellapart.models.device import hardware

    return hardware(*loaded)


def notes_on_cut_texts(
    contexts: Iterable[EvalContext], language_model: LanguageModel | None, text_encoder: TextEncoder | None
) -> list[str]:
    """Which texts were too long for a scorer, for the language model or for the text encoder."""
    notes = [note for where in contexts for note in [where.long_note()] if note]
    if language_model is not None and language_model.cut_texts:
        notes.append(
            f"{language_model.cut_texts} texts are longer than the window of {language_model.window} tokens of "
            f"{language_model.name}; their perplexity is of what fits"
        )
    if text_encoder is not None and text_encoder.cut_texts:
        notes.append(
            f"{text_encoder.cut_texts} texts are longer than the window of {text_encoder.window} tokens of "
            f"{text_encoder.name}; their BERTScore is of what fits"
        )
    return notes


def features_of(
    scorer: EvalScorer | None, given_ND: np.ndarray | None, items: Sequence[Item] | None
) -> np.ndarray | None:
    """The scorer's features of the items: those given, else from the feature store."""
    if scorer is None or given_ND is not None or items is None:
        return given_ND
    from tellapart.features.store import FeatureStore

    return np.asarray(FeatureStore().features(items, scorer.encoder))


def check_named(metrics: Sequence[str] | None, options: Mapping[str, tuple[object, str]]) -> None:
    """Raise `UsageError` for an option of metrics that are computed where they are named only, where none is.

    options: what was given for it, and metrics that read it.
    """
    for option, (given, some) in options.items():
        if metrics is None and given is not None:
            raise UsageError(
                f"{option} is of metrics that are computed where they are named; add --metrics {some}, or leave it out"
            )


def check_scorer_options(scorer: str | None, long_texts: str, emscore_idf: str | None) -> None:
    """Raise `UsageError` for values that are none, and for options of a scorer where there is no scorer."""
    if long_texts not in LONG_TEXTS:
        raise UsageError(f"--long-texts is '{long_texts}'; expected one of {', '.join(LONG_TEXTS)}")
    if emscore_idf is not None and emscore_idf not in EMSCORE_IDF:
        raise UsageError(f"--emscore-idf is '{emscore_idf}'; expected one of {', '.join(EMSCORE_IDF)}")
    if scorer is None and (long_texts != "truncate" or emscore_idf is not None):
        raise UsageError("--long-texts and --emscore-idf are of a scorer; add --scorer MODEL, or leave them out")
