"""A cluster for the jobs of a session: a start of Ray takes ten seconds and more of processor time."""

from __future__ import annotations

from collections.abc import Iterator
from tempfile import TemporaryDirectory

import pytest
from ray_nodes import started_head


@pytest.fixture(scope="session")
def cluster_folder(own_cache: None) -> Iterator[str]:
    """The folder of a cluster with two processors; its workers have the environment of the session."""
    with TemporaryDirectory(prefix="ray-") as folder, started_head(folder, cpus=2):  # a short path: sockets lie in it
        yield folder


@pytest.fixture
def cluster(cluster_folder: str, monkeypatch: pytest.MonkeyPatch) -> str:
    """The option that names this cluster."""
    monkeypatch.delenv("RAY_ADDRESS", raising=False)
    monkeypatch.setenv("RAY_TMPDIR", cluster_folder)
    return "--ray=auto"
