"""Self-distillation: teaches a captioner to state the details that it is sure of and that distinguish a picture.

A captioner that can describe a picture at length on request often knows far more than its plain captions say, and knows
how confident it is. Policy gradients must discover such detail by sampling, where most new detail is a guess. Here, the
detail comes from the description: short captions are built from the words that the initial model is confident about
(`condensing.Description`), a scorer selects the caption that best distinguishes the picture from its look-alikes, and
the captioner learns this caption by maximum likelihood. This needs neither references nor ground truth. It is best-of-N
distillation (Stiennon et al. 2020; Dong et al. 2023, RAFT) over captions that by construction contain only what the
model is confident about. As in the Rational Speech Acts framework (Frank and Goodman 2012), a listener (the scorer's
probability of the picture) and a speaker (the initial model's probability of the caption) select together.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np
import torch
from pydantic import Field, model_validator

from tellapart.language.condensing import Description, Phrase
from tellapart.language.inflection import article, singular
from tellapart.models import collectives, ranks
from tellapart.models.decoding import Decoding
from tellapart.models.protocols import CaptionerLike
from tellapart.objectives.base import ObjectiveOptions, Supervised, objective
from tellapart.objectives.detail import DetailLevel, Levels, evenly, level_contradictions, price_list
from tellapart.objectives.mle import mle_of_references
from tellapart.rewards.evidence import word_evidence
from tellapart.rewards.paid_words import shuffled_gates
from tellapart.rewards.run_parts import Look, Nearest, RunParts, frozen_scorers, unseen_by
from tellapart.rewards.speaker import Speaker
from tellapart.scorers.base import Scorer
from tellapart.types import Batch, Loss, Rollout
from tellapart.utils.blocks import blocks_of
from tellapart.utils.recipe_names import ModelName
from tellapart.utils.rng import ItemSeeds

LISTS_AT_ONCE = 8  # number of candidate lists per pass


@dataclass(frozen=True)
class Belief:
    """A picture's description, and the indices of the content words that the model is confident about.

    ``said``: indices of those words that also occur in the plain caption. ``noun``: a noun that is not specific to this
    picture, or "". ``plain``: the picture's plain caption.
    """

    description: Description
    words: frozenset[int]
    said: frozenset[int]
    noun: str
    plain: str = ""


class Describer:
    """Describes pictures with the initial model and decides which words it is confident about.

    ``plain``: the initial model with its default prompt. ``asked``: the initial model with the description prompt.
    ``pixels``: whether ``batch.visual`` contains pixels.
    """

    def __init__(
        self, plain: CaptionerLike, asked: CaptionerLike, cfg: SelfDistillation.Config, *, pixels: bool = False
    ) -> None:
        self.plain, self.asked, self.cfg, self.pixels = plain, asked, cfg, pixels

    def view(self, visual: torch.Tensor) -> torch.Tensor:
        """Returns the captioner's input for a batch's ``visual``: features, encoded from pixels if necessary."""
        return self.plain.encode(visual) if self.pixels else visual

    def __call__(self, visual: torch.Tensor, batch: Batch) -> list[Belief]:
        cfg = self.cfg
        found, log_p_RW, information_RW = self._describe(self.asked, visual, batch)
        sure_RW = (log_p_RW >= math.log(cfg.confidence)) & (information_RW >= cfg.evidence)
        if cfg.shuffled_beliefs:
            sure_RW = shuffled_gates(sure_RW, [one.words for one in found], batch)
        plain, _, says_RW = self._describe(self.plain, visual, batch)
        beliefs = []
        for r, (one, short) in enumerate(zip(found, plain, strict=True)):
            believed = [number for number in range(len(one.words)) if sure_RW[r, number]]
            first = {(one.sentences[number], one.texts[number]): number for number in reversed(believed)}
            empty = [phrase.head for phrase in short.phrases if says_RW[r, phrase.head] < cfg.evidence]
            noun = short.texts[empty[0]] if empty and cfg.noun else cfg.noun
            said = frozenset(number for (_, text), number in first.items() if text in short.texts)
            beliefs.append(Belief(one, frozenset(believed), said, noun, short.caption))
        return beliefs

    def _describe(
        self, captioner: CaptionerLike, visual: torch.Tensor, batch: Batch
    ) -> tuple[list[Description], torch.Tensor, torch.Tensor]:
        """Returns the captions and, for each content word, its log-probability and its mutual information with the
        picture, R×W.

        If a caption was truncated at ``max_tokens``, drops its last word, which may be incomplete.
        """
        share = ranks.share(len(batch.rows_B))
        with torch.no_grad():
            rollout = captioner.generate(visual[share], self.cfg.decoding, batch[share].seeds)
        if ranks.count() > 1:
            rollout = collectives.gather_rollout(rollout, captioner.tokenizer.pad_token_id or 0)
        log_p_ORT = Speaker(captioner).log_probs(rollout, replace(batch, visual=visual))
        words = word_evidence(log_p_ORT, rollout, captioner.tokenizer)
        return [Description(text) for text in whole_words(rollout, captioner)], words.log_p_RW, words.evidence_RW

    def log_probs(self, visual: torch.Tensor, options: list[list[str]]) -> list[torch.Tensor]:
        """For each picture, computes the log-probabilities M×C of its captions under the initial model with the default
        prompt, in nats.

        ``visual`` has M consecutive rows for each list of captions: the picture itself, followed by other pictures.
        """
        M = len(visual) // len(options)
        tokens = [self.plain.tokenize(one) for one in options]
        # Process lists of similar size together. Otherwise, more than half of a batch would be padding.
        order = sorted(range(len(options)), key=lambda b: (len(tokens[b]), max(map(len, tokens[b]))))
        found: dict[int, torch.Tensor] = {}
        for first in range(0, len(order), LISTS_AT_ONCE):
            part = order[first : first + LISTS_AT_ONCE]
            shown = torch.cat([visual[b * M : (b + 1) * M] for b in part])
            found |= zip(part, self._log_probs(shown, [tokens[b] for b in part]), strict=True)
        return [found[b] for b in range(len(options))]

    def _log_probs(self, visual: torch.Tensor, tokens: list[list[list[int]]]) -> list[torch.Tensor]:
        """Computes `log_probs` for lists of token ids in one pass. Pads shorter lists with their first caption."""
        M, most = len(visual) // len(tokens), max(map(len, tokens))
        rows = [row for one in tokens for row in (*one, *[one[0]] * (most - len(one)))]
        tokens_RT, valid_RT = (
            x.to(visual.device).view(len(tokens), 1, most, -1).expand(-1, M, -1, -1).flatten(0, 2)
            for x in self.plain.pad(rows)
        )
        with torch.no_grad():
            log_p_RT = Speaker(self.plain).score(visual, Rollout(tokens_RT, valid_RT, [], most)).cpu()
        log_p_BMC = log_p_RT.sum(1).view(len(tokens), M, most)
        return [one_MC[:, : len(one)] for one_MC, one in zip(log_p_BMC, tokens, strict=True)]


def whole_words(rollout: Rollout, captioner: CaptionerLike) -> list[str]:
    """Returns the captions. Drops the last word of captions without an end token."""
    ends = torch.tensor(list(captioner.stop_tokens), device=rollout.tokens_RT.device)
    ended_R = (torch.isin(rollout.tokens_RT, ends) & rollout.valid_RT).any(1).tolist()
    return [text if ended else text.rpartition(" ")[0] for text, ended in zip(rollout.texts, ended_R, strict=True)]


class Listener:
    """Measures how well a caption fits a picture and its look-alikes.

    ``scorers``: pairs of a scorer and its features_ND for all training pictures. ``nearest``: returns the look-alikes
    of training pictures. ``visual``: returns the captioner's input for training pictures; None if only scorers are
    used. ``unseen_KN``: True if scorer k was not trained on picture n and may therefore judge captions for this
    picture; None: use all scorers.
    """

    def __init__(
        self,
        scorers: Sequence[tuple[Scorer, np.ndarray]],
        nearest: Nearest,
        visual: Look | None = None,
        unseen_KN: np.ndarray | None = None,
    ) -> None:
        self.scorers, self.nearest, self.visual, self.unseen_KN = list(scorers), nearest, visual, unseen_KN

    def among(self, rows_B: np.ndarray) -> np.ndarray:
        """Returns rows_BM: the row numbers of each picture and its look-alikes."""
        return np.column_stack([rows_B, self.nearest(rows_B)])

    def logits(self, rows_BM: np.ndarray, options: list[list[str]]) -> list[torch.Tensor]:
        """For each picture, computes the logits K×M×C that K scorers assign to the picture and its look-alikes, given
        the picture's C captions.
        """
        texts = [text for one in options for text in one]
        heard_KB = []
        for scorer, features_ND in self.scorers:
            text_BCD = scorer.text_features(texts).cpu().float().split([len(one) for one in options])
            picture_BMD = torch.from_numpy(features_ND[rows_BM]).float()
            rows = zip(text_BCD, picture_BMD, strict=True)
            heard_KB.append([scorer.scale * picture_MD @ text_CD.T for text_CD, picture_MD in rows])
        heard = [torch.stack(each) for each in zip(*heard_KB, strict=True)]
        if self.unseen_KN is None:
            return heard
        listens_BK = torch.from_numpy(self.unseen_KN[:, rows_BM[:, 0]].T)
        return [one_KMC[listens_K] for one_KMC, listens_K in zip(heard, listens_BK, strict=True)]


class SelfDistillation(Supervised[CaptionerLike]):
    """Maximum likelihood on the selected captions. Without a ``listener``, selects the first candidate (a control).

    When a picture first occurs, one caption is built for each level of detail. These captions are the objective's
    state. Each rank describes its share of the pictures and selects their captions.
    """

    @objective(
        "self-distillation",
        help="Distills short captions, built from the model's confident words, that tell a picture from look-alikes.",
        direction="lower",
        needs=("start",),
    )
    class Config(ObjectiveOptions):
        """Maximum likelihood on short captions, built from the words that the initial model is confident about in its
        own descriptions.

        ``prompt`` asks the initial model for a description; "" uses its default prompt. ``confidence`` and ``evidence``
        are the minimum probability of such a word, given the preceding text, and its minimum mutual information with
        the picture, in nats; words with less are not specific to the picture. Selects one of ``candidates`` captions by
        the probability that the scorer picks the picture among its ``nearest`` look-alikes + ``speaker`` · the
        caption's log-probability under the initial model − ``rent`` per word. This is the probability, not its
        logarithm, so that captions get longer only where extra words decide whether the picture is retrieved.
        ``likelihood``: weight of the initial model's log-probabilities of the caption for these pictures, which are
        added to the scorer's logits and penalize false words. ``noun`` replaces an uncertain noun if the plain caption
        contains no generic noun; "" drops the whole phrase, which suits photos. ``scorers``: scorers to use instead of
        [scorer]. For each picture, only the least confident of the scorers that were not trained on the picture counts
        (according to the ids in the runs' recipes). The first scorer defines look-alikes. Controls: ``select`` =
        "random" selects any candidate; ``shuffled_beliefs`` permutes which words of a kind count as confident.
        ``detail``: levels from least to most detail, each with its own ``prompt`` and ``speaker``. One level has no
        prompt and uses the objective's speaker.
        """

        kind: Literal["self_distillation"]
        prompt: str = ""
        decoding: Decoding = Decoding(kind="greedy", max_tokens=40)
        confidence: float = Field(0.95, gt=0, le=1)
        evidence: float = 0.5
        candidates: int = Field(24, ge=1)
        rent: float = 0.0
        speaker: float = Field(0.005, ge=0)
        likelihood: float = Field(0.0, ge=0)
        noun: str = "thing"
        nearest: int = Field(9, ge=1)
        scorers: tuple[ModelName, ...] = ()
        select: Literal["scorer", "random"] = "scorer"
        shuffled_beliefs: bool = False
        detail: tuple[DetailLevel, ...] = ()

        @model_validator(mode="after")
        def has_an_effect(self) -> SelfDistillation.Config:
            if self.decoding.samples > 1:
                raise ValueError(
                    f"decoding.samples is {self.decoding.samples}, but self_distillation uses one description per "
                    "picture; remove decoding.samples"
                )
            if self.scorers and self.select == "random":
                raise ValueError(
                    "select = 'random' does not use a scorer, so scorers has no effect; remove scorers or select"
                )
            if len(self.detail) > 1 and self.select == "random":
                raise ValueError(
                    "select = 'random' ignores speaker weights, so all levels of detail would be equal; remove detail"
                )
            for wrong in level_contradictions(self.detail, self.speaker):
                raise ValueError(wrong)
            return self

        def levels(self) -> tuple[tuple[float, str], ...]:
            return evenly(self.detail)

        def needs(self) -> tuple[str, ...]:
            return ("start", "scorer") if self.select == "scorer" and not self.scorers else ("start",)

        def scorer_names(self) -> tuple[str, ...]:
            return self.scorers

        def build(self, parts: RunParts) -> SelfDistillation:
            plain, asked = parts.start(), parts.start(self.prompt)
            describer = Describer(plain, asked, self, pixels=parts.vision_learns)
            listener = None
            if self.select == "scorer":
                scorers = frozen_scorers(self.scorers, parts)
                heard = [(scorer, parts.train_features(scorer)) for scorer in scorers]
                visual = parts.train_visual() if self.likelihood else None
                unseen_KN = unseen_by(self.scorers, parts) if self.scorers else None
                listener = Listener(heard, parts.nearest_train(scorers[0], self.nearest), visual, unseen_KN)
            return SelfDistillation(describer, listener, self)

    def __init__(self, describer: Describer, listener: Listener | None, cfg: SelfDistillation.Config) -> None:
        self.describer, self.listener, self.cfg = describer, listener, cfg
        self.prices = price_list(cfg.detail, cfg.speaker)
        self.levels = Levels([level.prompt for level in cfg.detail] or [""])
        self._chosen: dict[int, list[str]] = {}  # maps each training picture to its caption at each level

    def __call__(self, learner: CaptionerLike, batch: Batch) -> Loss:
        assert batch.tokens_RT is not None and batch.valid_RT is not None
        total, loss = int(batch.valid_RT.sum()), torch.zeros((), device=batch.visual.device)
        for asked, places in self.levels.groups(learner, batch):
            if len(places) == len(batch.rows_B):
                return Loss(mle_of_references(asked, batch.visual, batch.tokens_RT, batch.valid_RT))
            places = places.to(batch.visual.device)
            valid_RT = batch.valid_RT[places]
            T = int(valid_RT.sum(1).max())
            part = mle_of_references(asked, batch.visual[places], batch.tokens_RT[places, :T], valid_RT[:, :T])
            loss = loss + part * (int(valid_RT.sum()) / total)
        return Loss(loss)

    def with_labels(self, learner: CaptionerLike, batch: Batch) -> Batch:
        """Returns the batch with the selected captions as labels."""
        texts, rows = self.captions(batch), [list[int]()] * len(batch.rows_B)
        for asked, places in self.levels.groups(learner, batch):  # a longer prompt leaves room for fewer tokens
            for place, row in zip(places.tolist(), asked.tokenize([texts[b] for b in places.tolist()]), strict=True):
                rows[place] = row
        tokens_RT, valid_RT = learner.pad(rows)
        return replace(batch, tokens_RT=tokens_RT.to(learner.device), valid_RT=valid_RT.to(learner.device))

    def captions(self, batch: Batch) -> list[str]:
        """Returns the target caption for each picture in the batch, at its level for this step."""
        rows = batch.rows_B.tolist()
        if any(row not in self._chosen for row in rows):
            for row, texts in zip(rows, self._choose(batch), strict=True):
                self._chosen.setdefault(row, texts)
        return [self._chosen[row][level] for row, level in zip(rows, self.levels.of(batch).tolist(), strict=True)]

    def state_dict(self) -> dict[str, Any]:
        one = len(self.prices) == 1
        return {"captions": {str(row): texts[0] if one else texts for row, texts in self._chosen.items()}}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        kept = state.get("captions", {})
        self._chosen = {int(row): [texts] if isinstance(texts, str) else texts for row, texts in kept.items()}

    def _choose(self, batch: Batch) -> list[list[str]]:
        """Returns each picture's caption at each level."""
        with torch.no_grad(), torch.autocast(batch.visual.device.type, enabled=False):
            visual = self.describer.view(batch.visual)
            beliefs = self.describer(visual, batch)
            seeds = ItemSeeds(tuple(item.id for item in batch.items), batch.seed)
            options = [candidates(one, self.cfg.candidates, seeds[b : b + 1]) for b, one in enumerate(beliefs)]
            if self.listener is None:
                return [one[:1] * len(self.prices) for one in options]
            rows_BM = self.listener.among(batch.rows_B.numpy())
            heard = self.listener.logits(rows_BM, options)  # scorers distribute the texts over the ranks themselves
            share = ranks.share(len(options))
            visual = visual[share]
            if self.cfg.likelihood:
                assert self.listener.visual is not None
                visual = self.describer.view(self.listener.visual(rows_BM[share].ravel()))
            spoken = self.describer.log_probs(visual, options[share])
            texts = [
                best(one, caption_values(heard_KMC, spoken_MC, price, self.cfg.likelihood), self.cfg.rent)
                for one, heard_KMC, spoken_MC in zip(options[share], heard[share], spoken, strict=True)
                for price in self.prices
            ]
            return [*blocks_of(collectives.gather_texts(texts), len(self.prices))]


def caption_values(
    heard_KMC: torch.Tensor, spoken_MC: torch.Tensor, speaker: float, likelihood: float = 0.0
) -> torch.Tensor:
    """Computes the value of each of C captions, before subtracting the rent.

    heard_KMC: logits of K scorers for M pictures, starting with the captions' own picture. For each caption, only the
        scorer with the lowest probability counts.
    spoken_MC: log-probabilities of the captions under the initial model, for all M pictures if ``likelihood`` is used.
    """
    picked_C = (heard_KMC + likelihood * spoken_MC).softmax(1)[:, 0].amin(0)
    return picked_C + speaker * spoken_MC[0]


def best(texts: list[str], value_C: torch.Tensor, rent: float) -> str:
    """Returns the caption with the highest value after subtracting ``rent`` per word."""
    words_C = torch.tensor([float(len(text.split())) for text in texts])
    return texts[int((value_C - rent * words_C).argmax())]


def candidates(belief: Belief, count: int, seed: ItemSeeds) -> list[str]:
    """Builds up to ``count`` distinct candidate captions from the words that the model is confident about. No candidate
    repeats a noun.

    A candidate mentions one object from a sentence in the description, or the sentence's first n objects in order. With
    any other selection, the learner loses track of which objects it has mentioned, and repeats itself. Words that also
    occur in the plain caption are always kept. For all other words, each candidate draws the fraction of nouns and the
    fraction of other words to keep. If there is no candidate, returns the fallback caption (see `_least`).
    """
    description, W = belief.description, len(belief.description.words)
    uniform_KU = seed.uniform("self-distillation", 4 + W, count).tolist()
    sentences = description.by_sentence()
    turn_K = seed.uniform("self-distillation sentences", 1, count)[:, 0].tolist()
    found: list[str] = []
    for turn, (number, which, heads, others, *draws) in zip(turn_K, uniform_KU, strict=True):
        phrases = sentences[int(turn * len(sentences))] if sentences else []
        settings = [phrase for phrase in phrases if phrase.link and not phrase.spatial]
        objects = [phrase for phrase in phrases if phrase not in settings]
        many = 1 + int(number * len(objects))
        first = int(which * len(objects)) if many == 1 else 0
        kept: set[int] = set()
        for phrase in (*settings, *objects[first : first + many]):
            drawn = {word for word in phrase.words if draws[word] < (heads if word == phrase.head else others)}
            words = belief.words & (drawn | belief.said.intersection(phrase.words))
            if phrase in objects and not description.stands(phrase, words, belief.noun):
                break
            kept |= words
        nouns = description.nouns(kept, belief.noun)
        if nouns and len(set(map(singular, nouns))) == len(nouns):  # "a red shape and a blue shape" teaches repetition
            found.append(description.condensed(kept, belief.noun))
    return list(dict.fromkeys(found)) or [_least(belief, sentences)]


def _least(belief: Belief, sentences: list[list[Phrase]]) -> str:
    """Returns a fallback caption, the first of these that exists:

    1. the confident words that also occur in the plain caption, from the first sentence that contains such words;
    2. the generic noun with its article;
    3. the plain caption.
    """
    for phrases in sentences:
        words = belief.said & {word for phrase in phrases for word in phrase.words}
        if least := belief.description.condensed(words, belief.noun):
            return least
    return f"{article(belief.noun)} {belief.noun}" if belief.noun else belief.plain
