"""Put the models of the world `scenes` into the package, in half precision, each with its recipe.

tellapart train recipes/scenes_mle.toml --out runs/scenes_mle     (trains the scorer and the earlier captioners first)
python tools/ship_weights.py --scorer runs/scenes_scorer-… --captioner runs/scenes_mle     (or one of the two)
"""

from __future__ import annotations

import argparse
import shutil

import torch

from tellapart.captioners import load_captioner
from tellapart.models.names import BUILTIN
from tellapart.recipe.shipped_recipes import SHIPPED
from tellapart.scorers import load_scorer

LIMIT = 8_000_000
RECIPES = {"scorer": "scenes_scorer.toml", "captioner": "scenes_mle.toml"}


def main(runs: dict[str, str]) -> None:
    """Replaces these models: ``runs`` has the run of a "scorer", of a "captioner", or of both."""
    for kind, run in runs.items():
        part = load_scorer(run, "cpu", "fp32") if kind == "scorer" else load_captioner(run, "cpu", "fp32")
        folder = BUILTIN / kind
        shutil.rmtree(folder, ignore_errors=True)
        part.model.to(torch.float16)
        part.save(folder)
        shutil.copy(SHIPPED / RECIPES[kind], folder / "recipe.toml")
    size = sum(file.stat().st_size for file in BUILTIN.rglob("*.safetensors"))
    print(f"{BUILTIN}: {size / 1e6:.2f} MB of weights")
    if size > LIMIT:
        raise SystemExit(f"more than the {LIMIT / 1e6:.0f} MB that the package may carry")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for kind in RECIPES:
        parser.add_argument(f"--{kind}", metavar="RUN")
    chosen = {kind: run for kind, run in vars(parser.parse_args()).items() if run}
    main(chosen or parser.error("pass a run with --scorer or --captioner"))
