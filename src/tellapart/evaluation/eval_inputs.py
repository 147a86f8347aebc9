"""The inputs of an evaluation besides captions."""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np

from tellapart.evaluation.file_sets import FileSets
from tellapart.evaluation.judges.caption_qa import ChoiceQuestion
from tellapart.evaluation.judges.judge import Judge
from tellapart.evaluation.options import EvalSettings
from tellapart.language.claim_tuples import Synonyms
from tellapart.types import Item

if TYPE_CHECKING:
    from tellapart.evaluation.language_model import LanguageModel
    from tellapart.evaluation.sentence_encoder import SentenceEncoder
    from tellapart.evaluation.text_encoder import TextEncoder
    from tellapart.scorers import Scorer


@dataclass(frozen=True)
class CandidateInputs:
    """Candidate sets from files, and the pictures in them that have no captions and therefore are only candidates."""

    sets: Sequence[FileSets] = ()
    items: Sequence[Item] = ()
    notes: Sequence[str] = ()


@dataclass(frozen=True, kw_only=True)
class EvalInputs(EvalSettings):
    """Inputs of `tellapart.evaluation.evaluate.evaluate` besides captions. A string names a model that is not loaded
    yet.

    items: determine the order of the pictures (from which random pools are cut), the default references and the ground
        truth.
    image_features: the scorer's L2-normalized features of the items, N×D [default: from the feature store].
    eval_scorers: additional scorers with features; their metrics are named ``METRIC@NAME``, and they are evaluated on
    the look-alike sets that ``scorer`` mined.
    language_model: the model for perplexity.
    text_encoder: the model for BERTScore.
    candidates: candidate sets from files (`tellapart.evaluation.side_files`).
    synonyms: object synonyms for CHAIR and facts.
    instances: COCO's objects by picture, for CHAIR.
    questions: CaptionQA's questions by id.
    queries: search queries by picture id, for search by BM25 and by query_encoder.
    confidences: the confidence of claims by system and id, from files that ``caption --claims`` wrote.
    """

    items: Sequence[Item] | None = None
    references: Mapping[str, Sequence[str]] | None = None
    scorer: Scorer | str | None = None
    image_features: np.ndarray | None = None
    eval_scorers: Mapping[str, tuple[Scorer, np.ndarray]] = field(default_factory=dict)
    language_model: LanguageModel | str | None = None
    text_encoder: TextEncoder | str | None = None
    query_encoder: SentenceEncoder | str | None = None
    candidates: CandidateInputs = CandidateInputs()
    synonyms: Synonyms = field(default_factory=Synonyms)
    instances: Mapping[str, frozenset[str]] = field(default_factory=dict)
    judge: Judge | str | None = None
    questions: Mapping[str, Sequence[ChoiceQuestion]] = field(default_factory=dict)
    queries: Mapping[str, Sequence[str]] = field(default_factory=dict)
    confidences: Mapping[str, Mapping[str, Mapping[Hashable, float]]] = field(default_factory=dict)
