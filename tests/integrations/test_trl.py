"""Rewards and bags in TRL itself, on a tiny Qwen2-VL in its real layout."""

from __future__ import annotations

import json
import os
import pickle
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import torch
from forked import finish, fork_ranks
from PIL import Image

pytest.importorskip("trl", reason="pip install tellapart[trl]")

HERE = Path(__file__).parent
sys.path[:0] = [str(HERE), str(HERE.parent / "captioners")]

import trl_run  # noqa: E402
from families import FAMILIES  # noqa: E402
from trl_run import pictures, settings  # noqa: E402

from tellapart.bags.file import (  # noqa: E402
    Bag,
    BagsFile,
    Header,
    write_bags,
)
from tellapart.captioners import load_captioner  # noqa: E402
from tellapart.errors import UsageError  # noqa: E402
from tellapart.integrations.trl import Bank, bag_order, cider, pmi, processing_class, self_retrieval  # noqa: E402
from tellapart.integrations.trl.rows import RewardFunction, text_of  # noqa: E402
from tellapart.rewards.pmi import MutualInformation  # noqa: E402
from tellapart.rewards.retrieval import self_retrieval as plain  # noqa: E402
from tellapart.rewards.speaker import Speaker  # noqa: E402
from tellapart.scorers import load_scorer  # noqa: E402
from tellapart.types import Batch, Rollout  # noqa: E402


