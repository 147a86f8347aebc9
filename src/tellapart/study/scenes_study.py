"""Creates a small study on `scenes`."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from tellapart.data import open_data
from tellapart.features.store import FeatureStore
from tellapart.models.devices import best_device
from tellapart.scorers import load_scorer
from tellapart.study.create import StudyPlan, create_study
from tellapart.study.design import Study
from tellapart.study.material import Material

SCENES = "scenes:plain?split=test&n=400"


def scenes_study(kind: str, folder: Path) -> Study:
    """Creates a small study on `scenes`, with vague and detailed captions, for a rehearsal that needs no data."""
    items = list(open_data(SCENES))
    captions = {
        "vague": {item.id: min(item.references, key=len) for item in items},
        "detailed": {item.id: item.truth.description for item in items},
    }
    references = {item.id: item.references for item in items}
    features_ND = None
    if kind == "pick":
        encoder = load_scorer("scenes", best_device()).encoder
        features_ND = np.asarray(FeatureStore().features(items, encoder))
    plan = StudyPlan(
        kind=kind,
        items=30 if kind == "pick" else 40,
        candidates=6,
        block=20,
        raters=10 if kind == "compare" else 4,  # a study of this kind has a third of the blocks
        human="first" if kind != "compare" else "none",
        max_cosine=0.98,  # scenes are more similar than photos
        title="A rehearsal",
    )
    return create_study(folder, Material(items, captions, references, features_ND), plan)
