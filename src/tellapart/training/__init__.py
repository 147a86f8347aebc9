"""Training: any objective, any captioner or scorer, one run folder.

`runs` takes a run from its recipe to its report; `loop` has the training step. `setup` builds the typed parts of a run
from its recipe (`new_models`, `batches`, `samplers` and `pixels` are some of them), `checks` refuses what cannot run,
`optimizer` has the parameters, the schedule and their state, `validation` and `final_evaluation` measure, `display` is
what a person sees. `run_folder` is the run on disk, `fingerprint` identifies it, `adopt` puts a run in the place of a
recipe. `finetune` plans a recipe for a captioner and pictures; `model_card` and `hub` publish the result.
"""

from __future__ import annotations

from tellapart.utils.lazy import lazily

_WHERE = {"Run": "run_folder", "train": "runs"}

__all__ = sorted(_WHERE)
__getattr__, __dir__ = lazily(__name__, _WHERE)