@pytest.fixture(scope="module")
def qwen(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return FAMILIES["qwen2_vl"](tmp_path_factory.mktemp("qwen"))


TEXTS = ["a red ball", "grass", "a dog left of a tree", "two cats", "a red ball on grass", "the sky", "a hat", "water"]


def messages(texts: list[str]) -> list[list[dict[str, str]]]:
    return [[{"role": "assistant", "content": text}] for text in texts]


def test_the_reward_is_that_of_the_training_loop(tiny_scorer: Path) -> None:
    scorer, rows = load_scorer(str(tiny_scorer)), pictures(4)
    images = [image for image in rows["image"] for _ in range(2)]
    for score in ("log_prob", "accuracy", "cosine"):
        reward = self_retrieval(scorer, score=score)  # type: ignore[arg-type]
        expected_R = plain(TEXTS, list(rows["image"]), scorer, score=score)  # type: ignore[arg-type]
        assert torch.tensor(reward(messages(TEXTS), image=images)) == pytest.approx(expected_R, abs=1e-5)
        assert torch.tensor(reward(TEXTS, image=[[image] for image in images])) == pytest.approx(expected_R, abs=1e-5)


def test_bags_compare_with_their_own_and_a_picture_alone_abstains(tiny_scorer: Path) -> None:
    scorer, rows = load_scorer(str(tiny_scorer)), pictures(4)
    images = [image for image in rows["image"] for _ in range(2)]
    found = self_retrieval(scorer, "bag")(TEXTS, image=images, bag=[7, 7, 7, 7, 7, 7, "alone", "alone"])
    expected_R = plain(TEXTS, list(rows["image"]), scorer, bag_B=torch.tensor([0, 0, 0, 1]))
    assert found[6:] == [None, None]
    assert torch.tensor(found[:6]) == pytest.approx(expected_R[:6], abs=1e-5)


def test_a_picture_of_two_rows_is_one_candidate(tiny_scorer: Path) -> None:
    """Rows of one picture come apart where TRL shuffles; as two candidates they would halve its probability."""
    scorer, (one, two) = load_scorer(str(tiny_scorer)), pictures(2)["image"]
    apart = self_retrieval(scorer)(TEXTS[:4], image=[one, two, one.copy(), two])
    expected_R = plain([TEXTS[0], TEXTS[2], TEXTS[1], TEXTS[3]], [one, two], scorer)
    assert torch.tensor(apart) == pytest.approx(expected_R[[0, 2, 1, 3]], abs=1e-5)


def test_a_bank_is_there_at_every_step(tiny_scorer: Path) -> None:
    scorer, rows = load_scorer(str(tiny_scorer)), pictures(6)
    bank = Bank.encode(scorer, dict(zip(rows["id"], rows["image"], strict=True)))
    found = self_retrieval(scorer, "bank", bank=bank)(TEXTS[:2], id=["5.jpg", "0.jpg"])
    expected_R = plain([TEXTS[1], *TEXTS[2:6], TEXTS[0]], list(rows["image"]), scorer)
    assert torch.tensor(found) == pytest.approx(expected_R[[5, 0]], abs=1e-5)
    with pytest.raises(UsageError, match="no picture 'x'"):
        self_retrieval(scorer, "bank", bank=bank)(["a"], id=["x"])


def test_each_picture_is_encoded_once(tiny_scorer: Path) -> None:
    scorer, encoded = load_scorer(str(tiny_scorer)), []
    image_features = scorer.image_features

    def counted(pixels: torch.Tensor) -> torch.Tensor:
        encoded.append(len(pixels))
        return image_features(pixels)

    scorer.image_features = counted  # type: ignore[method-assign]
    reward, images = self_retrieval(scorer), [image for image in pictures(4)["image"] for _ in range(2)]
    first = reward(TEXTS, image=images)
    assert reward(TEXTS, image=images) == first
    assert encoded == [4]


def test_cider_is_the_metric(tiny_scorer: Path) -> None:
    from tellapart.metrics import cider_d

    references = {"a.jpg": ["a red ball on grass", "one ball"], "b.jpg": ["the sky above water", "blue sky"]}
    found = cider(references)(messages(["the sky", "a red ball"]), id=["b.jpg", "a.jpg"])
    _, expected = cider_d(["a red ball", "the sky"], list(references.values()))
    assert found == pytest.approx([expected[1], expected[0]])
    with pytest.raises(UsageError, match="no references for picture 'c'; references must"):
        cider(references)(["x"], id=["c"])


def test_cider_is_pickled_as_a_spawned_process_needs_it() -> None:
    reward = cider({"a.jpg": ["a red ball", "the ball"], "b.jpg": ["the sky"]})
    again = pickle.loads(pickle.dumps(reward))
    assert again.__name__ == "cider"
    rows: dict[str, Any] = {"completions": ["a red ball", "a sky"], "id": ["a.jpg", "b.jpg"]}
    assert again(**rows) == reward(**rows) != [0.0, 0.0]


@pytest.mark.parametrize(
    "completion", [[], [{"role": "assistant", "content": None}], [{"role": "assistant", "tool_calls": [{"id": "1"}]}]]
)
def test_a_completion_without_a_text_is_one_line(completion: list[dict[str, Any]], tiny_scorer: Path) -> None:
    for reward in (cider({"a": ["x"]}), self_retrieval(load_scorer(str(tiny_scorer)))):
        with pytest.raises(UsageError, match=r"a completion has no text \(\[.*; expected a string, or messages"):
            reward([completion], id=["a"], image=[])
    assert text_of([{"content": [{"type": "text", "text": None}, {"type": "text", "text": " a dog "}]}]) == "a dog"


@dataclass
class Args:
    per_device_train_batch_size: int = 4
    steps_per_generation: int | None = 2
    num_generations: int = 2
    shuffle_dataset: bool = False


def test_pmi_is_the_reward_of_the_training_loop(tiny_captioner: Path) -> None:
    """Against `MutualInformation`, picture by picture; a picture of several rows counts once in the average."""
    captioner, rows = load_captioner(str(tiny_captioner), "cpu", "fp32"), pictures(4)
    captioner.model.eval()
    images = list(rows["image"])
    visual = captioner.encode(captioner.pixels(images))
    tokens_RT, valid_RT = captioner.pad(captioner.tokenize(TEXTS))
    batch = Batch([], torch.arange(4), visual)
    expected_BS = MutualInformation(Speaker(captioner))(Rollout(tokens_RT, valid_RT, TEXTS, 2), batch)
    found = pmi(captioner)(messages(TEXTS), image=[image for image in images for _ in range(2)])
    assert torch.tensor(found) == pytest.approx(expected_BS.flatten(), abs=1e-5)
    assert len({round(value, 6) for value in found if value is not None}) > 4
    assert pmi(captioner)(TEXTS[:2], image=[images[0], images[0].copy()]) == [None, None]
    with pytest.raises(UsageError, match="image"):
        pmi(captioner)(TEXTS[:2])


@pytest.mark.parametrize("family", ["qwen2_vl", "llava_next"])
def test_pictures_of_several_shapes_have_no_average(family: str, tmp_path: Path) -> None:
    """Rows begin with the picture's shape, which a mean would mix: pmi says so, and the loop's asks four others."""
    captioner = load_captioner(str(FAMILIES[family](tmp_path)), "cpu", "fp32")
    captioner.model.eval()
    wide, tall = Image.new("RGB", (160, 90), (200, 30, 30)), Image.new("RGB", (90, 160), (30, 30, 200))
    with pytest.raises(UsageError, match="differ in shape and cannot be averaged; resize the pictures to"):
        pmi(captioner)(TEXTS[:2], image=[wide, tall])
    same = pmi(captioner)(TEXTS[:2], image=[wide, Image.new("RGB", (160, 90), (30, 200, 30))])
    assert all(isinstance(value, float) for value in same)
    visual = captioner.encode(captioner.pixels([wide, tall]))
    tokens_RT, valid_RT = captioner.pad(captioner.tokenize(TEXTS[:2]))
    rollout, batch = Rollout(tokens_RT, valid_RT, TEXTS[:2], 1), Batch([], torch.arange(2), visual)
    found = Speaker(captioner).log_probs(rollout, batch)
    torch.testing.assert_close(found, Speaker(captioner, 4).log_probs(rollout, batch))
    assert found.shape[0] == 2  # its own picture and the one other of the batch


def test_bags_stay_whole_on_a_rank_or_the_line_says_which_numbers_to_change() -> None:
    dataset = pictures(8)
    bags = [Bag(tuple(f"{n + k}.jpg" for k in (0, 1))) for n in range(0, 8, 2)]
    ordered = bag_order(dataset, bags, Args())
    pairs = [set(ordered["id"][n : n + 2]) for n in range(0, 8, 2)]
    assert sorted(map(sorted, pairs)) == [sorted(bag.ids) for bag in bags]
    assert [ordered["bag"][n] == ordered["bag"][n + 1] for n in range(0, 8, 2)] == [True] * 4
    assert ordered["id"] != bag_order(dataset, bags, Args(), seed=1)["id"]
    with pytest.raises(UsageError, match=r"captions per generation \(per_device_train_batch_size 6 ×"):
        bag_order(dataset, bags, Args(per_device_train_batch_size=6, steps_per_generation=1))
    with pytest.raises(UsageError, match="shuffle_dataset=False"):
        bag_order(dataset, bags, Args(shuffle_dataset=True))
    with pytest.raises(UsageError, match=r"sizes 1, 2"):
        bag_order(dataset, [("0.jpg",), ("1.jpg", "2.jpg")], Args())
    with pytest.raises(UsageError, match=r"a bag contains picture '9.jpg', which is not in the data set"):
        bag_order(dataset, [("0.jpg", "9.jpg")], Args())


def test_of_bags_of_several_sizes_one_is_chosen_and_truematchs_file_is_read(tmp_path: Path) -> None:
    """Issue: `bags mine` writes several sizes to one file, of which none could be chosen, and 3.json was no file."""
    dataset = pictures(8)
    bags = [Bag(tuple(f"{n + k}.jpg" for k in range(size))) for size in (2, 4) for n in range(0, 8, size)]
    write_bags(tmp_path / "bags.jsonl", BagsFile(Header(), bags))
    ordered = bag_order(dataset, tmp_path / "bags.jsonl", Args(), size=2)
    assert sorted(ordered["bag"]) == [n for n in range(4) for _ in range(2)]
    with pytest.raises(UsageError, match="the file contains bags of sizes 2, 4; select one of"):
        bag_order(dataset, tmp_path / "bags.jsonl", Args())
    with pytest.raises(UsageError, match="no bags of size 3; available sizes: 2, 4"):
        bag_order(dataset, bags, Args(), size=3)
    (tmp_path / "2.json").write_text('[["0.jpg", "1.jpg"], ["4.jpg", "5.jpg"]]')
    assert sorted(bag_order(dataset, tmp_path / "2.json", Args())["id"]) == ["0.jpg", "1.jpg", "4.jpg", "5.jpg"]


@pytest.mark.parametrize(
    ("options", "line"),
    [
        ({"candidates": "everything"}, "expected one of batch, bag, bank"),
        ({"candidates": "bank"}, r"candidates='bank' and bank=Bank\(ids,"),
        ({"score": "margin"}, "expected one of log_prob"),
    ],
)
def test_wrong_settings_are_refused_at_once(options: dict[str, Any], line: str) -> None:
    with pytest.raises(UsageError, match=line):
        self_retrieval("no/such", **options)


def test_a_missing_column_is_named(tiny_scorer: Path) -> None:
    with pytest.raises(UsageError, match="no column 'image'"):
        self_retrieval(str(tiny_scorer))(["a"], pixels=[1])


class Decoy:
    """A scorer in whose eyes every caption with one word fits a picture that is always a candidate."""

    device, scale = torch.device("cpu"), 5.0

    def pixels(self, images: Any) -> torch.Tensor:
        return torch.stack([torch.tensor(float(image.size == (5, 5))) for image in images])

    def image_features(self, pixels_B: torch.Tensor) -> torch.Tensor:
        return torch.stack([1 - pixels_B, pixels_B], dim=1)

    def text_features(self, texts: Any) -> torch.Tensor:
        decoy_N = torch.tensor([float("describe" in text) for text in texts])
        return torch.stack([1 - decoy_N, decoy_N], dim=1)


@pytest.mark.long
@pytest.mark.parametrize(("kind", "rise"), [("GRPO", 1.0), ("RLOO", 0.5)])  # RLOO pays for leaving the start, too
def test_five_steps_raise_the_reward(kind: str, rise: float, qwen: Path, tmp_path: Path) -> None:
    import trl
    from PIL import Image
    from transformers import AutoModelForImageTextToText

    torch.manual_seed(0)
    dataset, scorer = pictures(4), Decoy()
    shown = dict(zip(dataset["id"], dataset["image"], strict=True)) | {"decoy": Image.new("RGB", (5, 5))}
    bank = Bank.encode(scorer, shown)
    trainer = getattr(trl, f"{kind}Trainer")(
        model=AutoModelForImageTextToText.from_pretrained(qwen),
        reward_funcs=[self_retrieval(scorer, "bank", bank=bank), cider({id_: ["grass"] for id_ in shown})],
        args=settings(
            tmp_path, getattr(trl, f"{kind}Config"), per_device_train_batch_size=32, num_generations=8, max_steps=5,
            learning_rate=2e-2, reward_weights=[1.0, 0.0],
        ),
        train_dataset=dataset,
        processing_class=processing_class(str(qwen)),
    )  # fmt: skip
    trainer.train()
    rewards = [entry["rewards/self_retrieval/mean"] for entry in trainer.state.log_history if "reward" in entry]
    assert len(rewards) == 5
    assert float(rewards[-1]) > float(rewards[0]) + rise


@pytest.mark.long
def test_two_ranks_give_the_rewards_of_one(qwen: Path, tiny_scorer: Path, tiny_captioner: Path, tmp_path: Path) -> None:
    """The same captions, scored by two ranks among the pictures of both, and by one process among all.

    With ``gather=False`` each rank scores among its own.
    """
    environment = os.environ | {"HF_HUB_OFFLINE": "1", "OMP_NUM_THREADS": "1", "ACCELERATE_USE_CPU": "1"}
    models = (str(qwen), str(tiny_scorer), str(tiny_captioner))
    processes = fork_ranks(2, trl_run.main, tmp_path, *models, printed=tmp_path / "printed", environment=environment)
    finish(processes, tmp_path / "printed")
    ranks = [json.loads((tmp_path / f"rank-{rank}.json").read_text()) for rank in (0, 1)]
    image_of = dict(zip(pictures(8)["id"], pictures(8)["image"], strict=True))
    for kind in ("batch", "bag", "pmi"):
        calls = [rank[kind] for rank in ranks]
        assert [len(call["texts"]) for call in calls] == [4, 4]
        texts, ids, bags, rewards = (
            [v for call in calls for v in call[key]] for key in ("texts", "ids", "bags", "rewards")
        )
        one: RewardFunction = pmi(str(tiny_captioner)) if kind == "pmi" else self_retrieval(str(tiny_scorer), kind)  # type: ignore[arg-type]
        alone = one(texts, image=[image_of[id_] for id_ in ids], bag=bags)
        assert rewards == pytest.approx(alone, abs=1e-5)
        assert len(set(ids)) == 4
    for rank in ranks:
        for kind in ("batch", "pmi"):
            one = pmi(str(tiny_captioner)) if kind == "pmi" else self_retrieval(str(tiny_scorer))
            call = rank[f"{kind} alone"]
            alone = one(call["texts"], image=[image_of[id_] for id_ in call["ids"]])
            assert call["rewards"] == pytest.approx(alone, abs=1e-5)
            assert call["rewards"] != pytest.approx(rank[kind]["rewards"], abs=1e-5)


@pytest.mark.long
def test_the_lines_of_the_docs_run(
    qwen: Path, tiny_scorer: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As they stand, with a tiny model and scorer, on photos in a folder."""
    page = (HERE.parents[1] / "docs" / "howto" / "trl.md").read_text()
    (tmp_path / "photos").mkdir()
    for id_, image in zip(pictures(8)["id"], pictures(8)["image"], strict=True):
        image.save(tmp_path / "photos" / id_)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HF_DATASETS_CACHE", str(tmp_path / "cache"))
    code = page.partition("```python\n")[2].partition("```")[0]
    for name, stand_in in (
        ("Qwen/Qwen2-VL-2B-Instruct", str(qwen)),
        ("openai/clip-vit-base-patch32", str(tiny_scorer)),
        ("max_steps=1000", "max_steps=1, max_completion_length=4, use_cpu=True, bf16=False, report_to=[]"),
    ):
        assert name in code
        code = code.replace(name, stand_in)
    exec(compile(code, "trl.md", "exec"), {})
    assert (tmp_path / "run" / "checkpoint-1" / "model.safetensors").is_file()
