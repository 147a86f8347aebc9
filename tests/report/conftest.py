"""A run folder to report on, made anew for each test."""

from __future__ import annotations

from pathlib import Path

import pytest
from sample_run import make_run


@pytest.fixture
def run(tmp_path: Path) -> Path:
    return make_run(tmp_path / "run")
