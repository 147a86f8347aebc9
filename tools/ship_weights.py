"""Put the two models of the world `scenes` into the package, in half precision.

tellapart train recipes/scenes_mle.toml --out runs/scenes_mle     (trains the scorer first)
python tools/ship_weights.py runs/scenes_scorer-… runs/scenes_mle
"""

from __future__ import annotations

import shutil
import sys
from pathlib import Path

import torch

from tellapart.captioners import load_captioner
from tellapart.models.loading import BUILTIN
from tellapart.scorers import load_scorer

LIMIT = 8_000_000


def main(scorer_run: str, captioner_run: str) -> None:
    for kind, part in (("scorer", load_scorer(scorer_run)), ("captioner", load_captioner(captioner_run))):
        folder = BUILTIN / kind
        shutil.rmtree(folder, ignore_errors=True)
        part.model.to(torch.float16)
        part.save(folder)
        shutil.copy(Path(scorer_run if kind == "scorer" else captioner_run) / "recipe.toml", folder / "recipe.toml")
    size = sum(file.stat().st_size for file in BUILTIN.rglob("*.safetensors"))
    print(f"{BUILTIN}: {size / 1e6:.2f} MB of weights")
    if size > LIMIT:
        raise SystemExit(f"more than the {LIMIT / 1e6:.0f} MB that the package may carry")


if __name__ == "__main__":
    main(*sys.argv[1:])
