"""One rank of short runs in float64: ``ranks_run.py OUT CAPTIONER SCORER [NAME…]``, alone or under torchrun.

Leaves the weights and the log of each run in ``OUT/NAME``, with `CAPTIONS` and `STARTS`. Dropout is off, and batch norm
keeps its statistics. A rank but the first that changes anything in ``OUT`` fails.
``NAME:sharded`` shares out what learns, ``NAME:often`` makes a checkpoint of every step. In the environment ``UNTIL=N``
ends the process at that step, and ``PAUSE=S`` waits so many seconds before each.
"""

from __future__ import annotations

import json
import os
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import torch

STEPS = 20
CAPTIONS = ".captions.jsonl"  # of each step, those that were sampled; of a step that was done again, again
STARTS = ".starts.jsonl"  # of each process, or of several together: how many ranks, and their first step
SAMPLED = {"kind": "sample", "samples": 3, "max_tokens": 6}
CIDER = {"kind": "cider", "idf": "batch"}
FOUND = {"kind": "self_retrieval"}
LIKELY = {"kind": "likelihood"}
AGREED = {"kind": "consensus", "decoding": SAMPLED}
PAID = {"kind": "paid_words", "nearest": 5}
VISION: dict[str, Any] = {"captioner": {"train": ["vision", "mapper", "language_model"]}}
BAGS = {"training": {"batches": "bags"}}
IN_BAG = {"objective": {"rewards": [FOUND | {"candidates": "bag"}]}, "bags": {"size": 3}}
LORA = {"captioner": {"lora": {"rank": 2}, "train": ["language_model"]}}
PARTS = {"gradient_accumulation_steps": 3}
DISTILLED = {  # a captioner with random weights believes all its words then, and writes no two captions alike
    "kind": "self_distillation", "decoding": {"kind": "sample", "max_tokens": 12}, "confidence": 1e-6,
    "evidence": -9.0, "candidates": 6, "nearest": 3,
}  # fmt: skip
DETAIL = [{"prompt": "red", "speaker": 2.0}, {"prompt": ""}, {"prompt": "a large", "speaker": 0.5}]

