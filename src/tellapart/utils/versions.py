"""Version numbers for the parts of the code that affect the result of a recipe.

Bump a part's number by hand whenever it gives different results for the same recipe, data and seed, so that earlier
runs are never silently reused. ``tests/test_versions.py`` stores a result for each part that every run uses, and fails
if a result changes but the number does not.
"""

from __future__ import annotations

VERSIONS: dict[str, int] = {
    "scenes": 1,  # pictures and references of the synthetic world
    "boost": 1,  # output of the scripted backend
    "pixels": 1,  # input of a vision encoder in training: preprocessing and augmentation
    "samplers": 1,  # which pictures and references share a step
    "distractors": 2,  # bags.kind = "hard"; in version 1, neighbours were part of the batch and rewarded too
    "loop": 1,  # optimizer, schedule, clipping and seeds of a step
    "decoding": 1,  # generated captions, in training and validation
    "unknown_words": 1,  # the unknown token is never generated on photos (scenes have none); before, captions had gaps
    "stop_tokens": 1,  # those of ClipCap's published weights; before, only the end token
    "mle": 1,
    "smile": 1,
    "gem": 1,
    "sparsemax": 1,
    "contrastive": 1,
    "self_distillation": 1,
    "reinforce": 2,  # including rewards and baselines
}
