"""Rewards: numbers worked out by hand, who is held against whom, and what abstains."""

from __future__ import annotations

import math
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image

from tellapart.metrics.bleu_score import bleu
from tellapart.metrics.cider import CiderD, DocumentFrequencies, cider_d
from tellapart.metrics.meteor_score import meteor
from tellapart.objectives import Reinforce
from tellapart.rewards import Alternating, Averaged, CiderReward, MetricReward, SelfRetrieval, self_retrieval
from tellapart.rewards.retrieval import beside_distractors
from tellapart.scenes import Scenes
from tellapart.scorers import load_scorer
from tellapart.types import Batch, Item, Rollout

NAN = float("nan")


class FixedScorer:
    """Features that a test writes down; what is tested is the reward's arithmetic."""

    device, scale = torch.device("cpu"), 2.0

    def __init__(self, features: dict[str, list[float]]) -> None:
        self.features = features

    def text_features(self, texts: list[str]) -> torch.Tensor:
        return torch.tensor([self.features[text] for text in texts])


SCORER = FixedScorer({"a": [1.0, 0.0], "b": [0.6, 0.8]})
IMAGES = np.array([[1.0, 0.0], [0.0, 1.0], [0.6, 0.8]], dtype=np.float32)


def told(*texts: str, samples: int = 1) -> Rollout:
    shape = len(texts), 3
    return Rollout(torch.ones(shape, dtype=torch.long), torch.ones(shape, dtype=torch.bool), list(texts), samples)


def batch(*rows: int, bags: list[int] | None = None, step: int = 0) -> Batch:
    bag_B = None if bags is None else torch.tensor(bags)
    return Batch([], torch.tensor(rows), torch.zeros(len(rows), 1), bag_B=bag_B, step=step)