RUNS: dict[str, dict[str, Any]] = {
    "mle": {"objective": {"kind": "mle"}},
    "smile": {"objective": {"kind": "smile"}, "training": {"captions_per_picture": 2}},
    "running_mean": {"objective": {"rewards": [FOUND, CIDER], "baseline": "running_mean", "kl": 0.1}},
    "leave_one_out": {"objective": {"baseline": "leave_one_out", "entropy": 0.1, "whiten": True}},
    "greedy": {"objective": {"baseline": "greedy", "rewards": [CIDER]}},
    "exploration": {"objective": {"baseline": "none", "exploration": {"alpha": 0.5}}},
    "group": {"objective": {"baseline": "group_mean", "group_normalization": True}},
    "bags": {**IN_BAG, **BAGS},
    "hard": {"bags": {"kind": "hard", "hard": 2}, **BAGS},
    "lora": LORA,
    "parts": {"training": PARTS},
    "mle_parts": {"objective": {"kind": "mle"}, "training": PARTS},
    "smile_parts": {"objective": {"kind": "smile"}, "training": PARTS | {"captions_per_picture": 2}},
    "bags_lora_greedy_parts": {
        **LORA,
        "objective": IN_BAG["objective"] | {"baseline": "greedy", "entropy": 0.1},
        "bags": {"size": 3},
        "training": {"batches": "bags", **PARTS},
    },
    "hard_exploration_parts": {
        "objective": {"baseline": "leave_one_out", "exploration": {"alpha": 0.5}, "kl": 0.1},
        "bags": {"kind": "hard", "hard": 2},
        "training": {"batches": "bags", **PARTS},
    },
    "self_distillation": {"objective": DISTILLED},
    "detail": {"objective": {"rewards": [FOUND, LIKELY], "baseline": "leave_one_out", "detail": DETAIL}},
    "detail_distilled_parts": {
        "objective": DISTILLED | {"detail": [*DETAIL[::2], {}], "speaker": 0.0},
        "training": PARTS,
        "validation": {"decoding": {"kind": "sample", "max_tokens": 6}},  # the likeliest caption is empty soon
    },
    "self_distillation_vision": {
        "objective": DISTILLED | {"likelihood": 1.0},
        "training": PARTS,
        **VISION,
    },
    "vision": VISION,
    "pmi": {"objective": {"rewards": [{"kind": "pmi"}, {"kind": "pmi", "others": 3, "per": "word"}, LIKELY, AGREED]}},
    "paid_words": {"objective": {"rewards": [FOUND, PAID], "baseline": "leave_one_out"}},
    "vision_pmi": {"objective": {"rewards": [PAID, {"kind": "pmi"}, LIKELY, AGREED]}, **VISION},
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
    name, _, way = name.partition(":")
    if way:
        made["training"] |= {"sharded": {"sharding": "full"}, "often": {"checkpoint_every": 1}}[way]
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
    from tellapart.training import build, learner
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

    learner.load_captioner = still(learner.load_captioner)  # type: ignore[attr-defined]
    build.load_scorer = learner.load_scorer = still(build.load_scorer)  # type: ignore[attr-defined]
    visual, tensor = build.TrainingSetup.visual, TrainingPixels.tensor

    def doubled(self: Any, items: Any) -> Any:
        rows = visual(self, items)
        return rows if self.reads_pixels else np.asarray(rows, dtype=np.float64)

    build.TrainingSetup.visual = doubled  # type: ignore[method-assign]
    TrainingPixels.tensor = lambda self, rows: tensor(self, rows).double()  # type: ignore[method-assign]


class Now:
    """The run that is being trained."""

    folder = Path()
    begun = False


def watch_steps() -> None:
    """What a test may ask of the steps of this process: where they begin, wait and end."""
    from tellapart.models import ranks
    from tellapart.training import loop

    train_step, last, pause = loop.train_step, int(os.environ.get("UNTIL", STEPS)), float(os.environ.get("PAUSE", 0))

    def watched(*arguments: Any) -> dict[str, float]:
        step = arguments[-1]
        if step == last:
            os._exit(0)
        if not Now.begun:
            append(Now.folder / STARTS, {"ranks": ranks.count(), "step": step})
        Now.begun = True
        time.sleep(pause)
        return train_step(*arguments)

    loop.train_step = watched


def watch_captions() -> None:
    """The captions that each step samples, or makes, and that every rank has the same."""
    from tellapart.models import collectives
    from tellapart.objectives.reinforce import Reinforce
    from tellapart.objectives.self_distillation import SelfDistillation

    advantages, captions = Reinforce.advantages, SelfDistillation.captions

    def note(step: int, texts: list[str]) -> None:
        assert len(set(collectives.gather_texts([json.dumps(texts)]))) == 1, "ranks have other captions"
        append(Now.folder / CAPTIONS, {"step": step, "texts": texts})

    def rewarded(self: Any, rollout: Any, greedy: Any, batch: Any) -> Any:
        note(batch.step, rollout.texts)
        return advantages(self, rollout, greedy, batch)

    def made(self: Any, batch: Any) -> list[str]:
        found = captions(self, batch)
        note(batch.step, found)
        return found

    Reinforce.advantages = rewarded  # type: ignore[method-assign]
    SelfDistillation.captions = made  # type: ignore[method-assign]


def append(path: Path, record: dict[str, Any]) -> None:
    """One line more, by the main rank."""
    from tellapart.models import ranks

    if ranks.is_main():
        with path.open("a") as file:
            file.write(json.dumps(record) + "\n")


def only_main_writes(out: Path) -> None:
    """An error in a rank but the first where Python opens, makes, moves or removes anything in ``out``.

    safetensors and torch write without Python's knowledge, into folders that Python made.
    """
    if os.environ.get("RANK", "0") == "0":
        return
    changes = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_APPEND

    def hook(event: str, arguments: tuple[Any, ...]) -> None:
        if event not in ("open", "os.mkdir", "os.rename", "os.remove", "os.rmdir", "os.truncate", "os.utime"):
            return
        if event == "open" and not (isinstance(arguments[2], int) and arguments[2] & changes):
            return
        if isinstance(arguments[0], str | os.PathLike) and Path(arguments[0]).is_relative_to(out):
            raise PermissionError(f"rank {os.environ['RANK']}: {event} {arguments[0]}")

    sys.addaudithook(hook)


def main(out: Path, captioner: str, scorer: str, names: list[str]) -> None:
    from tellapart.recipe.reading import check_recipe
    from tellapart.training.runs import train

    only_main_writes(out)
    in_float64()
    watch_steps()
    watch_captions()
    for name in names or list(RUNS):
        Now.folder, Now.begun = out / name, False
        train(check_recipe(table(name, captioner, scorer), name), out / name, resume=True, evaluate=False)


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2], sys.argv[3], sys.argv[4:])
