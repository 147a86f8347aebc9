"""Checksums beside weights: damage is refused in one line, a folder without them loads."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tellapart.captioners import load_captioner
from tellapart.errors import TellapartError
from tellapart.evaluation.language_model import load_language_model
from tellapart.models.names import BUILTIN
from tellapart.scorers import load_scorer
from tellapart.utils.checksums import SUMS


def damage(file: Path, count: int = 200) -> None:
    """Turn ``count`` bytes in the middle of a file over; its size and header stay."""
    data = bytearray(file.read_bytes())
    middle = len(data) // 2
    data[middle : middle + count] = bytes(byte ^ 0x55 for byte in data[middle : middle + count])
    file.write_bytes(data)


@pytest.mark.parametrize("load", [load_captioner, load_scorer], ids=["captioner", "scorer"])
def test_damaged_weights_are_refused(
    load: Callable[..., Any], tiny_captioner: Path, tiny_scorer: Path, tmp_path: Path
) -> None:
    source = tiny_captioner if load is load_captioner else tiny_scorer
    folder = Path(shutil.copytree(source, tmp_path / "model"))
    if shutil.which("sha256sum"):
        checked = subprocess.run(["sha256sum", "-c", SUMS], cwd=folder, capture_output=True, text=True, check=True)
        names = sorted(line.partition(": OK")[0] for line in checked.stdout.splitlines())
        assert names == sorted(file.name for file in folder.iterdir() if file.name not in (SUMS, "README.md"))
    load(str(folder))
    damage(folder / "model.safetensors")
    with pytest.raises(TellapartError, match=r"model\.safetensors is damaged: its SHA-256 .* remove .*SUMS") as told:
        load(str(folder))
    assert len(str(told.value).splitlines()) == 1
    (folder / SUMS).unlink()  # a model of the hub or of 0.1 has no checksums
    load(str(folder))
    (folder / SUMS).write_bytes(b"\xff\x00 what")
    with pytest.raises(TellapartError, match="SHA256SUMS is damaged"):
        load(str(folder))


def test_every_file_of_a_model_is_checked_and_no_line_may_be_missing(tiny_scorer: Path, tmp_path: Path) -> None:
    """One bit in the preprocessing gives other scores, and an emptied list checks nothing."""
    folder = Path(shutil.copytree(tiny_scorer, tmp_path / "model"))
    for name in ("preprocessor_config.json", "config.json", "tokenizer.json", "tokenizer_config.json"):
        whole = (folder / name).read_bytes()
        damage(folder / name, 1)
        with pytest.raises(TellapartError, match=f"{name} is damaged: its SHA-256"):
            load_scorer(str(folder))
        (folder / name).write_bytes(whole)
    load_scorer(str(folder))
    lines = (folder / SUMS).read_text().splitlines(keepends=True)
    assert len(lines) > 5
    for kept in ([], *(lines[:n] + lines[n + 1 :] for n in range(1, len(lines))), lines[:1], lines[:3]):
        (folder / SUMS).write_text("".join(kept))
        with pytest.raises(TellapartError, match=r"SHA256SUMS is damaged \(\d+ of \w+ lines\)"):
            load_scorer(str(folder))
    (folder / SUMS).write_text("".join(line for line in lines if "model.safetensors" in line))  # of an earlier version
    load_scorer(str(folder))


def test_a_language_model_is_checked_too(tiny_captioner: Path, tmp_path: Path) -> None:
    folder = Path(shutil.copytree(tiny_captioner, tmp_path / "model"))
    damage(folder / "model.safetensors")
    with pytest.raises(TellapartError, match="is damaged"):
        load_language_model(str(folder))


def test_the_shipped_models_have_checksums(tmp_path: Path) -> None:
    for kind in ("captioner", "scorer"):
        assert "model.safetensors" in (BUILTIN / kind / SUMS).read_text()
