"""Accelerate's trackers end with the training, however that ends."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest

from tellapart.training.trackers import open_trackers

pytest.importorskip("tensorboard", reason="no tensorboard here; type: pip install 'tellapart[tensorboard]'")


@pytest.mark.parametrize("error", [KeyboardInterrupt, ValueError])
def test_trackers_are_ended_after_an_error(tmp_path: Path, error: type[BaseException]) -> None:
    """The thread that writes TensorBoard's events runs until the tracker is ended."""
    before = set(threading.enumerate())
    with pytest.raises(error), open_trackers(["tensorboard"], "project", tmp_path) as track:
        track({"reward": 0.5}, 1)
        assert set(threading.enumerate()) - before
        raise error
    assert not set(threading.enumerate()) - before
