"""All inputs of one evaluation, and what was computed from them once."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TypeVar, cast

import numpy as np

from tellapart.evaluation.clip_inputs import ClipInputs, frames_seen
from tellapart.evaluation.facts.synonyms import Synonyms
from tellapart.evaluation.scorer_texts import ScorerTexts

if TYPE_CHECKING:
    from tellapart.evaluation.judges.judge import Judge
    from tellapart.evaluation.judges.measures import ChoiceQuestion
    from tellapart.evaluation.language_model import LanguageModel
    from tellapart.evaluation.protocols import EvalScorer, TokenScorer
    from tellapart.evaluation.retrieval import CandidateSets, Retrieval
    from tellapart.evaluation.slots import Slot
    from tellapart.evaluation.text_encoder import TextEncoder
    from tellapart.metrics.bert_score import BERTScore
    from tellapart.scenes.truth import ClaimCounts
    from tellapart.types import Item

T = TypeVar("T")

POOL = 100  # pictures in a random pool (papers 2 and 3)
ALL_CLIPS = "emscore"  # every clip of the evaluation is a candidate, ranked by EMScore's F


@dataclass
class EvalContext:
    """All inputs of one evaluation, and what was computed from them once."""

    ids: list[str]
    items: Sequence[Item] | None = None
    references: list[list[str]] | None = None
    scorer: EvalScorer | str | None = None  # a name: it is not loaded yet
    image_ND: np.ndarray | None = None
    lookalike: int = 10
    seed: int = 0
    primary: EvalContext | None = None  # a further scorer ranks the look-alike sets that the first one mined
    several: bool = False  # whether some system has several captions of a picture
    language_model: LanguageModel | str | None = None
    text_encoder: TextEncoder | str | None = None  # for BERTScore
    long_texts: str = "truncate"  # what happens to captions beyond the scorer's window: one of `LONG_TEXTS`
    file_sets: Mapping[str, CandidateSets] = field(default_factory=dict)  # by name: rows of the ids, then of `extra_ND`
    extra_ND: np.ndarray | None = None  # features of pictures that are candidates only
    origins: Mapping[str, str] = field(default_factory=dict)  # what a signature says of these sets
    emscore_idf: str | None = None  # where EMScore's weights come from: one of `EMSCORE_IDF`, None for no weights
    synonyms: Synonyms = field(default_factory=Synonyms)  # of objects, for CHAIR and facts
    instances: Mapping[str, frozenset[str]] = field(default_factory=dict)  # COCO's objects by picture, for CHAIR
    judge: Judge | str | None = None  # a name: it is not opened yet
    questions: Mapping[str, Sequence[ChoiceQuestion]] = field(default_factory=dict)  # by picture, for CaptionQA
    _kept: dict[Hashable, Any] = field(default_factory=dict)

    def once(self, key: Hashable, make: Callable[[], T]) -> T:
        """What ``make`` returned when it was first called for ``key``."""
        if key not in self._kept:
            self._kept[key] = make()
        kept: T = self._kept[key]
        return kept

    def kept(self, key: Hashable) -> Any:
        """What `once` has kept for ``key``; None where it was never asked."""
        return self._kept.get(key)

    @property
    def loaded_scorer(self) -> EvalScorer:
        """The scorer of an evaluation that has one."""
        assert self.scorer is not None and not isinstance(self.scorer, str)
        return self.scorer

    @property
    def token_scorer(self) -> TokenScorer:
        """The scorer, which has features of single tokens: the need ``tokens`` says so."""
        return cast("TokenScorer", self.loaded_scorer)

    @property
    def loaded_language_model(self) -> LanguageModel:
        """The language model of an evaluation that has one."""
        assert self.language_model is not None and not isinstance(self.language_model, str)
        return self.language_model

    @property
    def loaded_judge(self) -> Judge:
        """The judge of an evaluation that has one."""
        assert self.judge is not None and not isinstance(self.judge, str)
        return self.judge

    @property
    def loaded_text_encoder(self) -> TextEncoder:
        """The text encoder of an evaluation that has one."""
        assert self.text_encoder is not None and not isinstance(self.text_encoder, str)
        return self.text_encoder

    @property
    def images(self) -> np.ndarray:
        """The scorer's normalised features of the pictures, N×D."""
        assert self.image_ND is not None
        return self.image_ND

    def sets(self, pools: str) -> CandidateSets:
        """Candidate sets of a protocol: ``random100``, ``random100-shuffled`` or ``lookalike``."""
        if self.primary is not None:
            return self.primary.sets(pools)
        return self.once(("sets", pools), lambda: self._make_sets(pools))

    def _make_sets(self, pools: str) -> CandidateSets:
        from tellapart.evaluation.retrieval import lookalike_sets, random_pools, whole_sets

        if pools in self.file_sets:
            return self.file_sets[pools]
        if pools == ALL_CLIPS:
            return whole_sets([range(len(self.ids))], ALL_CLIPS)
        if pools != "lookalike":
            return random_pools(len(self.ids), POOL, shuffled=pools.endswith("-shuffled"), seed=self.seed)
        assert self.image_ND is not None
        return lookalike_sets(self.image_ND, self.lookalike)  # equal content has equal features: no keys needed

    def text_features(self, slot: Slot, prefix: str = "") -> np.ndarray:
        """Normalised features of a slot's captions, N×D."""
        return self.once(("text", id(slot), prefix), lambda: self.texts.encode(slot.captions, prefix))

    def reference_features(self, slot: Slot, prefix: str = "") -> list[np.ndarray]:
        """Normalised features of the references of each of a slot's captions, R×D each."""
        references = slot.references or []

        def make() -> list[np.ndarray]:
            flat_RD = self.texts.encode([text for texts in references for text in texts], prefix)
            return np.split(flat_RD, np.cumsum([len(texts) for texts in references])[:-1])

        return self.once(("references", id(slot), prefix), make)

    @property
    def texts(self) -> ScorerTexts:
        """Texts as the scorer has them."""
        return self.once("texts", lambda: ScorerTexts(self.loaded_scorer, self.long_texts))

    def long_note(self) -> str | None:
        """What became of the texts that were longer than the scorer's window; None where there were none."""
        return None if self.kept("texts") is None else self.texts.long_note()

    @property
    def clips(self) -> ClipInputs:
        """The frames of the clips, and what EMScore reads."""
        assert self.items is not None
        items, references = self.items, self.references or []
        return self.once(
            "clips", lambda: ClipInputs(items, self.token_scorer, self.texts, references, self.emscore_idf)
        )

    @property
    def of_clips(self) -> bool:
        """Whether the items are clips, all of them."""
        if self.items is None:
            return False
        from tellapart.data.images.clips import is_clip

        return all(is_clip(item.picture) for item in self.items)

    def bertscore(self, slot: Slot) -> BERTScore:
        """Precision, recall and F1 of a slot's captions against their references."""
        from tellapart.metrics.bert_score import bertscore

        references = slot.references or []
        return self.once(
            ("bertscore", id(slot)), lambda: bertscore(slot.captions, references, model=self.loaded_text_encoder)
        )

    def token_losses(self, slot: Slot) -> np.ndarray:
        """Summed loss and number of tokens of a slot's captions under the language model, N×2."""
        from tellapart.metrics.perplexity import token_losses

        return self.once(("losses", id(slot)), lambda: token_losses(slot.captions, self.loaded_language_model))

    def retrieval(self, slot: Slot, pools: str) -> Retrieval:
        """The scorer's ranks for a slot's captions."""
        from tellapart.evaluation.retrieval import retrieve

        assert self.image_ND is not None
        image_ND, n = self.image_ND, len(self.ids)
        if pools in self.file_sets and self.extra_ND is not None:
            extra_ND = self.extra_ND
            image_ND = self.once("candidates", lambda: np.concatenate([self.image_ND, extra_ND]))
        return self.once(
            ("retrieval", id(slot), pools),
            lambda: retrieve(self.sets(pools), self.text_features(slot), image_ND).first(n),
        )

    def claim_counts(self, slot: Slot) -> list[ClaimCounts]:
        """A slot's captions held against the truth of their scenes."""
        from tellapart.progress import track
        from tellapart.scenes.truth import count_claims

        assert self.items is not None
        pairs = list(zip(slot.captions, self.items, strict=True))
        return self.once(
            ("claim counts", id(slot)),
            lambda: [count_claims(caption, item.truth) for caption, item in track(pairs, label="judging captions")],
        )

    def scorer_name(self) -> str:
        """Name and fingerprint, for signatures: where the scorer lies on this disk does not matter."""
        name = f"{str(self.loaded_scorer.name).rstrip('/').split('/')[-1]}@{self.loaded_scorer.encoder.fingerprint[:8]}"
        if any(frames_seen(item, self.loaded_scorer) > 1 for item in self.items or ()):
            name += f"|clips:mean-of-{self.loaded_scorer.frames}-frames"
        return name + ("|long:by-sentence" if self.long_texts == "sentences" else "")
