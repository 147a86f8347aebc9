"""The inputs of an evaluation other than captions."""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np

from tellapart.evaluation.candidate_inputs import CandidateInputs
from tellapart.evaluation.judges.captionqa_questions import ChoiceQuestion
from tellapart.evaluation.judges.judge import Judge
from tellapart.evaluation.options import EvalSettings
from tellapart.language.synonyms import Synonyms
from tellapart.types import Item

if TYPE_CHECKING:
    from tellapart.evaluation.language_model import LanguageModel
    from tellapart.evaluation.sentence_encoder import SentenceEncoder
    from tellapart.evaluation.text_encoder import TextEncoder
    from tellapart.scorers import Scorer


@dataclass(frozen=True, kw_only=True)
class EvalInputs(EvalSettings):
    """All inputs of `tellapart.evaluation.evaluate.evaluate` except the captions. A model that is not loaded yet is
    given by name.

    items: the pictures, with default references and ground truth. Random pools are cut in their order.
    image_features: the scorer's L2-normalized features for the items, N×D [default: from the feature store].
    eval_scorers: additional scorers with their features. Their metrics are named ``METRIC@NAME``, and use the
        look-alike sets that ``scorer`` mined.
    language_model: the model for perplexity.
    text_encoder: the model for BERTScore.
    candidates: candidate sets from files (`tellapart.evaluation.candidate_inputs`).
    synonyms: object synonyms for CHAIR and facts.
    instances: each picture's objects in COCO's instances, for CHAIR.
    questions: CaptionQA's questions by id.
    queries: search queries by picture id, for search with BM25 and with query_encoder.
    confidences: each claim's confidence by system and id, from files written by ``caption --claims``.
    """

    items: Sequence[Item] | None = None
    references: Mapping[str, Sequence[str]] | None = None
    scorer: Scorer | str | None = None
    image_features: np.ndarray | None = None
    eval_scorers: Mapping[str, tuple[Scorer, np.ndarray]] = field(default_factory=dict)
    language_model: LanguageModel | str | None = None
    text_encoder: TextEncoder | str | None = None
    query_encoder: SentenceEncoder | str | None = None
    candidates: CandidateInputs = field(default_factory=CandidateInputs)
    synonyms: Synonyms = field(default_factory=Synonyms)
    instances: Mapping[str, frozenset[str]] = field(default_factory=dict)
    judge: Judge | str | None = None
    questions: Mapping[str, Sequence[ChoiceQuestion]] = field(default_factory=dict)
    queries: Mapping[str, Sequence[str]] = field(default_factory=dict)
    confidences: Mapping[str, Mapping[str, Mapping[Hashable, float]]] = field(default_factory=dict)
