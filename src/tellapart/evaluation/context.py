"""An evaluation's inputs and cached intermediate results, and the requirements that metrics can have."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import PurePath
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np

from tellapart.data.pictures import is_clip
from tellapart.evaluation import retrieval
from tellapart.evaluation.clip_inputs import ClipInputs, frames_seen
from tellapart.evaluation.file_sets import FileSets
from tellapart.evaluation.judges.caption_qa import ChoiceQuestion
from tellapart.evaluation.judges.judge import Judge
from tellapart.evaluation.options import EvalSettings
from tellapart.evaluation.retrieval import CandidateSets, Retrieval
from tellapart.evaluation.scorer_texts import ScorerTexts
from tellapart.language.claim_tuples import Synonyms
from tellapart.metrics.bert_score import BERTScore, bertscore
from tellapart.metrics.perplexity import caption_losses
from tellapart.metrics.slots import CaptionSlot
from tellapart.scenes import truth
from tellapart.scenes.truth import ClaimCounts
from tellapart.types import Item
from tellapart.utils.progress import track

if TYPE_CHECKING:
    from tellapart.evaluation.text_models import LanguageModel, SentenceEncoder, TextEncoder
    from tellapart.scorers import Scorer


T = TypeVar("T")
POOL = 100  # pictures in a random pool (papers 2 and 3)
UNSTATED = "unstated claims"  # key of `EvalContext.kept`: the claims without a stored confidence, by picture
ALL_CLIPS = "emscore"  # candidates are all clips of the evaluation, ranked by EMScore's F


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


@dataclass
class EvalContext:
    """An evaluation's inputs in the order of the ids, with cached intermediate results."""

    ids: list[str]
    items: Sequence[Item] | None = None
    references: list[list[str]] | None = None
    scorer: Scorer | str | None = None
    image_ND: np.ndarray | None = None
    inputs: EvalInputs = EvalInputs()
    primary: EvalContext | None = None  # the first scorer; the additional scorers rank its look-alike sets
    several: bool = False  # whether any system has several captions per picture
    slots: Mapping[str, Sequence[CaptionSlot]] = field(default_factory=dict)  # all systems' captions
    _kept: dict[Hashable, Any] = field(default_factory=dict, init=False)

    @cached_property
    def file_sets(self) -> dict[str, CandidateSets]:
        """Returns candidate sets from files by name, as row numbers; candidate-only pictures have the last rows."""
        candidates = self.inputs.candidates
        row_of = {id_: row for row, id_ in enumerate((*self.ids, *(item.id for item in candidates.items)))}
        return {own.name: own.rows(row_of) for own in candidates.sets}

    @cached_property
    def candidate_ND(self) -> np.ndarray:
        """Returns the scorer's features of the pictures, followed by those of candidate-only pictures."""
        from tellapart.features import store

        items = self.inputs.candidates.items
        if not items:
            return self.images
        return np.concatenate([self.images, store.FeatureStore().features(items, self.loaded_scorer.encoder)])

    def lacks(self, needs: Sequence[str]) -> str | None:
        """Returns the first unmet requirement and the option that satisfies it, or None if all ``needs`` are met."""
        return next((NEEDS[need].message for need in needs if not NEEDS[need].has(self)), None)

    def once(self, key: Hashable, make: Callable[[], T]) -> T:
        """Returns ``make()``, cached by ``key``."""
        if key not in self._kept:
            self._kept[key] = make()
        kept: T = self._kept[key]
        return kept

    def kept(self, key: Hashable) -> Any:
        """Returns the value that `once` has cached for ``key``, or None."""
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
        """Returns all queries in the order of their pictures, and target_Q, the row of each query's picture."""
        pairs = [(text, row) for row, id_ in enumerate(self.ids) for text in self.inputs.queries.get(id_, ())]
        return [text for text, _ in pairs], np.array([row for _, row in pairs], dtype=int)

    @property
    def queries_digest(self) -> str:
        """Returns the number of queries and a hash of their texts, for signatures."""
        texts, _ = self.flat_queries
        return f"queries:{len(texts)},{short_digest(texts)}"

    @cached_property
    def references_digest(self) -> str:
        """Returns a hash of the references by picture id, for signatures.

        It depends neither on the order of the pictures nor on the order of a picture's references.
        """
        pairs = zip(self.ids, self.references or (), strict=False)
        return short_digest(sorted((id_, sorted(texts)) for id_, texts in pairs))

    @cached_property
    def first_references_digest(self) -> str:
        """Returns a hash of each picture's first reference by picture id, for signatures of judges that read it."""
        pairs = zip(self.ids, self.references or (), strict=False)
        return short_digest(sorted((id_, texts[0]) for id_, texts in pairs))

    @cached_property
    def instances_digest(self) -> str:
        """Returns a hash of the pictures' objects in COCO's instances, for signatures."""
        instances, names = self.inputs.instances, names_in(self.inputs.instances, self.ids, self.items)
        objects = [sorted(instances.get(name, ())) for name in names]
        return short_digest(sorted(zip(self.ids, objects, strict=True)))

    @cached_property
    def questions_digest(self) -> str:
        """Returns the number of CaptionQA's questions and a hash of them, for signatures."""
        questions = self.inputs.questions
        rows = [(id_, [(q.question, q.choices, q.answer) for q in questions.get(id_, ())]) for id_ in sorted(self.ids)]
        return f"{sum(len(own) for _, own in rows)},{short_digest(rows)}"

    @property
    def images(self) -> np.ndarray:
        """Returns the scorer's L2-normalized features of the pictures, N×D."""
        assert self.image_ND is not None
        return self.image_ND

    def sets(self, pools: str) -> CandidateSets:
        """Returns a protocol's candidate sets: ``random100``, ``random100-shuffled`` or ``lookalike``."""
        if self.primary is not None:
            return self.primary.sets(pools)
        return self.once(("sets", pools), lambda: self._make_sets(pools))

    def _make_sets(self, pools: str) -> CandidateSets:
        if pools in self.file_sets:
            return self.file_sets[pools]
        if pools == ALL_CLIPS:
            return retrieval.whole_sets([range(len(self.ids))], ALL_CLIPS)
        if pools != "lookalike":
            return retrieval.random_pools(
                len(self.ids), POOL, shuffled=pools.endswith("-shuffled"), seed=self.inputs.seed
            )
        # Pictures with equal content have equal features, so no keys are needed.
        return retrieval.lookalike_sets(self.images, self.inputs.lookalike)

    def text_features(self, slot: CaptionSlot, prefix: str = "") -> np.ndarray:
        """Returns the L2-normalized features of a slot's captions, N×D."""
        return self.once(("text", id(slot), prefix), lambda: self.texts.encode(slot.captions, prefix))

    def reference_features(self, slot: CaptionSlot, prefix: str = "") -> list[np.ndarray]:
        """Returns the L2-normalized features of each caption's references, R×D, for a slot's captions."""
        references = slot.references or []

        def make() -> list[np.ndarray]:
            flat_RD = self.texts.encode([text for texts in references for text in texts], prefix)
            return np.split(flat_RD, np.cumsum([len(texts) for texts in references])[:-1])

        return self.once(("references", id(slot), prefix), make)

    @property
    def texts(self) -> ScorerTexts:
        """Returns the scorer's text features."""
        return self.once("texts", lambda: ScorerTexts(self.loaded_scorer, self.inputs.long_texts))

    def long_note(self) -> str | None:
        """Returns a note on the texts that were longer than the scorer's window; None if there were none."""
        return None if self.kept("texts") is None else self.texts.long_note()

    @property
    def clips(self) -> ClipInputs:
        """Returns the clips' frames and EMScore's inputs."""
        items, references = self.items or (), self.references or ()
        return self.once("clips", lambda: ClipInputs(items, self.texts, references, self.inputs.emscore_idf, self.once))

    @property
    def of_clips(self) -> bool:
        """Returns whether all items are clips."""
        return self.items is not None and all(is_clip(item.picture) for item in self.items)

    def bertscore(self, slot: CaptionSlot) -> BERTScore:
        """Computes precision, recall and F1 of a slot's captions against their references."""
        references = slot.references or []
        return self.once(
            ("bertscore", id(slot)),
            lambda: bertscore(slot.captions, references, encode=self.loaded_text_encoder.token_features),
        )

    def token_losses(self, slot: CaptionSlot) -> np.ndarray:
        """Computes the summed loss and token count of a slot's captions under the language model, N×2."""
        return self.once(("losses", id(slot)), lambda: caption_losses(slot.captions, self.loaded_language_model))

    def retrieval(self, slot: CaptionSlot, pools: str) -> Retrieval:
        """Computes the scorer's ranks for a slot's captions."""

        def make() -> Retrieval:
            image_ND = self.candidate_ND if pools in self.file_sets else self.images
            found = retrieval.retrieve(self.sets(pools), self.text_features(slot), image_ND).first(len(self.ids))
            mute = [row for row, text in enumerate(slot.captions) if not text.strip()]
            return found.missed(mute) if mute else found

        return self.once(("retrieval", id(slot), pools), make)

    def claim_counts(self, slot: CaptionSlot) -> list[ClaimCounts]:
        """Compares a slot's captions with the ground truth of their scenes."""
        assert self.items is not None
        pairs = list(zip(slot.captions, self.items, strict=True))
        return self.once(
            ("claim counts", id(slot)),
            lambda: [
                truth.count_claims(caption, item.truth) for caption, item in track(pairs, label="judging captions")
            ],
        )

    def scorer_name(self) -> str:
        """Returns the scorer's name and fingerprint for signatures, independent of its path."""
        name = f"{str(self.loaded_scorer.name).rstrip('/').split('/')[-1]}@{self.loaded_scorer.encoder.fingerprint[:8]}"
        if any(frames_seen(item, self.loaded_scorer) > 1 for item in self.items or ()):
            name += f"|clips:mean-of-{self.loaded_scorer.frames}-frames"
        return name + ("|long:by-sentence" if self.inputs.long_texts == "sentences" else "")


