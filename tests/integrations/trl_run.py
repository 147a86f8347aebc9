"""One rank of a run of TRL, which writes what its rewards were given and what they returned to ``OUT/rank-N.json``."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any, cast

from datasets import Dataset
from transformers import AutoModelForImageTextToText
from trl import GRPOConfig, GRPOTrainer

from tellapart.integrations.trl import bag_order, pmi, processing_class, self_retrieval
from tellapart.integrations.trl.retrieval import Candidates
from tellapart.integrations.trl.rows import Completion, RewardFunction, text_of
from tellapart.scenes import Scenes

GENERATIONS, BAG = 2, 2
KINDS = ("batch", "bag", "pmi", "batch alone", "pmi alone")  # alone: among the pictures of the rank


def pictures(count: int) -> Dataset:
    """Scenes as photos of 3:2, with the prompt of a captioner."""
    prompt = [{"role": "user", "content": "describe"}]
    rows = [
        {"prompt": prompt, "image": scene.image().resize((48, 32)), "id": f"{number}.jpg"}
        for number, scene in enumerate(Scenes(count, split="train"))
    ]
    return Dataset.from_list(rows)


def settings(out: Path, config: type = GRPOConfig, **more: Any) -> Any:
    return config(
        output_dir=str(out),
        **{
            "num_generations": GENERATIONS,
            "max_completion_length": 6,
            "report_to": [],
            "use_cpu": True,
            "bf16": False,
            "shuffle_dataset": False,
            "save_strategy": "no",
            "logging_steps": 1,
            "disable_tqdm": True,
            **more,
        },
    )


def main(out: Path, model: str, scorer: str, captioner: str) -> None:
    from accelerate import PartialState

    ranks = PartialState(cpu=True).num_processes
    args = settings(out, per_device_train_batch_size=8 // ranks, max_steps=1)
    dataset = bag_order(pictures(8), [(f"{n}.jpg", f"{n + 1}.jpg") for n in range(0, 8, BAG)], args)
    calls = {}

    def recorded(kind: str) -> RewardFunction:
        name, _, alone = kind.partition(" ")
        gather = not alone
        reward = (
            pmi(captioner, gather=gather)
            if name == "pmi"
            else self_retrieval(scorer, cast(Candidates, name), gather=gather)
        )

        def called(completions: Sequence[Completion], **columns: Any) -> list[float | None]:
            texts = [text_of(completion) for completion in completions]
            found = reward(completions, **columns)
            calls[kind] = {"texts": texts, "ids": columns["id"], "bags": columns["bag"], "rewards": found}
            return found

        return called

    network = AutoModelForImageTextToText.from_pretrained(model)
    GRPOTrainer(
        model=network,
        reward_funcs=[recorded(kind) for kind in KINDS],
        args=args,
        train_dataset=dataset,
        processing_class=processing_class(model),
    ).train()
    state = PartialState()
    (out / f"rank-{state.process_index}.json").write_text(json.dumps(calls))
    state.destroy_process_group()  # else gloo's threads may outlive Python, and abort the process
