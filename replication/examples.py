"""Selects three pictures from a claim's test set, with the arms' captions. Takes the first three, not the best."""

from __future__ import annotations

import io
from collections.abc import Sequence
from dataclasses import dataclass

from PIL import Image

from replication.claim import Claim, Measurement
from replication.lab import Lab
from replication.measures import MEASURES
from tellapart.types import Picture

SHOWN = 3


@dataclass(frozen=True)
class Said:
    """An arm's caption. ``false``: spans (start, end, why) of the words that make false claims."""

    arm: str
    caption: str
    false: tuple[tuple[int, int, str], ...]


@dataclass(frozen=True)
class Example:
    """A picture with the arms' captions."""

    id: str
    picture: Picture
    captions: tuple[Said, ...]


def find_examples(claim: Claim, lab: Lab, seed: int) -> list[Example]:
    """Returns the first three pictures of the test set that most arms of the claim caption, arms in claim order."""
    read = [one for part in claim.parts for one in part.measurements if "model" not in MEASURES[one.measure].needs]
    if not read:
        return []
    shown: dict[tuple[str, str], dict[str, Measurement]] = {}
    for one in read:
        shown.setdefault((one.test_set, one.decoding), {}).setdefault(one.arm, one)
    (test_set, _), arms = max(shown.items(), key=lambda item: len(item[1]))
    captions = {arm: lab.generate_captions(one, seed).first_captions for arm, one in arms.items()}
    return [
        Example(item.id, item.picture, tuple(said(arm, texts[row], item.truth) for arm, texts in captions.items()))
        for row, item in enumerate(lab.test_sets.items(test_set)[:SHOWN])
    ]


def said(arm: str, caption: str, truth: object) -> Said:
    """Returns the caption, with its false words if the picture's ground truth is known."""
    from tellapart.scenes.marked_captions import mark_caption
    from tellapart.scenes.world import Scene

    false = mark_caption(caption, truth).false if isinstance(truth, Scene) else ()
    return Said(arm, caption, tuple((start, end, why) for start, end, why in false))


def as_png(picture: Picture) -> bytes:
    """Encodes the picture as PNG; a clip becomes a 2×2 grid of four frames, in row order."""
    from tellapart.data.pictures import is_clip, sample_frames

    image = contact_sheet(sample_frames(picture, 4)) if is_clip(picture) else picture.image().convert("RGB")
    stream = io.BytesIO()
    image.save(stream, "PNG")
    return stream.getvalue()


def contact_sheet(frames: Sequence[Image.Image]) -> Image.Image:
    width, height = frames[0].size
    sheet = Image.new("RGB", (2 * width, 2 * height))
    for n, frame in enumerate(frames[:4]):
        sheet.paste(frame.convert("RGB"), (n % 2 * width, n // 2 * height))
    return sheet
