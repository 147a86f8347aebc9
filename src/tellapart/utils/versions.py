"""A number for each part of the code that decides what a recipe's run becomes.

Raise a part's number by hand whenever the same recipe, data and seed would give other results through it: runs made
before then differ from runs made after, and are never reused in silence. ``tests/test_versions.py`` holds a result of
each part, and fails where one changes and its number does not.
"""

from __future__ import annotations

VERSIONS: dict[str, int] = {
    "scenes": 1,  # pictures and references of the synthetic world
    "boost": 1,  # what the scripted backend makes of them
    "pixels": 1,  # what a vision encoder in training sees: preprocessing and augmentation
    "samplers": 1,  # which pictures and references share a step
    "distractors": 2,  # those of bags.kind = "hard"; 1 was batches of targets and their neighbours, all rewarded
    "loop": 1,  # optimizer, schedule, clipping, and the seeds of a step
    "decoding": 1,  # captions that are written, in training and validation
    "unknown_words": 1,  # never written, on photos (all words of scenes are known); without the number: gaps
    "stop_tokens": 1,  # of a start from ClipCap's published weights; without the number: none but the end token
    "mle": 1,
    "smile": 1,
    "gem": 1,
    "sparsemax": 1,
    "contrastive": 1,
    "self_distillation": 1,
    "reinforce": 2,  # with its rewards and baselines
}
