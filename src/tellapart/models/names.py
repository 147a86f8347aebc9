"""Resolves a model's name: a folder, a finished run, a model on the hub, a packaged part, ``scenes``, or a server."""

from __future__ import annotations

from pathlib import Path

from tellapart.errors import UsageError
from tellapart.models.packages import PARTS, packaged_folder

RUNS = Path("runs")
BUILTIN = Path(__file__).parents[1] / "scenes" / "weights"


def is_server(name: str) -> bool:
    """Returns True if a captioner's name refers to a model on a server."""
    return name.startswith(("openai:", "anthropic:"))


def model_folder(name: str, kind: str) -> str:
    """Returns the folder (or hub name) that ``name`` refers to. ``kind``: 'captioner' or 'scorer'.

    ``scenes`` refers to the model included in this package. A run folder resolves to the model that the run trained,
    and the name of a packaged part (`models.packages`) to the part's folder.
    """
    if name == "scenes":
        return str(BUILTIN / kind)
    if name in PARTS:
        return str(packaged_folder(name))
    folder = Path(name).expanduser()
    if name.endswith(".toml"):
        raise UsageError(f"{name} is a recipe, not a {kind}; run: tellapart train {name}, then pass its run folder")
    if not name or folder.is_file():
        raise UsageError(f"'{name}' is not a {kind}; expected a folder, a run, a hub name, or 'scenes'")
    if (folder / "run.json").is_file():
        if not (folder / "model" / "config.json").is_file():
            raise UsageError(
                f"{name} is a run without a finished model; run: tellapart train {folder}/recipe.toml --out "
                f"{folder} --resume"
            )
        return str(folder / "model")
    if folder.is_dir():
        if not (folder / "config.json").is_file():
            raise UsageError(f"{name} contains no config.json; expected a folder written by save_pretrained, or a run")
        return str(folder)
    if name.count("/") > 1 or name.startswith((".", "/", "~")) or name.endswith((".pt", ".pth", ".bin")):
        raise UsageError(f"model folder {name} does not exist; expected a folder, a run, a hub name, or 'scenes'")
    return name
