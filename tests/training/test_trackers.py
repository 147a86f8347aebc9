"""Accelerate's trackers end with the training, however that ends."""

from __future__ import annotations

from pathlib import Path

import pytest

from tellapart.training.trackers import open_trackers

pytest.importorskip("tensorboard", reason="no tensorboard here; type: pip install 'tellapart[tensorboard]'")


@pytest.mark.parametrize("error", [KeyboardInterrupt, ValueError])
def test_trackers_are_ended_after_an_error(tmp_path: Path, error: type[BaseException]) -> None:
    """TensorBoard's writer keeps events in memory for two minutes, unless it is closed."""
    with pytest.raises(error), open_trackers(["tensorboard"], "project", tmp_path) as track:
        track({"the_logged_reward": 0.5}, 1)
        raise error
    events = list(tmp_path.rglob("events.out.tfevents*"))
    assert len(events) == 1 and b"the_logged_reward" in events[0].read_bytes()