class TestSelfRetrieval:
    def test_cosine_is_the_cosine_with_the_own_picture(self) -> None:
        reward = SelfRetrieval(SCORER, IMAGES, score="cosine")(told("a", "b", "b", "a", samples=2), batch(2, 1))
        assert torch.allclose(reward, torch.tensor([[0.6, 1.0], [0.8, 0.0]]))

    def test_accuracy_is_a_hit_and_ties_are_hits(self) -> None:
        reward = SelfRetrieval(SCORER, IMAGES, score="accuracy")
        assert reward(told("a", "b", "b"), batch(0, 1, 2)).tolist() == [[1.0], [0.0], [1.0]]
        assert reward(told("a", "b"), batch(1, 1)).tolist() == [[1.0], [1.0]]

    def test_per_bag_only_the_bag_is_held_against_the_picture(self) -> None:
        where = batch(0, 1, 2, 2, bags=[4, 7, 4, 9])
        reward = SelfRetrieval(SCORER, IMAGES, candidates="bag")(told("a", "a", "b", "b"), where)
        first = 2.0 - math.log(math.exp(2.0) + math.exp(1.2))  # a: 1.0 with picture 0, 0.6 with picture 2
        third = 2.0 - math.log(math.exp(1.2) + math.exp(2.0))  # b: 0.6 with picture 0, 1.0 with picture 2
        assert reward[[0, 2], 0].tolist() == pytest.approx([first, third])
        assert reward[[1, 3]].isnan().all(), "a picture alone in its bag has nothing to be told from"
        hits = SelfRetrieval(SCORER, IMAGES, score="accuracy", candidates="bag")(told("b", "a", "b", "b"), where)
        assert hits[[0, 2], 0].tolist() == [0.0, 1.0] and hits[[1, 3]].isnan().all()
        # "b" is nearer to picture 2 than to 1, but that one is in another bag
        missed, hit = (
            SelfRetrieval(SCORER, IMAGES, score="accuracy", candidates=candidates) for candidates in ("batch", "bag")
        )
        where = batch(0, 1, 2, bags=[4, 4, 7])
        assert [reward(told("a", "b", "b"), where)[1, 0].item() for reward in (missed, hit)] == [0.0, 1.0]

    def test_identical_pictures_are_worth_minus_log_of_the_bag(self) -> None:
        images = np.tile(IMAGES[:1], (5, 1))
        reward = SelfRetrieval(SCORER, images, candidates="bag")(told(*"aabab"), batch(*range(5), bags=[0, 0, 0, 1, 1]))
        assert reward[:, 0].tolist() == pytest.approx([-math.log(3)] * 3 + [-math.log(2)] * 2)

    def test_captions_and_pictures_are_enough(self, tiny_scorer: Path) -> None:
        """In a loop of one's own, without our Rollout and Batch; pictures of 3:2 as they come, or their features."""
        scorer: Any = load_scorer(str(tiny_scorer))
        images = [Image.new("RGB", (60, 40), color) for color in ("red", "green", "blue")]
        texts = ["a red circle", "a square", "a green thing", "", "a blue circle", "a circle"]
        features_BD = scorer.image_features(scorer.pixels(images))
        for score in ("log_prob", "accuracy", "cosine"):
            reward = self_retrieval(texts, images, scorer, score=score)
            inside = SelfRetrieval(scorer, features_BD.numpy(), score=score)(told(*texts, samples=2), batch(0, 1, 2))
            assert reward.shape == (6,) and torch.equal(reward, inside.flatten())
            assert torch.equal(reward, self_retrieval(texts, features_BD, scorer, score=score))
        bag_B = torch.tensor([0, 1, 0])
        alone = self_retrieval(texts, images, scorer, bag_B=bag_B).isnan()
        assert alone.tolist() == [False, False, True, True, False, False]

    def test_what_does_not_fit_together_is_told(self) -> None:
        for texts, images in ((["a"] * 4, IMAGES), ([], IMAGES[:0]), (["a"], IMAGES[:0])):
            with pytest.raises(ValueError, match=f"{len(texts)} captions for {len(images)} pictures"):
                self_retrieval(texts, torch.from_numpy(images), SCORER)  # type: ignore[arg-type]
        with pytest.raises(ValueError, match="score is 'logprob'; expected one of log_prob, accuracy, cosine"):
            self_retrieval(["a"] * 3, torch.from_numpy(IMAGES), SCORER, score="logprob")  # type: ignore[arg-type]

    def test_own_distractors_by_hand(self) -> None:
        """ "a" of picture 0: itself 1.0, its distractor (row 2) 0.6, and not the batch's picture 1, as B is 2."""
        where = batch(0, 1)
        where.distractors_BK = torch.tensor([[2], [-1]])
        reward = SelfRetrieval(SCORER, IMAGES)(told("a", "b"), where)
        among = [(1.0, [1.0, 0.6]), (0.8, [0.8, 0.6])]  # picture 1 has no distractor: picture 0 takes the place
        expected = [2 * own - math.log(sum(math.exp(2 * one) for one in all_)) for own, all_ in among]
        assert reward[:, 0].tolist() == pytest.approx(expected)
        alone = SelfRetrieval(SCORER, IMAGES, candidates="bag")(told("a", "b"), where)
        assert alone[0, 0].item() == pytest.approx(expected[0]) and alone[1, 0].isnan()
        hits = SelfRetrieval(SCORER, IMAGES, score="accuracy")(told("b", "b"), where)
        assert hits[:, 0].tolist() == [0.0, 1.0], "of picture 0, row 2 fits better"

    def test_beside_own_distractors_there_are_so_many_others_that_all_are_as_many_as_the_batch(self) -> None:
        rows, near_BK = (
            torch.arange(0, 40, 2),
            torch.randint(0, 60, (20, 5), generator=torch.Generator().manual_seed(0)),
        )
        near_BK[3, 2:] = -1
        items = [Item(str(n), Scenes(1)[0]) for n in range(20)]
        drawn = []
        for step in (4, 4, 5):
            where = Batch(items, rows, torch.zeros(20, 1), distractors_BK=near_BK, step=step)
            among_BB = beside_distractors(where, alone=False)
            drawn.append(among_BB)
            for place, row in enumerate(rows.tolist()):
                others = rows[among_BB[place]].tolist()
                own = set(near_BK[place].tolist()) - {-1, row}
                assert row in others and not own & set(others)
                assert len(others) + int((near_BK[place] >= 0).sum()) == 20, "no more and no fewer than the batch"
        assert torch.equal(drawn[0], drawn[1]) and not torch.equal(drawn[0], drawn[2])

    def test_a_reward_per_bag_needs_bags(self) -> None:
        with pytest.raises(ValueError, match="Rewards per bag require bags, but"):
            SelfRetrieval(SCORER, IMAGES, candidates="bag")(told("a"), batch(0))

    def test_an_empty_caption_has_a_finite_reward(self, tiny_scorer: Path) -> None:
        scorer: Any = load_scorer(str(tiny_scorer))
        features = torch.nn.functional.normalize(torch.randn(3, 16), dim=-1).numpy()
        for score in ("log_prob", "accuracy", "cosine"):
            reward = SelfRetrieval(scorer, features, score=score)(told("", "a red cube", ""), batch(0, 1, 2))
            assert bool(torch.isfinite(reward).all())


