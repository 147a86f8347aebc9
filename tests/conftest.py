"""Tiny models of our own, built in code and saved in the real layouts, shared by the tests."""

from __future__ import annotations

import gc
import importlib
import os
import sys
from collections.abc import Generator, Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
from command_line import Cli, Done
from real_data import DATA

os.environ.setdefault("HF_HUB_OFFLINE", "1")  # read when the hub's client is imported, which `tellapart` does
# Ray's workers give way to every other process (niceness 15); beside other tests theirs would wait for minutes.
os.environ.setdefault("RAY_worker_niceness", "0")
# oneDNN of torch 2.13 writes beyond its memory in the backward pass of convolutions of four channels on some AMD CPUs,
# with AVX2 and AVX-512 kernels; the tests' tiny towers have such. Read before torch is imported. What needs those
# kernels runs in a process of its own (tests/models/test_packed_linears.py).
if (cpu := Path("/proc/cpuinfo")).is_file() and "AuthenticAMD" in cpu.read_text(encoding="utf-8"):
    os.environ.setdefault("DNNL_MAX_CPU_ISA", "SSE41")


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """Exempts what importing all tests leaves, a million objects that stay, from garbage collection: each full
    collection would visit them, for a second of processor time.
    """
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.enable()


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    if not DATA.is_dir():
        skip = pytest.mark.skip(reason=f"no real data at {DATA}; set TELLAPART_DATA to its folder")
        for item in items:
            if item.get_closest_marker("data"):  # a folder of that name is a keyword, too
                item.add_marker(skip)
    from tellapart.models.packages import PARTS

    if missing := [name for name in PARTS if find_spec(PARTS[name].module) is None]:
        why = f"no pretrained {', '.join(missing)}; type: make pretrained"
        for item in items:
            if item.get_closest_marker("pretrained"):
                item.add_marker(pytest.mark.skip(reason=why))
    # Files with long tests begin first, so that no worker waits at the end for one that began last.
    long = {item.path for item in items if item.get_closest_marker("long")}
    items.sort(key=lambda item: item.path not in long)


@pytest.fixture(scope="session", autouse=True)
def own_cache(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """Features of the tests go to a folder of their own. METEOR's index takes ten seconds: the workers have it in
    common.
    """
    before, folder = os.environ.get("TELLAPART_CACHE"), tmp_path_factory.mktemp("cache")
    os.environ["TELLAPART_CACHE"] = str(folder)
    if "PYTEST_XDIST_WORKER" in os.environ:
        common = tmp_path_factory.getbasetemp().parent / "meteor"
        common.mkdir(exist_ok=True)
        (folder / "meteor").symlink_to(common)
    yield
    if before is None:
        del os.environ["TELLAPART_CACHE"]
    else:
        os.environ["TELLAPART_CACHE"] = before


@pytest.fixture(scope="session", autouse=True)
def auto_is_fp32() -> Any:
    """``--precision auto`` is fp32 on every machine that runs the tests; what it is elsewhere has tests of its own."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("tellapart.models.precision.multiplies_in_bf16", lambda device: False)
        yield


@pytest.fixture(autouse=True)
def no_code_allowed(monkeypatch: pytest.MonkeyPatch) -> None:
    """What one test allows to run is not allowed in the next."""
    monkeypatch.setattr("tellapart.utils.allowed_code._allowed", set())


INSTALLED: set[str] = set()  # modules that were seen to lie in no folder of a test


@pytest.fixture(autouse=True)
def no_module_of_another_test(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Forgets the modules that a test imported from a folder of its own, so that no later test finds them by name."""
    yield
    folders = f"{tmp_path_factory.getbasetemp()}{os.sep}"
    for name in sys.modules.keys() - INSTALLED:
        if (getattr(sys.modules[name], "__file__", None) or "").startswith(folders):
            del sys.modules[name]
        else:
            INSTALLED.add(name)


@pytest.fixture
def cli(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Cli:
    """Types a command: it runs in this process through `main`, as the installed script calls it.

    What a command sets in the environment (`--verbose` for the libraries below) ends with it, as with a process.
    ``package``: one with a `main` of its own, such as ``benchmarks.__main__``.
    """

    def run(*arguments: object, package: str = "tellapart.cli") -> Done:
        main = importlib.import_module(package).main
        monkeypatch.setattr(sys, "argv", ["tellapart", *map(str, arguments)])
        capsys.readouterr()
        environment = dict(os.environ)
        status = 0
        try:
            main()
        except SystemExit as left:
            status = int(left.code or 0)
        finally:
            os.environ.clear()
            os.environ.update(environment)
        return Done(status, *capsys.readouterr())

    return run


@pytest.fixture(scope="session")
def tiny_scorer(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a dual encoder with random weights, in transformers' layout."""
    import torch

    from tellapart.recipe.schema import NewScorer
    from tellapart.scenes import Scenes
    from tellapart.training.new_models import build_scorer

    torch.manual_seed(0)
    texts = [text for scene in Scenes(60, detail=0.8) for text in scene.references]
    new = NewScorer(image_size=32, width=4, text_width=16, text_layers=1, text_heads=2, projection=16)
    folder = tmp_path_factory.mktemp("models") / "scorer"
    build_scorer(new, texts, "tiny").save(folder)
    return folder


@pytest.fixture(scope="session")
def tiny_captioner(tiny_scorer: Path) -> Path:
    """The folder of a ClipCap with random weights."""
    import torch

    from tellapart.captioners.vision_encoders import load_vision
    from tellapart.recipe.schema import NewCaptioner
    from tellapart.scenes import Scenes
    from tellapart.training.new_models import build_captioner

    torch.manual_seed(1)
    texts = [text for scene in Scenes(60, detail=0.8) for text in scene.references]
    new = NewCaptioner(vision=str(tiny_scorer), width=16, layers=1, heads=2, prefix_length=2, dropout=0.1)
    folder = tiny_scorer.parent / "captioner"
    build_captioner(new, texts, *load_vision(str(tiny_scorer)), "tiny").save(folder)
    return folder


@pytest.fixture
def tiny_recipe(tiny_scorer: Path, tiny_captioner: Path) -> dict[str, Any]:
    """Self-retrieval with the tiny models on sixty scenes, as a plain table."""
    return {
        "name": "tiny",
        "data": {
            "train": "scenes:plain?n=60&split=train",
            "validation": "scenes:plain?n=30&split=validation",
            "test": "scenes:plain?n=30&split=test",
        },
        "captioner": {"name": str(tiny_captioner)},
        "scorer": {"name": str(tiny_scorer)},
        "objective": {"kind": "reinforce", "decoding": {"kind": "sample", "max_tokens": 6}, "kl": 0.1},
        "training": {"steps": 6, "batch_size": 20, "learning_rate": 1e-3, "log_every": 1, "checkpoint_every": 2},
        "validation": {"every": 3, "decoding": {"max_tokens": 6}},
        "evaluation": {"lookalike": 5, "gallery": 2, "decoding": {"max_tokens": 6}},
    }
