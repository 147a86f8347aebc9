"""The settings of the arms are those of the papers."""

from __future__ import annotations

import json
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest
import torch

from replication.arms import ARMS
from replication.claim import Arm
from replication.lab import SIMPLEST, Lab, simplest
from tellapart.data import open_data


def test_self_retrieval_trains_the_mapper_whatever_lora_is_on() -> None:
    """Paper 2, section 4.2: "ClipCap's MLP adapter is trained normally"."""
    on = {
        "sr_l": (["mapper", "language_model"], ["c_attn", "attn.c_proj"]),
        "sr_v": (["vision", "mapper"], ["convolution"]),
        "sr_lv": (["vision", "mapper", "language_model"], ["c_attn", "attn.c_proj", "convolution"]),
    }
    for name, (train, modules) in on.items():
        captioner = (ARMS[name].table or {})["captioner"]
        assert (captioner["train"], captioner["lora"]["modules"]) == (train, modules)


def test_paper_4_sums_the_entropy_over_a_caption_and_has_the_mean_of_all_distances_as_baseline() -> None:
    for names, key, wanted in (
        (("sll_me", "clips_sll_me"), "entropy_reduction", "sum"),
        (("sll_sle", "clips_sll_sle"), "exploration", {"alpha": 0.75, "distance": "bleu", "baseline": "literal"}),
    ):
        for name in names:
            assert (ARMS[name].table or {})["objective"][key] == wanted


def test_the_simplest_corpus_has_an_article_and_a_noun(tmp_path: Path) -> None:
    """Paper 1, figure 4b: Simplest-COCO's captions have two words."""
    assert simplest(["a shape sits on the sand", "three things", "an object", "on the tiles is another thing"]) == [
        "a shape",
        "an object",
        "another thing",
    ]
    table = {"data": {"train": "scenes:plain?n=40&detail=0", "validation": "scenes:plain?n=10"}}
    lab = Lab(tmp_path, {"bare": Arm("bare", table, boosted=SIMPLEST)}, {}, {})
    lab.make_boosted("bare")
    learned = list(open_data(str(lab.boosted_file(SIMPLEST, table["data"]["train"]))))
    assert 30 < len(learned) <= 40 and {len(text.split()) for item in learned for text in item.references} == {2}


def test_arms_learn_without_dropout_and_in_the_precision_of_the_hardware() -> None:
    for name, arm in ARMS.items():
        if arm.table is not None:
            captioner = arm.table["captioner"]
            assert captioner.get("new", captioner)["dropout"] == 0.0, name
            assert arm.table["training"]["precision"] == "auto", name


@pytest.mark.long
def test_the_attention_of_arms_gives_the_losses_of_any_other_training(
    tiny_recipe: dict[str, Any], tiny_scorer: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Products and a softmax in the place of torch's fused kernel, which is what `tellapart train` takes."""
    data = {key: spec for key, spec in tiny_recipe["data"].items() if key != "test"}
    training = {"steps": 4, "batch_size": 20, "learning_rate": 1e-3, "log_every": 1}
    table = {
        "data": data, "scorer": tiny_recipe["scorer"], "captioner": {"dropout": 0.0}, "objective": {"kind": "mle"},
        "training": training, "validation": {"every": 4, "decoding": {"max_tokens": 6}},
    }  # fmt: skip
    arms = {"start": Arm("start", model=tiny_recipe["captioner"]["name"]), "mle": Arm("mle", table, "start")}
    losses = []
    for place, kernel in (("own", None), ("fused", lambda backend: nullcontext())):
        if kernel is not None:
            monkeypatch.setattr(torch.nn.attention, "sdpa_kernel", kernel)
        lab = Lab(tmp_path / place, arms, {}, {}, scorer=str(tiny_scorer))
        lab.train("mle", 0)
        records = [json.loads(line) for line in (lab.run_of("mle", 0).folder / "log.jsonl").read_text().splitlines()]
        losses.append([record["loss"] for record in records if "loss" in record and "event" not in record])
    assert len(losses[0]) == 4 and losses[0] == pytest.approx(losses[1], rel=1e-4)
