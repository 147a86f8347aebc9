"""Linear layers to run with oneDNN, and the CPUs that can."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from transformers.pytorch_utils import Conv1D

from tellapart.models.onednn import runs_on_onednn

AVX512 = pytest.mark.skipif(
    not runs_on_onednn(torch.nn.Linear(2, 2)) or not torch.cpu._is_avx512_supported(),
    reason="torch has no oneDNN for this CPU",
)


def layer(kind: str, dtype: torch.dtype) -> Any:
    torch.manual_seed(0)
    made = Conv1D(30, 48) if kind == "Conv1D" else torch.nn.Linear(48, 30, bias=kind == "Linear")
    return made.to(dtype)
