"""Training: any objective, any captioner or scorer, one run folder.

`loop` has the training step. `setup` makes the parts of a run from its recipe, `samplers` and `rewards` two of them.
`run_folder` is the run on disk. `final_evaluation` measures what was trained. `finetune` plans a recipe for a captioner
and pictures.
"""

from __future__ import annotations

from tellapart.utils.lazy import lazily

_WHERE = {"Run": "run_folder", "train": "runs"}

__all__ = sorted(_WHERE)
__getattr__, __dir__ = lazily(__name__, _WHERE)