REFERENCES = [list(scene.references) for scene in Scenes(12, detail=0.9)]


class TestCider:
    def test_it_is_cider_d_of_the_training_set(self) -> None:
        captions = [texts[0] for texts in REFERENCES]
        _, expected = cider_d(captions, REFERENCES)
        reward = CiderReward(REFERENCES)(told(*(captions[row] for row in (5, 2)), samples=1), batch(5, 2))
        assert reward[:, 0].tolist() == pytest.approx(expected[[5, 2]].tolist(), rel=1e-6)
        assert (reward > 1).all()

    def test_samples_go_with_their_picture(self) -> None:
        one, other = REFERENCES[3][0], REFERENCES[8][0]
        reward = CiderReward(REFERENCES)(told(one, other, other, one, samples=2), batch(3, 8))
        assert reward.shape == (2, 2) and reward[0, 0] > reward[0, 1] and reward[1, 0] > reward[1, 1]

    def test_document_frequencies_of_the_batch_are_others(self) -> None:
        """Paper 2's program: with two pictures in the batch an n-gram of one of them weighs log 2, of both nothing."""
        captions = told(REFERENCES[3][0], REFERENCES[8][0])
        reward = CiderReward(REFERENCES, idf="batch")(captions, batch(3, 8))
        _, expected = cider_d(captions.texts, [REFERENCES[3], REFERENCES[8]])
        assert reward[:, 0].tolist() == pytest.approx(expected.tolist(), rel=1e-6)
        assert not torch.allclose(reward, CiderReward(REFERENCES)(captions, batch(3, 8)))

    def test_frozen_document_frequencies_are_those_of_the_file(self, tmp_path: Path) -> None:
        frozen = CiderD(REFERENCES).frequencies([list(scene.references) for scene in Scenes(40, detail=0.5)])
        frozen.save(tmp_path / "frequencies.json")
        reward = CiderReward(REFERENCES, idf=DocumentFrequencies.load(tmp_path / "frequencies.json"))
        captions = told(REFERENCES[3][0], "a cube")
        expected = CiderD(REFERENCES, idf=frozen)(captions.texts, [3, 8])
        assert reward(captions, batch(3, 8))[:, 0].tolist() == pytest.approx(expected.tolist())
        assert not torch.allclose(reward(captions, batch(3, 8)), CiderReward(REFERENCES)(captions, batch(3, 8)))

    def test_with_the_end_token_a_caption_that_was_cut_off_is_worth_less(self) -> None:
        ids, end, padding = [[[4, 5, 6, 9]], [[7, 8, 4, 9]], [[5, 7, 8, 9]]], 9, 0
        tokens = torch.tensor([[4, 5, 6, end], [4, 5, 6, padding]])
        said = Rollout(tokens, tokens != padding, ["", ""], samples=2)
        ended, cut = CiderReward(ids, end_token=end, end=True)(said, batch(0))[0].tolist()
        assert ended == pytest.approx(10.0) and 0 < cut < ended
        without = CiderReward(ids, end_token=end)(said, batch(0))[0].tolist()
        assert without[0] == pytest.approx(without[1])

    def test_an_empty_caption_is_worth_nothing(self) -> None:
        assert CiderReward(REFERENCES)(told("", ""), batch(0, 1)).tolist() == [[0.0], [0.0]]
        empty = Rollout(torch.tensor([[9]]), torch.tensor([[True]]), [""])
        assert CiderReward([[[4, 5, 9]], [[6, 9]]], end_token=9)(empty, batch(0)).tolist() == [[0.0]]


