"""Runs one size of ``benchmarks growth`` in this process and prints the seconds as JSON. Does not time the generation
of the inputs.

python -m benchmarks.growth_work eval 100000
"""

from __future__ import annotations

import json
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from PIL import Image

BLOCK = 8192
TOKENS = 12  # per caption, as in COCO
BAG = 5


def measure_eval(count: int) -> float:
    """Times ``evaluate`` on two systems' captions: R@1 in pools of 100, BLEU and CIDEr, intervals and a paired
    difference.
    """
    from benchmarks.growth_data import Captions, WordScorer, image_features
    from tellapart.evaluation.evaluate import evaluate

    made = Captions(count)
    scorer = WordScorer(made.words)
    ids = [str(number) for number in range(count)]
    references = dict(zip(ids, made.references(), strict=True))
    image_ND = image_features(scorer, [texts[0] for texts in references.values()])
    systems = {f"system {which}": dict(zip(ids, made.texts(which), strict=True)) for which in (10, 11)}
    start = time.perf_counter()
    evaluate(
        systems,
        references=references,
        scorer=scorer,
        image_features=image_ND,
        metrics=["recall@1.random100", "bleu", "cider"],
    )
    return time.perf_counter() - start


@dataclass(frozen=True)
class NamedPicture:
    """A picture that has only a key. It is never decoded, because its features are in the store."""

    name: str

    def key(self) -> str:
        return self.name

    def image(self) -> Image.Image:
        raise NotImplementedError("its features are in the store")


def measure_caption(count: int) -> float:
    """Times `caption_pictures`: looking up stored features, greedy captioning, and writing the file.

    The captioner is the one for ``scenes`` (0.6 million parameters), because this measures the tool, not the model.
    """
    from tellapart.captioners import load_captioner
    from tellapart.data import Dataset, open_data
    from tellapart.features.row_makers import encoder_rows
    from tellapart.features.rows import RowStore
    from tellapart.features.store import FeatureStore
    from tellapart.inference.caption import caption_pictures
    from tellapart.models.decoding import Decoding
    from tellapart.types import Item

    captioner = load_captioner("scenes", "cpu", "fp32")
    encoder = captioner.encoder
    maker = encoder_rows(encoder)
    real = maker.rows([maker.of(item.picture) for item in open_data("scenes:plain?n=64")])
    with tempfile.TemporaryDirectory() as folder:
        rows, rng = RowStore(Path(folder) / "cache", 1e15), np.random.default_rng(0)
        for start in range(0, count, BLOCK):
            size = min(BLOCK, count - start)
            mixed = real[rng.integers(len(real), size=size)]
            mixed += 0.1 * rng.standard_normal(mixed.shape, dtype=np.float32) * real.std()
            rows.append(maker.label, [str(number) for number in range(start, start + size)], mixed)
        dataset = Dataset("synthetic", [Item(str(number), NamedPicture(str(number))) for number in range(count)])
        store = FeatureStore(Path(folder) / "cache", limit_gb=1e6)
        start_time = time.perf_counter()
        caption_pictures(
            captioner,
            dataset,
            Path(folder) / "captions.jsonl",
            decoding=Decoding(kind="greedy", max_tokens=TOKENS),
            batch_size=256,
            store=store,
            progress=False,
        )
        return time.perf_counter() - start_time


def measure_bags(count: int) -> float:
    """Times `mine_bags` and `curate_bags`."""
    from benchmarks.bags import features
    from tellapart.bags.mine import curate_bags, mine_bags

    features_ND = features(count, uneven=True)
    start = time.perf_counter()
    curate_bags(mine_bags(features_ND, BAG))
    return time.perf_counter() - start


WORK: dict[str, Callable[[int], float]] = {"eval": measure_eval, "caption": measure_caption, "bags": measure_bags}

if __name__ == "__main__":
    print(json.dumps({"seconds": WORK[sys.argv[1]](int(sys.argv[2]))}))
