"""What one evaluation was given, what was computed from it once, and what a metric gives back."""

from __future__ import annotations

import re
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import TYPE_CHECKING, Any, TypeVar, cast

import numpy as np

from tellapart.evaluation.facts.synonyms import Synonyms
from tellapart.metrics.resampling import Statistic

if TYPE_CHECKING:
    from PIL import Image

    from tellapart.evaluation.judges.judge import Judge
    from tellapart.evaluation.judges.measures import ChoiceQuestion
    from tellapart.evaluation.language_model import LanguageModel
    from tellapart.evaluation.protocols import EvalScorer, TokenScorer
    from tellapart.evaluation.retrieval import CandidateSets, Retrieval
    from tellapart.evaluation.text_encoder import TextEncoder
    from tellapart.metrics.bert_score import BERTScore
    from tellapart.metrics.embedding import EMScore
    from tellapart.scenes.truth import ClaimCounts
    from tellapart.types import Item, Picture

T = TypeVar("T")
# Features of captions N×D and of their tokens, of the clips' frames, and the tokens' weights.
EMScoreInputs = tuple[np.ndarray, list[np.ndarray], list[np.ndarray], "list[np.ndarray] | None"]

POOL = 100  # pictures in a random pool (papers 2 and 3)
ALL_CLIPS = "emscore"  # every clip of the evaluation is a candidate, ranked by EMScore's F
LONG_TEXTS = ("truncate", "sentences")
EMSCORE_IDF = ("references", "captions")
_SENTENCE_END = re.compile(r"(?<=[.!?])\s+")


@dataclass(eq=False)
class Slot:
    """One caption for each picture, in the order of the ids, and the references of each."""

    captions: list[str]
    references: list[list[str]] | None = None
    repeats: np.ndarray | None = None  # where this slot repeats a caption of a picture with fewer than others


@dataclass(frozen=True)
class Corpus:
    """A number of all captions together: one row of material per picture, and what makes a statistic of rows."""

    rows: list[Any]
    build: Callable[[list[Any]], Statistic]


