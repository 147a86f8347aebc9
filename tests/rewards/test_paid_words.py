"""Paid words and the speaker, against their definitions worked out one text and one picture at a time."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from tiny_blip import save_blip

from tellapart.captioners import load_captioner
from tellapart.captioners.decoding import decode_rows
from tellapart.language.removed_claim import neutral
from tellapart.language.words import content_words
from tellapart.models.decoding import Decoding
from tellapart.models.protocols import CaptionerLike
from tellapart.rewards import ExactTruth, MutualInformation, PaidWords, Price, Speaker, WordEffects
from tellapart.rewards.likelihood import Likelihood
from tellapart.rewards.paid_words import shuffled_gates
from tellapart.scenes import Scenes
from tellapart.scorers import load_scorer
from tellapart.types import Batch, Item, Rollout

PICTURES, SAMPLES = 5, 2
TEXTS = ["a red star on the grass", "a big blue heart", "a shape", "a star behind a small red heart", "on the sand"] * 2


class CountingScorer:
    """A real scorer that counts the texts it encodes, and refuses pictures."""

    def __init__(self, folder: Path) -> None:
        self.scorer, self.texts = load_scorer(str(folder)), 0

    def __getattr__(self, name: str) -> Any:
        if name in ("image_features", "pixels"):
            raise AssertionError("encoding pictures once, before training")
        return getattr(self.scorer, name)

    def text_features(self, texts: list[str]) -> torch.Tensor:
        self.texts += len(texts)
        return self.scorer.text_features(texts)


@pytest.fixture(scope="module")
def start(tiny_captioner: Path) -> CaptionerLike:
    captioner = load_captioner(str(tiny_captioner), precision="fp32")
    captioner.model.eval()
    return captioner


@pytest.fixture(scope="module")
def scenes() -> list[Any]:
    return list(Scenes(40))


@pytest.fixture(scope="module")
def features_ND(tiny_scorer: Path, scenes: list[Any]) -> np.ndarray:
    scorer = load_scorer(str(tiny_scorer))
    with torch.no_grad():
        return np.asarray(scorer.image_features(scorer.pixels([scene.image() for scene in scenes])))


def rollout_of(captioner: Any, texts: list[str], samples: int) -> Rollout:
    tokens_RT, valid_RT = captioner.pad(captioner.tokenize(texts))
    return Rollout(tokens_RT, valid_RT, list(texts), samples)


def batch_of(captioner: Any, scenes: list[Any], count: int = PICTURES) -> Batch:
    with torch.no_grad():
        visual = captioner.encode(captioner.pixels([scene.image() for scene in scenes[:count]])).float()
    items = [Item(str(k), scene, (), "", scene) for k, scene in enumerate(scenes[:count])]
    return Batch(items, torch.arange(count), visual)


def nearest_of(features_ND: np.ndarray, count: int) -> Any:
    def nearest(rows_B: np.ndarray) -> np.ndarray:
        cosine_BN = features_ND[rows_B] @ features_ND.T
        cosine_BN[np.arange(len(rows_B)), rows_B] = -2
        return np.argsort(-cosine_BN, axis=1)[:, :count]

    return nearest


def plain_log_p(captioner: Any, visual: torch.Tensor, text: str) -> list[float]:
    """log p of each token of one caption, for one picture."""
    tokens_1T, valid_1T = captioner.pad(captioner.tokenize([text]))
    with torch.no_grad():
        scores_TV = captioner.logits(visual[None], tokens_1T, valid_1T)[0].log_softmax(-1)
    return [float(scores_TV[t, token]) for t, token in enumerate(tokens_1T[0].tolist())]


class TestSpeaker:
    @pytest.mark.parametrize("others", [0, 2, 50])
    def test_log_probs_are_those_of_one_caption_and_one_picture(
        self, start: Any, scenes: list[Any], others: int
    ) -> None:
        batch, told = batch_of(start, scenes), rollout_of(start, TEXTS, SAMPLES)
        log_p_ORT = Speaker(start, others).log_probs(told, batch)
        used = [{0: [0, 1, 2, 3, 4], 2: [0, 1, 2], 50: [0, 1, 2, 3, 4]}[others]][0]
        for r, text in enumerate(TEXTS):
            own = r // SAMPLES
            seen = [batch.visual[own]]
            if others:
                seen += [batch.visual[(own + offset) % PICTURES] for offset in used[1:]]
            else:
                seen += [batch.visual.mean(0)]
            for o, visual in enumerate(seen):
                expected = plain_log_p(start, visual, text)
                assert log_p_ORT[o, r, : len(expected)].tolist() == pytest.approx(expected, abs=1e-4)
                assert (log_p_ORT[o, r, len(expected) :] == 0).all()
        assert len(log_p_ORT) == len(seen)

    def test_parts_of_the_batch_give_the_same(self, start: Any, scenes: list[Any], monkeypatch: Any) -> None:
        batch, told = batch_of(start, scenes), rollout_of(start, TEXTS, SAMPLES)
        whole = [Speaker(start, others).log_probs(told, batch) for others in (0, 3)]
        monkeypatch.setattr("tellapart.rewards.speaker.SCORES_AT_ONCE", 1)
        parts = [Speaker(start, others).log_probs(told, batch) for others in (0, 3)]
        assert all(torch.allclose(one, other, atol=1e-5) for one, other in zip(whole, parts, strict=True))

    def test_mutual_information_is_that_of_the_definition(self, start: Any, scenes: list[Any]) -> None:
        """Of whole captions, and of a content word given what stands before it."""
        batch, told = batch_of(start, scenes), rollout_of(start, TEXTS, SAMPLES)
        speaker = Speaker(start, 4)
        reward_BS = MutualInformation(speaker)(told, batch)
        word_BST = MutualInformation(speaker, per="word")(told, batch)
        assert reward_BS.shape == (PICTURES, SAMPLES) and word_BST.shape[:2] == (PICTURES, SAMPLES)
        r, word = 3, 1  # "a star behind a small red heart", of picture 1
        log_p_OT = torch.tensor([plain_log_p(start, batch.visual[(1 + o) % PICTURES], TEXTS[r]) for o in range(5)])
        expected = log_p_OT[0].sum() - log_p_OT[1:].sum(1).logsumexp(0) + math.log(4)
        assert reward_BS[1, 1].item() == pytest.approx(expected.item(), abs=1e-4)
        token = 1  # "star"
        expected = log_p_OT[0, token] - log_p_OT[1:, token].logsumexp(0) + math.log(4)
        assert word_BST[1, 1, word].item() == pytest.approx(expected.item(), abs=1e-4)
        assert word_BST[1, 1, 0].isnan(), "an article claims nothing"

    def test_a_single_picture_has_no_others(self, start: Any, scenes: list[Any]) -> None:
        with pytest.raises(ValueError, match="at least 2"):
            Speaker(start).log_probs(rollout_of(start, TEXTS[:1], 1), batch_of(start, scenes, 1))


class TestEffects:
    def test_they_are_drops_of_the_score_text_by_text(
        self, tiny_scorer: Path, features_ND: np.ndarray, scenes: list[Any]
    ) -> None:
        scorer = load_scorer(str(tiny_scorer))
        nearest = nearest_of(features_ND, 4)
        found = [content_words(text) for text in TEXTS]
        rows_B = np.array([3, 0, 7, 9, 1])
        near_RW, far_RW = WordEffects(scorer, features_ND, nearest)(TEXTS, found, rows_B)
        images = torch.from_numpy(features_ND)

        def log_p(text: str, own: int, candidates: list[int]) -> float:
            match = scorer.scale * (images[candidates] @ scorer.text_features([text])[0])
            return float(match.log_softmax(0)[candidates.index(own)])

        for r, words in enumerate(found):
            own = int(rows_B[r // SAMPLES])
            for w, word in enumerate(words):
                changed = neutral(TEXTS[r], word)
                near, far = [own, *nearest(np.array([own]))[0].tolist()], rows_B.tolist()
                for value_RW, candidates in ((near_RW, near), (far_RW, far)):
                    expected = log_p(TEXTS[r], own, candidates) - log_p(changed, own, candidates)
                    assert value_RW[r, w].item() == pytest.approx(expected, abs=1e-3)
            assert (near_RW[r, len(words) :] == 0).all()

    def test_one_row_of_the_text_tower_for_each_content_word_and_no_picture_twice(
        self, tiny_scorer: Path, features_ND: np.ndarray, start: Any, scenes: list[Any]
    ) -> None:
        scorer = CountingScorer(tiny_scorer)
        reward = PaidWords(WordEffects(scorer, features_ND, nearest_of(features_ND, 3)), Speaker(start))  # type: ignore[arg-type]
        told = rollout_of(start, TEXTS, SAMPLES)
        told.texts[:] = decode_rows(told.tokens_RT, told.valid_RT, start.tokenizer)  # without what it does not know
        reward_BST = reward(told, batch_of(start, scenes))
        assert scorer.texts == len(TEXTS) + sum(len(content_words(text)) for text in told.texts) > 2 * len(TEXTS)
        assert int((~reward_BST.isnan()).sum()) == scorer.texts - len(TEXTS)

    def test_captions_without_content_words_abstain(
        self, tiny_scorer: Path, features_ND: np.ndarray, start: Any, scenes: list[Any]
    ) -> None:
        effects = WordEffects(load_scorer(str(tiny_scorer)), features_ND, nearest_of(features_ND, 3))
        texts = ["on the", "a", "' is already taken; rename it", "the", "of a", "is"]
        reward_BST = PaidWords(effects, Speaker(start))(rollout_of(start, texts, 2), batch_of(start, scenes, 3))
        assert reward_BST.isnan().all()


class TestPrice:
    def test_a_believed_word_is_paid_its_worth_and_a_doubted_one_pays_the_penalty(self) -> None:
        price = Price(rent=0.1, penalty=2.0, slope=50.0, offset=0.5, truth=0.5, worth=1.5, limit=1.0)
        gate = price.gate(torch.tensor([1.0, 0.0, 0.0]), torch.tensor([0.0, 0.0, 2.0]))
        assert gate.tolist() == pytest.approx([1.0, 0.0, 1.0], abs=1e-6)
        credit = price.credit(gate, torch.tensor([0.4, 0.4, 7.0]))
        assert credit.tolist() == pytest.approx([1.5 * 0.4 - 0.1, -2.0 - 0.1, 1.5 * 1.0 - 0.1], abs=1e-5)

    def test_shuffled_gates_keep_their_sum_and_their_kind(self) -> None:
        found = [content_words("a red star behind a blue heart"), content_words("a big dog")]
        gate_RW = torch.rand(2, 5, generator=torch.Generator().manual_seed(0))
        mixed_RW = shuffled_gates(gate_RW, found, Batch([], torch.arange(2), torch.zeros(2, 1), step=3))
        modifiers = [(0, 0), (0, 3), (1, 0)]
        assert sorted(mixed_RW[m].item() for m in modifiers) == sorted(gate_RW[m].item() for m in modifiers)
        assert mixed_RW[0, 2] == gate_RW[0, 2], "the one relation has nobody to change with"
        again = shuffled_gates(gate_RW, found, Batch([], torch.arange(2), torch.zeros(2, 1), step=3))
        assert torch.equal(mixed_RW, again)


def test_the_exact_truth_marks_the_tokens_of_false_words(start: Any, scenes: list[Any]) -> None:
    from tellapart.scenes.marked_captions import mark_caption

    scene = scenes[0]
    fact = scene.facts[0]
    wrong = "heart" if all(facts[0] != "heart" for facts in scene.facts) else "star"
    texts = [f"a {fact[0]} and a {wrong}", f"a {fact[0]}"]
    batch = batch_of(start, [scene], 1)
    told = rollout_of(start, texts, 2)
    marked = mark_caption(texts[0], scene)
    assert marked.claims - marked.correct == 1
    assert ExactTruth(start.tokenizer)(told, batch).tolist() == [[-1.0, 0.0]]
    reward_BST = ExactTruth(start.tokenizer, per="token")(told, batch)
    assert reward_BST[0, 0].nansum() == -1 and reward_BST[0, 0, 4] == -1 and reward_BST[0, 1].nansum() == 0


def test_the_likelihood_is_the_mean_of_a_captions_tokens(start: Any, scenes: list[Any]) -> None:
    batch, texts = batch_of(start, scenes), [*TEXTS[:-1], ""]
    reward_BS = Likelihood(Speaker(start))(rollout_of(start, texts, SAMPLES), batch)
    assert reward_BS.shape == (PICTURES, SAMPLES)
    for r, text in enumerate(texts):
        expected = np.mean(plain_log_p(start, batch.visual[r // SAMPLES], text))
        assert float(reward_BS.flatten()[r]) == pytest.approx(float(expected), abs=1e-4)


def test_a_blip_is_asked_like_any_captioner(tmp_path: Path, tiny_scorer: Path, features_ND: np.ndarray) -> None:
    """BLIP's layout: a text decoder over patches, word pieces, 3:2 photos."""
    from PIL import Image

    words = ["a", "red", "dog", "##s", "on", "the", "grass", "bri", "##ck", "and", "cat"]
    blip = load_captioner(str(save_blip(tmp_path, words)), precision="fp32")
    blip.model.eval()
    photos = [Image.new("RGB", (90, 60), (80 * k, 120, 200 - 60 * k)) for k in range(3)]
    visual = blip.encode(blip.pixels(photos)).detach()
    told = blip.generate(visual, Decoding(kind="sample", samples=2, max_tokens=8))
    told.texts[:] = ["red dogs on the brick", "a cat", "a red dog and a cat", "the grass", "dogs", "red bricks"]
    told.tokens_RT, told.valid_RT = blip.pad(blip.tokenize(told.texts))
    batch = Batch([Item(str(k), None) for k in range(3)], torch.arange(3), visual)  # type: ignore[arg-type]
    effects = WordEffects(load_scorer(str(tiny_scorer)), features_ND, nearest_of(features_ND, 3))
    for others in (0, 2):
        reward_BST = PaidWords(effects, Speaker(blip, others))(told, batch)
        assert reward_BST.shape == (3, 2, told.tokens_RT.shape[1])
        # red dog ##s on the bri ##ck: both pieces of a word are paid the same
        first = reward_BST[0, 0]
        assert (
            first[1] == first[2] and first[5] == first[6] and first[3:5].isnan().all() and not first[:3].isnan().any()
        )
