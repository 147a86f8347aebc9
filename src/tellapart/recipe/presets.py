"""What ``tellapart finetune --objective`` takes, and the table [objective] that each name stands for."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tellapart.errors import UsageError, nearest
from tellapart.objectives.base import OBJECTIVES
from tellapart.rewards.base import REWARDS

PRESETS: dict[str, dict[str, Any]] = {
    "self-retrieval": {
        "kind": "reinforce",
        "baseline": "leave_one_out",
        "length_normalization": "length",
        "kl": 0.3,
        "kl_temperature": 1.0,
    },
    "truthful-self-retrieval": {
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
}
# Of photos people say a few things in many words, so a captioner is sure of little in its descriptions, and what they
# add to its captions is not worth the cuts (docs/flickr8k.md). Words that few of its samples say, and captions that it
# finds unlikely, cost reward instead.
ON_PHOTOS: dict[str, dict[str, Any]] = {
    "truthful-self-retrieval": {
        **PRESETS["self-retrieval"],
        "kl": 0.1,
        "rewards": [
            {"kind": "self_retrieval"},
            {"kind": "consensus", "decoding": {"kind": "sample", "samples": 8, "temperature": 0.6}},
            {"kind": "likelihood", "weight": 0.75},
        ],
    },
}
DEFAULTS = {
    "kind": "reinforce",
    "baseline": "leave_one_out",
    "length_normalization": "length",
}  # of a reward without a preset
NOT_OFFERED = ("reinforce", "contrastive", "custom")  # named by its rewards; trains a scorer; has a required option


def objective_names() -> list[str]:
    """The presets, then the other objectives and rewards of the registries, those of installed packages included."""
    names = [name for name in (*OBJECTIVES, *REWARDS) if name not in NOT_OFFERED]
    return [*PRESETS, *(name for name in names if name.replace("_", "-") not in PRESETS)]


def objective_table(name: str, *, photos: bool = False) -> dict[str, Any]:
    """The table [objective] of a name. Raises `UsageError`, with the nearest name, for an unknown one.

    photos: what fits them, where that differs from what fits the synthetic world `scenes`.
    """
    if photos and name in ON_PHOTOS:
        return ON_PHOTOS[name]
    if name in PRESETS:
        return PRESETS[name]
    if name not in (known := objective_names()):
        raise UsageError(f"no objective is called '{name}'{nearest(name, known)}")
    return {"kind": name} if name in OBJECTIVES else {**DEFAULTS, "rewards": [{"kind": name}]}


def reads_references(table: Mapping[str, Any]) -> bool:
    """Whether the objective, or one of its rewards, needs references."""
    rewards = [REWARDS.find(reward["kind"]) for reward in table.get("rewards", ())]
    return any("references" in entry.needs for entry in (OBJECTIVES.find(table["kind"]), *rewards))
