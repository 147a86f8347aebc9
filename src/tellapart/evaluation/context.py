"""The context of metrics: an evaluation's inputs in one order, and the intermediate results that metrics share."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np

from tellapart.data.pictures import is_clip
from tellapart.evaluation import retrieval
from tellapart.evaluation.candidate_sets import CandidateSets, lookalike_sets, random_pools, whole_sets
from tellapart.evaluation.clip_frames import frames_seen
from tellapart.evaluation.digests import short_digest
from tellapart.evaluation.eval_inputs import EvalInputs
from tellapart.evaluation.facts.coco_instances import names_in
from tellapart.evaluation.judges.judge import Judge
from tellapart.evaluation.retrieval import Retrieval
from tellapart.evaluation.scorer_texts import ScorerTexts
from tellapart.metrics.bert_score import BERTScore, bertscore
from tellapart.metrics.perplexity import caption_losses
from tellapart.metrics.slots import CaptionSlot
from tellapart.scenes.claims import ClaimCounts, count_claims
from tellapart.types import Item
from tellapart.utils.progress import track

if TYPE_CHECKING:
    from tellapart.evaluation.language_model import LanguageModel
    from tellapart.evaluation.sentence_encoder import SentenceEncoder
    from tellapart.evaluation.text_encoder import TextEncoder
    from tellapart.scorers import Scorer


T = TypeVar("T")
POOL = 100  # pictures in a random pool (papers 2 and 3)
UNSTATED = "unstated claims"  # key for `EvalContext.kept`: each picture's claims that have no stored confidence
ALL_CLIPS = "emscore"  # candidates are all clips of the evaluation, ranked by EMScore's F


@dataclass
class EvalContext:
    """An evaluation's inputs in the order of the ids, with cached intermediate results."""

    ids: list[str]
    items: Sequence[Item] | None = None
    references: list[list[str]] | None = None
    scorer: Scorer | str | None = None
    image_ND: np.ndarray | None = None
    inputs: EvalInputs = field(default_factory=EvalInputs)
    primary: EvalContext | None = None  # the first scorer's context; additional scorers rank its look-alike sets
    several: bool = False  # whether any system has several captions per picture
    slots: Mapping[str, Sequence[CaptionSlot]] = field(default_factory=dict)  # all systems' captions
    _kept: dict[Hashable, Any] = field(default_factory=dict, init=False)

    @cached_property
    def file_sets(self) -> dict[str, CandidateSets]:
        """Returns the candidate sets that were read from files, by name. A set holds row numbers; rows of pictures that
        are only candidates come last.
        """
        candidates = self.inputs.candidates
        row_of = {id_: row for row, id_ in enumerate((*self.ids, *(item.id for item in candidates.items)))}
        return {own.name: own.rows(row_of) for own in candidates.sets}

    @cached_property
    def candidate_ND(self) -> np.ndarray:
        """Returns the scorer's features for the pictures, then for pictures that are only candidates."""
        from tellapart.features import store

        items = self.inputs.candidates.items
        if not items:
            return self.images
        return np.concatenate([self.images, store.FeatureStore().features(items, self.loaded_scorer.encoder)])

    def once(self, key: Hashable, make: Callable[[], T]) -> T:
        """Returns ``make()``, cached under ``key``."""
        if key not in self._kept:
            self._kept[key] = make()
        kept: T = self._kept[key]
        return kept

    def kept(self, key: Hashable) -> Any:
        """Returns the value that `once` cached under ``key``, or None."""
        return self._kept.get(key)

    @property
    def loaded_scorer(self) -> Scorer:
        """Returns the scorer, which must be loaded."""
        return _loaded(self.scorer)

    @property
    def loaded_language_model(self) -> LanguageModel:
        """Returns the language model, which must be loaded."""
        return _loaded(self.inputs.language_model)

    @property
    def loaded_text_encoder(self) -> TextEncoder:
        """Returns the text encoder, which must be loaded."""
        return _loaded(self.inputs.text_encoder)

    @property
    def loaded_query_encoder(self) -> SentenceEncoder:
        """Returns the sentence encoder, which must be loaded."""
        return _loaded(self.inputs.query_encoder)

    @property
    def loaded_judge(self) -> Judge:
        """Returns the judge, which must be loaded."""
        return _loaded(self.inputs.judge)

    @property
    def flat_queries(self) -> tuple[list[str], np.ndarray]:
        """Returns all queries in picture order, and target_Q, the row of each query's picture."""
        pairs = [(text, row) for row, id_ in enumerate(self.ids) for text in self.inputs.queries.get(id_, ())]
        return [text for text, _ in pairs], np.array([row for _, row in pairs], dtype=int)

    @property
    def queries_digest(self) -> str:
        """Returns the number of queries and a hash of their text, for signatures."""
        texts, _ = self.flat_queries
        return f"queries:{len(texts)},{short_digest(texts)}"

    @cached_property
    def references_digest(self) -> str:
        """Returns a hash of the references by picture id, for signatures.

        It depends neither on the order of the pictures nor on the order of a picture's references.
        """
        return short_digest(sorted(zip(self.ids, map(sorted, self.references or ()), strict=False)))

    @cached_property
    def first_references_digest(self) -> str:
        """Returns a hash of each picture's first reference by picture id, for the signatures of judges that read it."""
        firsts = (texts[0] for texts in self.references or ())
        return short_digest(sorted(zip(self.ids, firsts, strict=False)))

    @cached_property
    def instances_digest(self) -> str:
        """Returns a hash of the objects that COCO's instances list for the pictures, for signatures."""
        instances, names = self.inputs.instances, names_in(self.inputs.instances, self.ids, self.items)
        objects = [sorted(instances.get(name, ())) for name in names]
        return short_digest(sorted(zip(self.ids, objects, strict=True)))

    @cached_property
    def questions_digest(self) -> str:
        """Returns the number of CaptionQA questions and a hash of them, for signatures."""
        questions = {id_: self.inputs.questions.get(id_, ()) for id_ in sorted(self.ids)}
        rows = [(id_, [(q.question, q.choices, q.answer) for q in own]) for id_, own in questions.items()]
        return f"{sum(map(len, questions.values()))},{short_digest(rows)}"

    @property
    def images(self) -> np.ndarray:
        """Returns the scorer's L2-normalized features for the pictures, N×D."""
        assert self.image_ND is not None
        return self.image_ND

    def sets(self, pools: str) -> CandidateSets:
        """Returns the candidate sets of a file, or of a protocol: ``random100``, ``random100-shuffled``, ``lookalike``,
        or `ALL_CLIPS`.
        """
        if self.primary is not None:
            return self.primary.sets(pools)
        if pools in self.file_sets:
            return self.file_sets[pools]

        def make() -> CandidateSets:
            if pools == ALL_CLIPS:
                return whole_sets([range(len(self.ids))], ALL_CLIPS)
            if pools == "lookalike":
                return lookalike_sets(self.images, self.inputs.lookalike)
            return random_pools(len(self.ids), POOL, pools.endswith("-shuffled"), self.inputs.seed)

        return self.once(("sets", pools), make)

    def text_features(self, slot: CaptionSlot, prefix: str = "") -> np.ndarray:
        """Returns L2-normalized features for a slot's captions, N×D."""
        return self.once(("text", id(slot), prefix), lambda: self.texts.encode(slot.captions, prefix))

    def reference_features(self, slot: CaptionSlot, prefix: str = "") -> list[np.ndarray]:
        """For each of a slot's captions, returns the L2-normalized features of its references, R×D."""
        references = slot.references or []

        def make() -> list[np.ndarray]:
            flat_RD = self.texts.encode([text for texts in references for text in texts], prefix)
            return np.split(flat_RD, np.cumsum([len(texts) for texts in references])[:-1])

        return self.once(("references", id(slot), prefix), make)

    @property
    def texts(self) -> ScorerTexts:
        """Returns the object that computes the scorer's text features."""
        return self.once("texts", lambda: ScorerTexts(self.loaded_scorer, self.inputs.long_texts))

    def long_note(self) -> str | None:
        """Returns a note on texts that exceeded the scorer's window, or None if all texts fit."""
        return None if self.kept("texts") is None else self.texts.long_note()

    @property
    def of_clips(self) -> bool:
        """Returns whether all items are clips."""
        return self.items is not None and all(is_clip(item.picture) for item in self.items)

    def bertscore(self, slot: CaptionSlot) -> BERTScore:
        """Compares a slot's captions with their references and returns BERTScore's precision, recall and F1."""
        encode, references = self.loaded_text_encoder.token_features, slot.references or []
        return self.once(("bertscore", id(slot)), lambda: bertscore(slot.captions, references, encode=encode))

    def token_losses(self, slot: CaptionSlot) -> np.ndarray:
        """Computes each caption's summed loss under the language model and its token count, N×2."""
        return self.once(("losses", id(slot)), lambda: caption_losses(slot.captions, self.loaded_language_model))

    def retrieval(self, slot: CaptionSlot, pools: str) -> Retrieval:
        """Ranks the candidates for each of a slot's captions with the scorer."""

        def make() -> Retrieval:
            image_ND = self.candidate_ND if pools in self.file_sets else self.images
            found = retrieval.retrieve(self.sets(pools), self.text_features(slot), image_ND).first(len(self.ids))
            return found.missed([row for row, text in enumerate(slot.captions) if not text.strip()])

        return self.once(("retrieval", id(slot), pools), make)

    def claim_counts(self, slot: CaptionSlot) -> list[ClaimCounts]:
        """Compares a slot's captions with the ground truth of their scenes."""

        def make() -> list[ClaimCounts]:
            pairs = list(zip(slot.captions, self.items or (), strict=True))
            return [count_claims(caption, item.truth) for caption, item in track(pairs, label="judging captions")]

        return self.once(("claim counts", id(slot)), make)

    def scorer_name(self) -> str:
        """Returns the scorer's name and fingerprint for signatures, independent of its path."""
        scorer = self.loaded_scorer
        name = f"{str(scorer.name).rstrip('/').split('/')[-1]}@{scorer.encoder.fingerprint[:8]}"
        if any(frames_seen(item, scorer) > 1 for item in self.items or ()):
            name += f"|clips:mean-of-{scorer.frames}-frames"
        return name + ("|long:by-sentence" if self.inputs.long_texts == "sentences" else "")


def _loaded(model: T | str | None) -> T:
    """Returns a model for a metric. The model is already loaded, because the metric lists it in `Metric.needs`."""
    assert model is not None and not isinstance(model, str)
    return model
