"""Defines the objectives of ``tellapart finetune --objective`` and their ``[objective]`` tables."""

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
    # Penalizes words that few samples contain, and captions that are unlikely under the initial model.
    "truthful-self-retrieval": {
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
}  # the [objective] table for a reward without a preset


def objective_names() -> list[str]:
    """Returns the names of the presets, followed by the objectives and rewards that installed packages provide.

    tellapart's other objectives and rewards (``exact_truth``, ``paid_words``, …) can only be used in recipes.
    """
    plugins = (name for parts in (OBJECTIVES, REWARDS) for name in parts.installed() if name not in parts.builtin())
    return list(dict.fromkeys([*PRESETS, *plugins]))


def default_objective(*, photos: bool) -> str:
    """Returns the name of the default preset.

    The captioner for the synthetic world can describe pictures in detail when prompted, so it learns from its own
    descriptions. On photos, a captioner is confident about only a few words in its descriptions, and the detail that
    these words add does not make up for the captions' loss in quality (docs/research/flickr8k.md).
    """
    return "truthful-self-retrieval" if photos else "self-distillation"


def objective_table(name: str) -> dict[str, Any]:
    """Returns the [objective] table of a preset, objective or reward.

    Raises `UsageError` if the name is unknown (with the nearest known name) or can only be used in recipes.
    """
    if name in PRESETS:
        return PRESETS[name]
    if name not in (known := objective_names()):
        if (part := name.replace("-", "_")) in OBJECTIVES or part in REWARDS:
            key = "objective.kind" if part in OBJECTIVES else "objective.rewards.kind"
            raise UsageError(f"'{name}' can only be used in a recipe ({key}); --objective accepts {', '.join(known)}")
        raise UsageError(f"unknown objective '{name}'{nearest(name, known)}")
    return {"kind": name} if name in OBJECTIVES else {**DEFAULTS, "rewards": [{"kind": name}]}


def reads_references(table: Mapping[str, Any]) -> bool:
    """Returns True if the objective, or one of its rewards, needs references."""
    rewards = [REWARDS.find(reward["kind"]) for reward in table.get("rewards", ())]
    return any("references" in entry.needs for entry in (OBJECTIVES.find(table["kind"]), *rewards))