@dataclass(frozen=True)
class Measurement:
    """One value per picture (NaN abstains), or a corpus statistic, or both; the corpus then is what is printed.

    ``weight_N``: how many observations (questions) a picture's value is the mean of; None: one each.
    """

    value_N: np.ndarray | None
    corpus: Corpus | None = None
    weight_N: np.ndarray | None = None


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
    _long: dict[str, int] = field(default_factory=dict)  # texts beyond the window, and pieces of them that were cut

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
        return self.once(("text", id(slot), prefix), lambda: self.encode(slot.captions, prefix))

    def reference_features(self, slot: Slot, prefix: str = "") -> list[np.ndarray]:
        """Normalised features of the references of each of a slot's captions, R×D each."""
        references = slot.references or []

        def make() -> list[np.ndarray]:
            flat_RD = self.encode([text for texts in references for text in texts], prefix)
            return np.split(flat_RD, np.cumsum([len(texts) for texts in references])[:-1])

        return self.once(("references", id(slot), prefix), make)

    def encode(self, texts: Sequence[str], prefix: str = "") -> np.ndarray:
        """Normalised text features N×D float32, each distinct text encoded once, with progress.

        A text beyond the scorer's window is cut there, or, with ``long_texts`` "sentences", stands for its sentences:
        its row is the mean of theirs, so that its cosine with a picture is the mean of the sentences' cosines.
        """
        known: dict[str, np.ndarray] = self.once(("texts", prefix), dict)
        new = [text for text in dict.fromkeys(texts) if text not in known]
        if new:
            pieces = [[prefix + piece for piece in parts] for parts in self._pieces(new, prefix)]
            feature_UD = _encode_all(self.loaded_scorer, [piece for parts in pieces for piece in parts])
            if len(feature_UD) > len(pieces):
                start_U = np.cumsum([0, *[len(parts) for parts in pieces]])[:-1]
                size_U = np.array([len(parts) for parts in pieces], dtype=np.float32)
                feature_UD = np.add.reduceat(feature_UD, start_U, axis=0) / size_U[:, None]
            known.update(zip(new, feature_UD, strict=True))
            if len(new) == len(texts):
                return feature_UD  # `known` has views of it
        found_ND = np.stack([known[text] for text in texts])
        known.update(zip(texts, found_ND, strict=True))  # views of the last copy: one is kept, not two
        return found_ND

    def _pieces(self, unique: Sequence[str], prefix: str) -> list[list[str]]:
        """Each text, or its sentences where it is too long and those are wanted; and who was too long."""
        sizes = self.loaded_scorer.lengths([prefix + text for text in unique])
        pieces = []
        for text, size in zip(unique, sizes, strict=True):
            parts = [text]
            if size > self.loaded_scorer.window:
                if self.long_texts == "sentences":
                    parts = [part for part in _SENTENCE_END.split(text) if part.strip()] or [text]
                over = sum(
                    n > self.loaded_scorer.window for n in self.loaded_scorer.lengths([prefix + part for part in parts])
                )
                self._long[text] = max(over, self._long.get(text, 0))
            pieces.append(parts)
        return pieces

    def long_note(self) -> str | None:
        """What became of the texts that were longer than the scorer's window; None where there were none."""
        if not self._long:
            return None
        over = sum(self._long.values())
        window = f"the window of {self.loaded_scorer.window} tokens of {self.loaded_scorer.name}"
        said = f"{len(self._long)} distinct texts are longer than {window}"
        if self.long_texts == "sentences":
            return f"{said}; scored by sentence" + (f", and {over} sentences, longer still, were cut" if over else "")
        return f"{said}; cut there (--long-texts sentences scores them by sentence)"

    def frame_features(self) -> list[np.ndarray]:
        """Normalised features of the frames of each clip, F×D each."""

        def make() -> list[np.ndarray]:
            from dataclasses import replace

            from tellapart.features.store import FeatureStore

            assert self.items is not None
            count_N = [self.frames_of(item) for item in self.items]
            frames = [
                replace(item, picture=Frame(item.picture, number, count))
                for item, count in zip(self.items, count_N, strict=True)
                for number in range(count)
            ]
            flat_FD = np.asarray(FeatureStore().features(frames, self.loaded_scorer.encoder))
            return np.split(flat_FD, np.cumsum(count_N)[:-1])

        return self.once("frames", make)

    @property
    def of_clips(self) -> bool:
        """Whether the items are clips, all of them."""
        if self.items is None:
            return False
        from tellapart.images.clips import is_clip

        return all(is_clip(item.picture) for item in self.items)

    def frames_of(self, item: Item) -> int:
        """How many frames of an item the scorer sees: every one of a scene's clip, its ``frames`` of a file, else 1."""
        from tellapart.images.clips import is_clip

        if not is_clip(item.picture):
            return 1
        return int(getattr(item.picture, "length", self.loaded_scorer.frames))

    def emscore(self, slot: Slot) -> EMScore:
        """Precision, recall and F of a slot's captions against the frames of their clips."""
        return self.once(("emscore", id(slot)), lambda: self._emscore(slot))

    def _emscore(self, slot: Slot) -> EMScore:
        from tellapart.metrics.embedding import emscore

        return emscore(*self._emscore_inputs(slot))

    def emscore_ranks(self, slot: Slot) -> np.ndarray:
        """How many clips EMScore's F holds for likelier than a caption's own, of each of N captions; NaN: no F."""
        return self.once(("emscore ranks", id(slot)), lambda: self._emscore_ranks(slot))

    def _emscore_ranks(self, slot: Slot) -> np.ndarray:
        from tellapart.evaluation.retrieval import TIE
        from tellapart.metrics.embedding import emscore_f_rows

        rows = enumerate(emscore_f_rows(*self._emscore_inputs(slot)))
        return np.array(
            [np.nan if np.isnan(row_M[own]) else float((row_M > row_M[own] + TIE).sum()) for own, row_M in rows]
        )

    def _emscore_inputs(self, slot: Slot) -> EMScoreInputs:
        """Features of the captions and of their tokens, of the clips' frames, and the tokens' weights."""
        parts = self._pieces(slot.captions, "")
        flat = self.token_scorer.token_features([piece for pieces in parts for piece in pieces])
        ids, token_TD, at = [], [], 0
        for pieces in parts:
            ids.append([token for row, _ in flat[at : at + len(pieces)] for token in row])
            token_TD.append(np.concatenate([feature_TD for _, feature_TD in flat[at : at + len(pieces)]]))
            at += len(pieces)
        weight = self._token_weights(slot)
        weight_T = None if weight is None else [np.array([weight[token] for token in row]) for row in ids]
        return self.text_features(slot), token_TD, self.frame_features(), weight_T

    def _token_weights(self, slot: Slot) -> Mapping[int, float] | None:
        from tellapart.metrics.embedding import token_idf

        if self.emscore_idf is None:
            return None
        texts = slot.captions
        if self.emscore_idf == "references":
            texts = [text for texts in self.references or [] for text in texts]
        key = ("idf", id(slot) if self.emscore_idf == "captions" else "")
        end, window = self.token_scorer.tokenizer.eos_token_id, self.loaded_scorer.window
        assert end is not None, "a text tower such as CLIP's has an end token"
        return self.once(key, lambda: token_idf(self.token_scorer.tokenize(texts), end, window=window))

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
        if any(self.frames_of(item) > 1 for item in self.items or ()):
            name += f"|clips:mean-of-{self.loaded_scorer.frames}-frames"
        return name + ("|long:by-sentence" if self.long_texts == "sentences" else "")


@dataclass(frozen=True)
class Frame:
    """One frame of a clip, as a picture of its own."""

    clip: Picture
    number: int
    count: int

    @property
    def name(self) -> str:
        return self.clip.name

    def key(self) -> str:
        return f"{self.clip.key()}-frame{self.number}of{self.count}"

    def image(self) -> Image.Image:
        return _frames(self.clip, self.count)[self.number]  # type: ignore[arg-type]  # its type is no Hashable, it is


@lru_cache(maxsize=2)
def _frames(clip: Picture, count: int) -> list[Image.Image]:
    """The frames of a clip, decoded once for consecutive calls."""
    from tellapart.images.clips import sample_frames

    return sample_frames(clip, count)


def _encode_all(scorer: EvalScorer, texts: Sequence[str]) -> np.ndarray:
    from tellapart.progress import track

    block, feature_ND = 1024, np.zeros((0, 0), np.float32)
    starts = range(0, len(texts), block)
    for start in track(starts, len(starts), "encoding captions (1,024 a step)"):
        part_BD = scorer.text_features(texts[start : start + block]).float().cpu().numpy()
        if not start:
            feature_ND = np.empty((len(texts), part_BD.shape[1]), np.float32)
        feature_ND[start : start + block] = part_BD
    return feature_ND
