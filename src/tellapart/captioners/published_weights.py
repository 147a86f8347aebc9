"""Reads and loads weights from files that authors published, without unpickling code."""

from __future__ import annotations

import re
import zipfile
from pathlib import Path
from pickle import UnpicklingError
from typing import Any, NamedTuple

import torch
from safetensors.torch import load_file

from tellapart.errors import TellapartError, UsageError, first_line
from tellapart.models.loading_errors import loading_errors
from tellapart.utils.messages import say

State = dict[str, torch.Tensor]


class EggCheckpoint(NamedTuple):
    """Stands in for the class that EGG's trainer pickles into a ``.tar``, as in DiscriTune's published weights."""

    epoch: Any
    model_state_dict: Any
    optimizer_state_dict: Any = None
    optimizer_scheduler_state_dict: Any = None


def read_state(path: Path) -> State:
    """Reads the weights in a file, at the top level or under ``model``, ``state_dict`` or ``model_state_dict``.

    The only pickled class that is allowed is EGG's tuple; it is replaced with `EggCheckpoint`.
    """
    if path.suffix == ".safetensors":
        with loading_errors(str(path), "a safetensors checkpoint"):
            return load_file(path)
    if zipfile.is_zipfile(path) and any(n.endswith("/constants.pkl") for n in zipfile.ZipFile(path).namelist()):
        raise TellapartError(
            f"{path} is a TorchScript program, the format in which OpenAI distributes CLIP; expected only weights; "
            'if you trust this file, run: python -c "import torch; torch.save(torch.jit.load('
            f"'{path}', map_location='cpu').state_dict(), '{path.stem}-weights.pt')\""
        )
    known: list[Any] = [(EggCheckpoint, "egg.core.callbacks.Checkpoint"), (EggCheckpoint, "egg.core.util.Checkpoint")]
    try:
        with torch.serialization.safe_globals(known):
            content = torch.load(path, map_location="cpu", weights_only=True)
    except FileNotFoundError:
        raise UsageError(f"checkpoint {path} does not exist; expected a .pt, .pth or .tar file") from None
    except (UnpicklingError, RuntimeError, EOFError, OSError, TypeError) as error:
        named = re.search(r"GLOBAL (\S+)", str(error))
        cause = f"it contains {named[1]}" if named else plain_line(error)
        raise TellapartError(f"cannot load {path}: {cause}; expected a checkpoint that contains only tensors") from None
    if isinstance(content, EggCheckpoint):
        content = content.model_state_dict
    for key in ("model", "state_dict", "model_state_dict"):
        if isinstance(content, dict) and isinstance(content.get(key), dict):
            content = content[key]
    if not isinstance(content, dict) or not all(isinstance(value, torch.Tensor) for value in content.values()):
        raise TellapartError(f"{path} does not contain named weights; expected a ClipCap or BLIP checkpoint")
    return {str(key).removeprefix("module."): value for key, value in content.items()}


def plain_line(error: Exception) -> str:
    """Returns the first line of an error message, or the error's class, without torch's escape codes."""
    return re.sub(r"\x1b\[[0-9;]*m", "", first_line(error))[:160].strip()


def load_weights(model: Any, state: State, path: Path, stray: str, named: str, skip: str = "\0") -> None:
    """Loads all weights into the model, except those whose names start with ``skip``.

    Skips and reports keys that match ``stray``. Raises `TellapartError` for missing or unknown keys and for mismatched
    shapes. ``named``: describes the expected models in error messages.
    """
    left = sorted(key for key in state if re.match(stray, key))
    expected = {key: tensor for key, tensor in model.state_dict().items() if not key.startswith(skip)}
    given = {key: tensor for key, tensor in state.items() if key not in left}
    places = {tensor.data_ptr() for key, tensor in expected.items() if key in given}  # tied weights are needed once
    lacking = {key for key, tensor in expected.items() if key not in given and tensor.data_ptr() not in places}
    for what, keys in (("lacks", lacking), ("also has", given.keys() - expected.keys())):
        if keys:
            raise TellapartError(f"{path} does not fit {named}: it {what} {len(keys)} weights, such as {min(keys)}")
    for key, tensor in given.items():
        if tensor.shape != expected[key].shape:
            raise TellapartError(
                f"{path} does not fit {named}: {key} is {tuple(tensor.shape)}, expected {tuple(expected[key].shape)}"
            )
    model.load_state_dict({key: tensor.float() for key, tensor in given.items()}, strict=False)
    model.tie_weights()
    if left:
        say(f"{path}: ignored {len(left)} entries that are not weights of the captioner (first: {left[0]})")
