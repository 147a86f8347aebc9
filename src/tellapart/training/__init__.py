"""Training: any objective, any captioner or scorer, one run folder.

`runs` takes a run from its recipe to its report: `build` creates the parts of the run, `batches` selects the pictures
and references for each step, `step` performs one step, `loop` trains and validates, `optimizer` builds the optimizer
and its schedule, and `final_evaluation` evaluates at the end. `run_folder` is the run on disk, and `fingerprint`
identifies it. `finetune` plans a recipe for a captioner and pictures, and publishes the result.
"""

from __future__ import annotations

from tellapart.training.run_folder import Run
from tellapart.training.runs import train

__all__ = ["Run", "train"]
