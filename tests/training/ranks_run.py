"""One rank of short runs in float64: ``ranks_run.py OUT CAPTIONER SCORER [NAME…]``, alone or under torchrun.

Leaves the weights and the log of each run in ``OUT/NAME``. Dropout is off, and batch norm keeps its statistics.
``NAME:sharded`` shares out what learns; ``UNTIL=N`` in the environment ends the process at that step.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any

import numpy as np
import torch

STEPS = 20
SAMPLED = {"kind": "sample", "samples": 3, "max_tokens": 6}
CIDER = {"kind": "cider", "idf": "batch"}
FOUND = {"kind": "self_retrieval"}
PAID = {"kind": "paid_words", "nearest": 5}
VISION: dict[str, Any] = {"captioner": {"train": ["vision", "mapper", "language_model"]}}
BAGS = {"training": {"batches": "bags"}}

RUNS: dict[str, dict[str, Any]] = {
    "mle": {"objective": {"kind": "mle"}},
    "smile": {"objective": {"kind": "smile"}, "training": {"captions_per_picture": 2}},
    "running_mean": {"objective": {"rewards": [FOUND, CIDER], "baseline": "running_mean", "kl": 0.1}},
    "leave_one_out": {"objective": {"baseline": "leave_one_out", "entropy": 0.1, "whiten": True}},
    "greedy": {"objective": {"baseline": "greedy", "rewards": [CIDER]}},
    "exploration": {"objective": {"baseline": "none", "exploration": {"alpha": 0.5}}},
    "bags": {"objective": {"rewards": [FOUND | {"candidates": "bag"}]}, "bags": {"size": 3}, **BAGS},
    "hard": {"bags": {"kind": "hard", "hard": 2}, **BAGS},
    "lora": {"captioner": {"lora": {"rank": 2}, "train": ["language_model"]}},
    "parts": {"training": {"gradient_accumulation_steps": 3}},
    "vision": VISION,
    "pmi": {"objective": {"rewards": [{"kind": "pmi"}, {"kind": "pmi", "others": 3, "per": "word"}]}},
    "paid_words": {"objective": {"rewards": [FOUND, PAID], "baseline": "leave_one_out"}},
    "vision_pmi": {"objective": {"rewards": [PAID, {"kind": "pmi"}]}, **VISION},
    "contrastive": {"objective": {"kind": "contrastive"}},
}


def table(name: str, captioner: str, scorer: str) -> dict[str, Any]:
    """The recipe of a run: 13 pictures a step, which no number of ranks divides."""
    made: dict[str, Any] = {
        "name": name.partition(":")[0],
        "data": {"train": "scenes:plain?n=60&split=train", "validation": "scenes:plain?n=20&split=validation"},
        "captioner": {"name": captioner},
        "scorer": {"name": scorer},
        "objective": {"kind": "reinforce"},
        "training": {"steps": STEPS, "batch_size": 13, "learning_rate": 1e-3, "checkpoint_every": 7, "log_every": 1},
        "validation": {"every": 10, "select": "cider", "decoding": {"max_tokens": 6}},
    }
    name, _, sharded = name.partition(":")
    if sharded:
        made["training"]["sharding"] = "full"
    for key, value in RUNS[name].items():
        made[key] = {**made.get(key, {}), **value}
    if made["objective"]["kind"] == "reinforce":
        made["objective"] = {"decoding": SAMPLED} | made["objective"]
    if made["objective"]["kind"] == "contrastive":
        made["validation"] = {"every": 10, "select": "recall@1.lookalike"}
        del made["captioner"]
    if "batches" in made["training"]:
        made["training"]["batch_size"] = 12
    return made


def in_float64() -> None:
    """All models and features that a run loads; dropout off, batch norms with the statistics that they have."""
    from tellapart.training import setup
    from tellapart.training.pixels import TrainingPixels

    def still(load: Any) -> Any:
        def loaded(*arguments: Any, **options: Any) -> Any:
            found = load(*arguments, **options)
            found.model.double()
            pixels = found.pixels
            found.pixels = lambda images: pixels(images).double()
            for module in found.model.modules():
                if isinstance(module, torch.nn.Dropout):
                    module.p = 0.0
                if isinstance(module, torch.nn.modules.batchnorm._BatchNorm):
                    module.train = lambda mode=True: None  # type: ignore[assignment,method-assign]
                    torch.nn.Module.train(module, False)
            return found

        return loaded

    setup.load_captioner, setup.load_scorer = still(setup.load_captioner), still(setup.load_scorer)  # type: ignore[attr-defined]
    visual, tensor = setup.TrainingSetup.visual, TrainingPixels.tensor

    def doubled(self: Any, items: Any) -> Any:
        rows = visual(self, items)
        return rows if self.reads_pixels else np.asarray(rows, dtype=np.float64)

    setup.TrainingSetup.visual = doubled  # type: ignore[method-assign]
    TrainingPixels.tensor = lambda self, rows: tensor(self, rows).double()  # type: ignore[method-assign]


def end_at(step: int) -> None:
    """End this process where that step would begin."""
    from tellapart.training import loop

    train_step = loop.train_step

    def ended(*arguments: Any) -> dict[str, float]:
        if arguments[-1] == step:
            os._exit(0)
        return train_step(*arguments)

    loop.train_step = ended


def main(out: Path, captioner: str, scorer: str, names: list[str]) -> None:
    from tellapart.recipe.reading import check_recipe
    from tellapart.training.runs import train

    in_float64()
    end_at(int(os.environ.get("UNTIL", STEPS)))
    for name in names or list(RUNS):
        train(check_recipe(table(name, captioner, scorer), name), out / name, resume=True, evaluate=False)


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2], sys.argv[3], sys.argv[4:])
