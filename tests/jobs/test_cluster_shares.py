"""What each worker gets of a cluster, and what can be typed."""

from __future__ import annotations

import os
import re

import pytest

from tellapart.cli.worker_options import WorkerOptions, with_optional_values
from tellapart.errors import UsageError
from tellapart.jobs.worker_share import Share, Workers, share

CORES = os.cpu_count() or 1


@pytest.mark.parametrize(
    ("wanted", "there", "expected"),
    [
        (Workers(2), [{"CPU": CORES}], Share(2, max(1, CORES // 2), 0.0)),
        (Workers(8), [{"CPU": CORES, "GPU": 4}], Share(8, max(1, CORES // 8), 0.5)),
        (Workers(6), [{"CPU": CORES, "GPU": 4}], Share(6, max(1, CORES // 6), 0.5)),  # two thirds would leave two out
        (Workers(2, gpus=0), [{"CPU": CORES, "GPU": 4}], Share(2, max(1, CORES // 2), 0)),
        (Workers(address="auto"), [{"CPU": 96, "GPU": 8}], Share(8, 1.0, 1.0)),
        (Workers(address="auto"), [{}, {"CPU": 96, "GPU": 4}, {"CPU": 2, "GPU": 4}, {"CPU": 96}], Share(6, 1.0, 1.0)),
        (Workers(address="auto", gpus=0.25), [{"CPU": 96, "GPU": 8}], Share(32, 1.0, 0.25)),
        (Workers(address="auto", gpus=0.4), [{"CPU": 96, "GPU": 2}], Share(4, 1.0, 0.4)),
        (Workers(address="auto", cpus=4), [{"CPU": 98}], Share(24, 4, 0.0)),
        (Workers(address="auto", cpus=4), [{"CPU": 6}, {"CPU": 6}], Share(2, 4, 0.0)),
        (Workers(5, address="auto"), [{"CPU": 2}], Share(5, 1.0, 0.0)),  # the others come as there is room
    ],
)
def test_each_worker_has_its_share(wanted: Workers, there: list[dict[str, float]], expected: Share) -> None:
    assert share(wanted, there) == expected


@pytest.mark.parametrize(
    ("wanted", "there", "line"),
    [
        (Workers(1, gpus=0.5), [{"CPU": 2}], "this cluster has no GPU"),
        (Workers(1, gpus=2), [{"CPU": CORES, "GPU": 1}], "request fewer with --ray"),
        (Workers(address="auto", gpus=1.5), [{"CPU": 8, "GPU": 4}], "expected a fraction of one GPU, or an integer"),
        (Workers(address="auto", cpus=16), [{"CPU": 8}], "no machine in the cluster has 16 CPUs and"),
        (Workers(3, address="auto", cpus=16), [{"CPU": 8}] * 4, "available: 8 CPUs, 0 GPUs"),
    ],
)
def test_more_than_there_is_is_refused(wanted: Workers, there: list[dict[str, float]], line: str) -> None:
    with pytest.raises(UsageError, match=line):
        share(wanted, there)


@pytest.mark.parametrize(
    ("typed", "read"),
    [
        (["a", "--ray"], ["a", "--ray=auto"]),
        (["--ray", "photos/", "-o", "b"], ["--ray=auto", "photos/", "-o", "b"]),
        (["--ray", "head:6379", "a"], ["--ray", "head:6379", "a"]),
        (["--ray", "ray://10.0.0.1:10001"], ["--ray", "ray://10.0.0.1:10001"]),
        (["--ray=10.0.0.1:6379"], ["--ray=10.0.0.1:6379"]),
        (["--ray", "local?gpus=0.5", "a"], ["--ray", "local?gpus=0.5", "a"]),
        (["--ray", "?cpus=2", "a"], ["--ray", "?cpus=2", "a"]),
        (["--", "--ray"], ["--", "--ray"]),
    ],
)
def test_the_address_may_be_left_out(typed: list[str], read: list[str]) -> None:
    assert with_optional_values(typed) == read


@pytest.mark.parametrize(
    "options, workers",
    [
        (WorkerOptions(workers=2), Workers(2)),
        (WorkerOptions(ray="auto"), Workers(address="auto")),
        (WorkerOptions(ray="?gpus=0.5"), Workers(address="auto", gpus=0.5)),
        (WorkerOptions(workers=3, ray="local?cpus=2&gpus=0"), Workers(3, None, 2.0, 0.0)),
        (WorkerOptions(ray="head:6379?cpus=4"), Workers(None, "head:6379", 4.0)),
    ],
)
def test_ray_names_the_resources_of_a_worker(options: WorkerOptions, workers: Workers) -> None:
    assert options.cluster() == workers


@pytest.mark.parametrize(
    "ray, message",
    [
        ("auto?cpu=2", "unknown setting 'cpu'; did you mean 'cpus'"),
        ("auto?cpus=0", "expected a number of at least 0.1, such as cpus=1"),
        ("auto?gpus", "expected a number of at least 0, such as gpus=1"),
    ],
)
def test_wrong_resources_are_named(ray: str, message: str) -> None:
    with pytest.raises(UsageError, match=re.escape(message)):
        WorkerOptions(ray=ray).cluster()
