"""verl's reward loop with our manager, loaded by path as verl does; and the collection of captions without verl.

verl needs other versions than this project (transformers below 5.11), so its part runs in an environment of its own:

    python -m venv --system-site-packages venv-verl
    venv-verl/bin/pip install --no-deps verl==0.9.1 tensordict==0.10.0 pyvers omegaconf hydra-core codetiming
    venv-verl/bin/python -m pytest tests/integrations/test_verl_manager.py
"""

from __future__ import annotations

import asyncio
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image

from tellapart.errors import UsageError
from tellapart.integrations.captions_together import CaptionsTogether
from tellapart.rewards.retrieval import self_retrieval as plain
from tellapart.scenes import Scenes
from tellapart.scorers import load_scorer

TEXTS = ["a red ball", "grass", "a dog left of a tree", "two cats"]


def captions(*texts: str) -> list[dict[str, Any]]:
    return [{"data_source": "photos", "solution_str": text, "extra_info": {"id": text}} for text in texts]


async def all_scores(together: CaptionsTogether, rows: list[dict[str, Any]]) -> list[float]:
    return list(await asyncio.gather(*(together.score_of(row) for row in rows)))


def test_captions_of_a_step_are_scored_together() -> None:
    calls: list[list[str]] = []

    def score(data_sources: Any, solution_strs: Any, ground_truths: Any, extra_infos: Any) -> list[float]:
        assert [info["id"] for info in extra_infos] == solution_strs and ground_truths == [None] * len(solution_strs)
        calls.append(solution_strs)
        return [len(text) + len(solution_strs) / 100 for text in solution_strs]

    together = CaptionsTogether(score, 3, patience=60)
    started = time.monotonic()
    assert asyncio.run(all_scores(together, captions("a", "bb", "ccc", "d", "ee", "fff"))) == [
        1.03, 2.03, 3.03, 1.03, 2.03, 3.03,
    ]  # fmt: skip
    assert sorted(map(len, calls)) == [3, 3] and time.monotonic() - started < 30


def test_an_incomplete_step_is_scored_after_a_while() -> None:
    together = CaptionsTogether(lambda **columns: [1.0] * len(columns["solution_strs"]), 3, patience=0.05)
    assert asyncio.run(all_scores(together, captions("a", "b"))) == [1.0, 1.0]


def test_an_error_reaches_every_caption() -> None:
    def fails(**columns: Any) -> list[float]:
        raise UsageError("the data set has no column 'image'")

    async def run() -> list[Any]:
        together = CaptionsTogether(fails, 2, patience=60)
        return await asyncio.gather(*(together.score_of(row) for row in captions("a", "b")), return_exceptions=True)

    assert [str(error) for error in asyncio.run(run())] == ["the data set has no column 'image'"] * 2


class Words:
    """A tokenizer of verl's interface over TEXTS: token n is the n-th word."""

    words = sorted({word for text in TEXTS for word in text.split()})

    def decode(self, ids: Any, skip_special_tokens: bool) -> str:
        return " ".join(self.words[int(id_)] for id_ in ids)

    def ids(self, text: str) -> list[int]:
        return [self.words.index(word) for word in text.split()]


def verl_config(reward_file: Path, **reward: Any) -> Any:
    """The keys that verl's reward loop and our manager read, named as in verl's own configuration."""
    from omegaconf import OmegaConf

    return OmegaConf.create(
        {
            "data": {"train_batch_size": 2},
            "actor_rollout_ref": {"rollout": {"n": 2}},
            "reward": {
                "num_workers": 1,
                "custom_reward_function": {"path": str(reward_file), "name": "compute_score"},
                "reward_manager": {
                    "source": "importlib",
                    "name": "BatchManager",
                    "module": {"path": "pkg://tellapart.integrations.verl_manager"},
                },
                **reward,
            },
        }
    )


@pytest.fixture
def reward_file(tiny_scorer: Path, tmp_path: Path) -> Path:
    path = tmp_path / "verl_reward.py"
    path.write_text(
        "from tellapart.integrations.trl import self_retrieval\n"
        "from tellapart.integrations.verl import VerlBatchScore\n"
        f"compute_score = VerlBatchScore(self_retrieval({str(tiny_scorer)!r}))\n"
    )
    return path


def test_verls_reward_loop_gives_the_reward_of_the_training_loop(
    tiny_scorer: Path, reward_file: Path, tmp_path: Path
) -> None:
    """Two steps of two pictures with two captions each, one DataProto for each caption, as verl's agent loop sends."""
    pytest.importorskip("verl", reason="pip install verl, in an environment of its own")
    from verl import DataProto
    from verl.trainer.ppo.reward import load_reward_manager

    pictures = [scene.image().resize((48, 32)) for scene in Scenes(4, split="train")]
    for number, picture in enumerate(pictures):
        picture.save(tmp_path / f"{number}.png")
    tokenizer = Words()
    manager = load_reward_manager(verl_config(reward_file), tokenizer)
    scorer = load_scorer(str(tiny_scorer))

    def proto(text: str, picture: int) -> Any:
        ids = tokenizer.ids(text)
        response = torch.tensor([ids + [0] * (6 - len(ids))])
        mask = torch.tensor([[1, 1] + [1] * len(ids) + [0] * (6 - len(ids))])
        tensors = {"prompts": torch.zeros(1, 2, dtype=torch.long), "responses": response, "attention_mask": mask}
        info = {"image": str(tmp_path / f"{picture}.png")}
        rest = {"data_source": "photos", "reward_model": {"ground_truth": ""}, "extra_info": info}
        return DataProto.from_dict(tensors, non_tensors={key: np.array([value], object) for key, value in rest.items()})

    async def step(first: int) -> list[dict[str, Any]]:
        rows = [proto(text, first + row // 2) for row, text in enumerate(TEXTS)]
        return await asyncio.gather(*(manager.run_single(row) for row in rows))

    for first in (0, 2):
        results = manager.loop.run_until_complete(step(first))
        shown: list[Image.Image] = [Image.open(tmp_path / f"{n}.png") for n in (first, first + 1)]
        expected = plain(TEXTS, shown, scorer).tolist()
        assert [result["reward_score"] for result in results] == pytest.approx(expected, abs=1e-5)
    whole = DataProto.concat([proto(text, 0) for text in TEXTS])
    scores_RT = type(manager).assemble_rm_scores(whole, [1.0, 2.0, 3.0, 4.0])
    assert scores_RT.sum(1).tolist() == [1.0, 2.0, 3.0, 4.0]


def test_settings_that_split_a_step_are_refused(reward_file: Path) -> None:
    pytest.importorskip("verl", reason="pip install verl, in an environment of its own")
    from verl.trainer.ppo.reward import load_reward_manager

    with pytest.raises(UsageError, match=r"reward.num_workers is 8, but each worker would compare only its own"):
        load_reward_manager(verl_config(reward_file, num_workers=8), Words())
