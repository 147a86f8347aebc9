"""The run folder on a full disk and where something else lies already."""

from __future__ import annotations

import resource
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import save_file

from tellapart.errors import TellapartError, UsageError
from tellapart.recipe.reading import check_recipe
from tellapart.training.run_files import write_folder, write_text
from tellapart.training.run_folder import Run

BIG = {"weights": torch.zeros(100_000)}


@contextmanager
def a_disk_that_is_full_after(count: int) -> Iterator[None]:
    """No file may grow beyond ``count`` bytes: the writers fail in the middle, as on a full disk."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (count, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


def with_safetensors(folder: Path) -> None:
    save_file(BIG, folder / "weights.safetensors")


def with_torch(folder: Path) -> None:
    torch.save(BIG, folder / "optimiser.pt")


def with_python(folder: Path) -> None:
    (folder / "text").write_bytes(bytes(400_000))


@pytest.mark.parametrize("fill", [with_safetensors, with_torch, with_python])
def test_a_disk_that_fills_while_a_folder_is_written_leaves_the_old_one(tmp_path: Path, fill: Any) -> None:
    """Each writer says a full disk in its own way: SafetensorError, RuntimeError, OSError."""
    write_folder(tmp_path / "model", lambda to: (to / "old").touch() or None)
    with a_disk_that_is_full_after(10_000), pytest.raises(TellapartError, match=r"cannot write .*model: .*--resume"):
        write_folder(tmp_path / "model", fill)
    assert [path.name for path in tmp_path.rglob("*")] == ["model", "old"]


@pytest.mark.skipif(not Path("/sys/kernel").is_dir(), reason="no /sys, in which not even root may write a file")
def test_a_folder_that_is_not_writable_is_no_full_disk() -> None:
    with pytest.raises(TellapartError, match=r"results.json: .*; make the folder writable, or set another --out$"):
        write_text(Path("/sys/results.json"), "new")


def test_a_disk_that_fills_while_a_text_is_written_leaves_the_old_one(tmp_path: Path) -> None:
    write_text(tmp_path / "results.json", "old")
    with a_disk_that_is_full_after(10_000), pytest.raises(TellapartError, match=r"cannot write .*results.json"):
        write_text(tmp_path / "results.json", "x" * 400_000)
    assert (tmp_path / "results.json").read_text() == "old" and len(list(tmp_path.iterdir())) == 1


def test_a_mistake_of_our_own_is_not_taken_for_a_full_disk(tmp_path: Path) -> None:
    def wrong(folder: Path) -> None:
        torch.zeros(2) @ torch.zeros(3)

    with pytest.raises(RuntimeError, match="size"):
        write_folder(tmp_path / "model", wrong)
    assert not list(tmp_path.iterdir())


def test_a_stamp_alone_does_not_hold_a_folder_and_results_do(tiny_recipe: dict[str, Any], tmp_path: Path) -> None:
    run = Run(tmp_path / "run", check_recipe(tiny_recipe, "test"))
    run.stamp("cpu")
    assert not run.started
    run.stamp("cpu")  # the same command, its path mended
    (run.folder / "results.json").write_text("{}")
    assert run.started


def test_a_folder_with_other_files_is_refused_and_left_alone(tiny_recipe: dict[str, Any], tmp_path: Path) -> None:
    recipe = check_recipe(tiny_recipe, "test")
    (tmp_path / "thesis.txt").write_text("mine")
    with pytest.raises(UsageError, match=r"is not a run but contains thesis.txt; set --out to a new"):
        Run(tmp_path, recipe).stamp("cpu")
    with pytest.raises(UsageError, match=r"thesis.txt is a file; expected a new folder"):
        Run(tmp_path / "thesis.txt", recipe).stamp("cpu")
    assert [path.name for path in tmp_path.iterdir()] == ["thesis.txt"]


@pytest.mark.parametrize("name", ["recipe.toml", "log.jsonl", "run.json", "checkpoints/step-500/model.bin"])
def test_a_file_of_the_same_name_is_no_run(tiny_recipe: dict[str, Any], tmp_path: Path, name: str) -> None:
    """A recipe in a folder of its own, or another program's log, is not written over."""
    (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
    (tmp_path / name).write_text("{}")
    with pytest.raises(UsageError, match="is not a run but contains"):
        Run(tmp_path, check_recipe(tiny_recipe, "test")).stamp("cpu")
    assert [path for path in tmp_path.rglob("*") if path.is_file()] == [tmp_path / name]
    assert (tmp_path / name).read_text() == "{}"


def test_a_folder_that_someone_put_among_the_checkpoints_stays(tiny_recipe: dict[str, Any], tmp_path: Path) -> None:
    run = Run(tmp_path / "run", check_recipe(tiny_recipe, "test"))
    run.stamp("cpu")
    (run.checkpoints / "kept-by-me").mkdir()
    for step in (1, 2, 3):
        run.save({"step": step, "best_step": None}, lambda folder: None)
    assert sorted(path.name for path in run.checkpoints.iterdir()) == ["kept-by-me", "step-0000002", "step-0000003"]
    with pytest.raises(UsageError, match="also contains checkpoints/kept-by-me; --overwrite removes only the"):
        run.clear()
    assert (run.checkpoints / "kept-by-me").is_dir() and (run.folder / "run.json").is_file()


def test_what_a_kill_left_of_checkpoints_goes(
    tiny_recipe: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Killed while it removed the checkpoint before the last two, or wrote one: no half one stays under its name."""
    run = Run(tmp_path / "run", check_recipe(tiny_recipe, "test"))
    run.stamp("cpu")
    for step in (1, 2, 3):
        with monkeypatch.context() as patch:
            if step == 3:
                patch.setattr("shutil.rmtree", lambda path, **_: None)  # as where the process ends there
            run.save({"step": step, "best_step": None}, lambda folder: None)
    (run.checkpoints / ".step-0000004.12345678.99").mkdir()
    assert sorted(path.name for path in run.checkpoints.glob("step-*")) == ["step-0000002", "step-0000003"]
    run.save_best(3, lambda folder: None)
    run.publish(run.best_folder(3))
    assert sorted(path.name for path in run.checkpoints.iterdir()) == ["best-0000003", "step-0000002", "step-0000003"]
    (run.checkpoints / ".step-0000004.12345678.99").mkdir()
    run.clear()
    assert not run.folder.exists() or not list(run.folder.iterdir())


@pytest.mark.parametrize("damage", ["{", "[1, 2]", '"run"', "3", "null"])
def test_a_damaged_stamp_is_one_line(damage: str, tiny_recipe: dict[str, Any], tmp_path: Path) -> None:
    (tmp_path / "run.json").write_text(damage)
    with pytest.raises(UsageError, match=r"cannot read .*run\.json \("):
        _ = Run(tmp_path, check_recipe(tiny_recipe, "test")).info


def test_saving_a_model_shows_no_bar(tiny_scorer: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    from transformers.utils.logging import enable_progress_bar

    from tellapart.scorers import load_scorer

    scorer = load_scorer(str(tiny_scorer))
    enable_progress_bar()  # as in a process that has not loaded a model, only made one
    scorer.save(tmp_path)
    assert capfd.readouterr().err == ""
