"""Describes what ``tellapart finetune --objective`` takes, and the table [objective] that each name stands for."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tellapart.errors import UsageError, nearest
from tellapart.objectives.base import OBJECTIVES
from tellapart.rewards.base import REWARDS

SELF_RETRIEVAL: dict[str, Any] = {
    "kind": "reinforce",
    "baseline": "leave_one_out",
    "length_normalization": "length",
    "kl": 0.3,
    "kl_temperature": 1.0,
}
PRESETS: dict[str, dict[str, Any]] = {
    "truthful-self-retrieval": {  # words that few samples say, and captions that the start finds unlikely, cost reward
        **SELF_RETRIEVAL,
        "kl": 0.1,
        "rewards": [
            {"kind": "self_retrieval"},
            {"kind": "consensus", "decoding": {"kind": "sample", "samples": 8, "temperature": 0.6}},
            {"kind": "likelihood", "weight": 0.75},
        ],
    },
    "self-retrieval": SELF_RETRIEVAL,
    "self-distillation": {
        "kind": "self_distillation",
        "prompt": "in this picture",
        "confidence": 0.95,
        "candidates": 12,
        "speaker": 0.0078,
        "likelihood": 0.1,
    },
    "smile": {"kind": "smile", "mle_weight": 0.01},
    "mle": {"kind": "mle"},
    "cider": {
        "kind": "reinforce",
        "baseline": "greedy",
        "length_normalization": "none",
        "rewards": [{"kind": "cider"}],
    },
    "cider+self-retrieval": {
        "kind": "reinforce",
        "baseline": "greedy",
        "length_normalization": "length",
        "rewards": [{"kind": "self_retrieval"}, {"kind": "cider", "weight": 0.5}],
    },
    "exploration": {  # paper 4, as in recipes/papers/sle_coco.toml
        "kind": "reinforce",
        "decoding": {"kind": "sample", "samples": 5},
        "baseline": "greedy",
        "length_normalization": "none",
        "rewards": [{"kind": "cider"}],
        "exploration": {"alpha": 0.75, "baseline": "literal"},
    },
}
DEFAULTS = {
    "kind": "reinforce",
    "baseline": "leave_one_out",
    "length_normalization": "length",
}  # of a reward without a preset


def objective_names() -> list[str]:
    """Returns the presets, then the objectives and rewards of installed packages.

    What else the package has (``exact_truth``, ``paid_words``, …) is a part for recipes.
    """
    plugins = (name for parts in (OBJECTIVES, REWARDS) for name in parts.installed() if name not in parts.builtin())
    return list(dict.fromkeys([*PRESETS, *plugins]))


def default_objective(*, photos: bool) -> str:
    """Returns the preset where none is named.

    The synthetic world's captioner describes when it is asked, so it learns from its own descriptions. Of photos people
    say a few things in many words: a captioner is sure of little in its descriptions, and what they add to its captions
    is not worth the cuts (docs/research/flickr8k.md).
    """
    return "truthful-self-retrieval" if photos else "self-distillation"


def objective_table(name: str) -> dict[str, Any]:
    """Returns the table [objective] of a name.

    Raises `UsageError`, with the nearest name, for an unknown one, and for a part of recipes.
    """
    if name in PRESETS:
        return PRESETS[name]
    if name not in (known := objective_names()):
        if (part := name.replace("-", "_")) in OBJECTIVES or part in REWARDS:
            key = "objective.kind" if part in OBJECTIVES else "objective.rewards.kind"
            raise UsageError(f"'{name}' is a part of recipes ({key}); --objective takes one of {', '.join(known)}")
        raise UsageError(f"no objective is called '{name}'{nearest(name, known)}")
    return {"kind": name} if name in OBJECTIVES else {**DEFAULTS, "rewards": [{"kind": name}]}


def reads_references(table: Mapping[str, Any]) -> bool:
    """Returns whether the objective, or one of its rewards, needs references."""
    rewards = [REWARDS.find(reward["kind"]) for reward in table.get("rewards", ())]
    return any("references" in entry.needs for entry in (OBJECTIVES.find(table["kind"]), *rewards))