def test_bleu_is_that_of_each_caption_alone() -> None:
    items = [Item(str(n), Scenes(1)[0], tuple(texts)) for n, texts in enumerate(REFERENCES)]
    where = Batch([items[3], items[8]], torch.tensor([3, 8]), torch.zeros(2, 1))
    said = told(REFERENCES[3][0], "a cube", "a red cube on grass", REFERENCES[8][1], samples=2)
    for n in (1, 4):
        _, expected = bleu(said.texts, [REFERENCES[3]] * 2 + [REFERENCES[8]] * 2, n)
        assert MetricReward(partial(bleu, n=n))(said, where).reshape(-1).tolist() == pytest.approx(expected.tolist())


class TestCombined:
    rewards = (
        lambda rollout, batch: torch.tensor([[1.0], [2.0], [NAN]]),
        lambda rollout, batch: torch.tensor([[3.0], [NAN], [NAN]]),
    )

    def test_averaged_leaves_out_who_abstains(self) -> None:
        reward = Averaged(self.rewards)(told("", "", ""), batch(0, 1, 2))
        assert reward[:2].tolist() == [[2.0], [2.0]] and reward[2].isnan()

    def test_alternating_takes_turns_by_step(self) -> None:
        reward = Alternating(self.rewards)
        firsts = [reward(told("", "", ""), batch(0, 1, 2, step=step))[0, 0].item() for step in (0, 1, 2, 5)]
        assert firsts == [1.0, 3.0, 1.0, 3.0]


def test_self_retrieval_takes_a_scorers_name(tiny_scorer: Path) -> None:
    images = [Image.new("RGB", (32, 32), color) for color in ("red", "green", "blue")]
    texts, loaded = ["a red thing", "a green thing", "a blue thing"], load_scorer(str(tiny_scorer))
    assert torch.equal(self_retrieval(texts, images, str(tiny_scorer)), self_retrieval(texts, images, loaded))


def test_meteor_is_a_reward() -> None:
    """Each sample's own METEOR against its picture's references."""
    pytest.importorskip("pycocoevalcap")
    picture = Scenes(1)[0].item().picture
    items = [Item(str(n), picture, texts) for n, texts in enumerate((("a dog runs", "the dog"), ("two cats",)))]
    texts = ["a dog runs", "a lawn", "two cats", "cats"]
    rollout = Rollout(torch.zeros(4, 1, dtype=torch.long), torch.ones(4, 1, dtype=torch.bool), texts, 2)
    (options,) = Reinforce.Config(rewards=[{"kind": "meteor"}], baseline="none").reward_options  # type: ignore[list-item]
    reward_BS = options.build(None)(rollout, Batch(items, torch.arange(2), torch.zeros(2, 1)))  # type: ignore[arg-type, attr-defined]
    references = [list(items[row // 2].references) for row in range(4)]
    assert reward_BS.shape == (2, 2)
    assert reward_BS.flatten().tolist() == pytest.approx(meteor(texts, references)[1].tolist())
    assert reward_BS[0, 0] > reward_BS[0, 1] and reward_BS[1, 0] == reward_BS.max()
