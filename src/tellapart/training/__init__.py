"""Trains any captioner or scorer with any objective, and writes everything to one run folder.

`runs` takes a run from its recipe to its report. `build` creates the parts of the run from its `sources`: `learner`
builds the model to train, `new_models` creates models with random weights, `references` tokenizes the references, and
`objective` builds the objective. `samplers` selects the pictures for each step; `batches` adds references and pixels
(`pixels`, `blip_augmentation`, `random_crops`). `step` performs one step, `loop` trains and validates, `optimizer`
builds the optimizer and its schedule, and `final_evaluation` evaluates at the end. `run_folder` manages the run on
disk, and `fingerprint` identifies the run. `finetune_recipe` plans a recipe for a captioner and pictures; `finetune`
trains the recipe and publishes the result.
"""

from __future__ import annotations

from tellapart.training.run_folder import Run
from tellapart.training.runs import train

__all__ = ["Run", "train"]
