"""Training: any objective, any captioner or scorer, one run folder.

`runs` takes a run from its recipe to its report. `build` creates the parts of the run from its `sources`: `learner`
builds the model to train, `new_models` models with random weights, `references` the tokens, and `objective` the
objective. `samplers` selects the pictures of each step; `batches` adds references and pixels (`pixels`,
`augmentation`). `step` performs one step, `loop` trains and validates, `optimizer` builds the optimizer and its
schedule, and `final_evaluation` evaluates at the end. `run_folder` is the run on disk, and `fingerprint` identifies it.
`plan` plans a recipe for a captioner and pictures; `finetune` trains it and publishes the result.
"""

from __future__ import annotations

from tellapart.training.run_folder import Run
from tellapart.training.runs import train

__all__ = ["Run", "train"]
