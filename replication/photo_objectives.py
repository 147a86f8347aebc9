"""``replication objectives --photos``: recent objectives and rewards on Flickr8k, compared with self-retrieval.

The counterpart of `replication.objectives` on photos, with the same rule. All arms start from ``photos_mle`` and train
on photos that the reward scorer has never seen; R@1 is by the held-out scorer. Truth is the share of claims that a
reference makes, so a true claim that no reference makes counts as false.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from replication.claim import Arm, Measurement
from replication.lab import Lab
from replication.objectives import RLOO, Comparison, beats_base
from replication.photo_findings import DECODINGS, JUDGE, PHOTOS, reward
from replication.photo_findings import of as on_photos
from replication.verdict import RECORDS as CLAIMS_RECORDS
from tellapart.recipe.shipped_recipes import find_recipe
from tellapart.utils.recipe_names import fill_in

COMMAND = "photo-objectives"
FOLDER, RECORDS = Path("runs") / COMMAND, CLAIMS_RECORDS / COMMAND
START = "photos_mle"
MEASURES = ("r1", "hard", "facts", "cider", "length")
TRAINING: dict[str, Any] = {
    "steps": 80,
    "rate": 3e-4,
}  # half the steps of `replication.photo_findings`, at a higher learning rate


def arms() -> dict[str, Arm]:
    """Returns every arm by name."""
    methods = (reward(name, **TRAINING, **change) for name, change in RLOO.items())
    return {arm.name: arm for arm in (Arm("start", model=str(find_recipe(START))), *methods)}


def make_lab(folder: Path = FOLDER) -> Lab:
    """Creates the lab of these arms."""
    held_out = {"photos": fill_in(f"{PHOTOS}test,validation")}
    return Lab(folder, arms(), held_out, DECODINGS, str(find_recipe(JUDGE)))


def of(arm: str, measure: str) -> Measurement:
    return on_photos(arm, measure, "long")


CLAIMS = tuple(beats_base(name, of, truth="facts", prefix="photo-objectives") for name in RLOO if name != "base")
ON_PHOTOS = Comparison(
    COMMAND, CLAIMS, {row: [of(row, name) for name in MEASURES] for row in ("start", *RLOO)}, make_lab, RECORDS
)