def short_digest(value: Any) -> str:
    """Returns an eight-digit hex hash of a JSON value, for signatures."""
    return hashlib.blake2b(json.dumps(value).encode(), digest_size=4).hexdigest()


def _loaded(model: T | str | None) -> T:
    """Returns a model for a metric. It is loaded, because the metric's `Metric.needs` names it."""
    assert model is not None and not isinstance(model, str)
    return model


def names_in(instances: Mapping[str, frozenset[str]], ids: Sequence[str], items: Sequence[Item] | None) -> list[str]:
    """Returns the name of each picture in COCO's instances, which can be its id or its file's path, name or stem; "" if
    none matches.
    """
    files = [""] * len(ids) if items is None else [item.picture.name for item in items]
    names = []
    for id_, file in zip(ids, files, strict=True):
        ways = (way for name in (id_, file) for way in (name, PurePath(name).name, PurePath(name).stem))
        names.append(next((way for way in ways if way and way in instances), ""))
    return names


@dataclass(frozen=True)
class Need:
    """A requirement of a metric: its name, a test of the context, and the option to add if the test fails."""

    has: Callable[[EvalContext], bool]
    label: str
    hint: str

    @property
    def message(self) -> str:
        """Returns the text that follows "it needs" in messages."""
        return f"{self.label}; {self.hint}"


NEEDS: dict[str, Need] = {
    "references": Need(
        lambda context: context.references is not None,
        "references",
        "add --references FILE, or --data SPEC with references",
    ),
    "synonyms": Need(
        lambda context: bool(context.inputs.synonyms),
        "objects with their synonyms",
        "add --set synonyms=FILE, CHAIR's synonyms.txt; or use facts_precision_object, which compares all nouns "
        "without it",
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
        # Assumes that a scorer that is not loaded yet returns them.
        lambda context: bool(getattr(context.scorer, "has_token_features", True)),
        "a scorer that returns token features",
        "pass --scorer with a text tower such as CLIP's",
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
        "pass a caption file that repeats ids, or one of tellapart caption --claims",
    ),
}
