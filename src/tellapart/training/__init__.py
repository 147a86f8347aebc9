"""Training: any objective, any captioner or scorer, one run folder.

`runs` takes a run from its recipe to its report: `build` makes the parts of the run, `batches` the pictures and
references of each step, `loop` trains and validates with what `optimizer` updates, and `runs` measures at the end.
`run_folder` is the run on disk, and `fingerprint` identifies it. `finetune` plans a recipe for a captioner and
pictures, and publishes the result.
"""

from __future__ import annotations

from tellapart.utils.registry import lazily

_WHERE = {"Run": "run_folder", "train": "runs"}

__all__ = sorted(_WHERE)
__getattr__, __dir__ = lazily(__name__, _WHERE)
