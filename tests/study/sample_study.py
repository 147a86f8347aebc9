"""Small studies of each kind from scenes in the shape of photos, a browser without a screen, and a scripted clock."""

from __future__ import annotations

import hashlib
import itertools
import json
import secrets
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from tellapart.scenes import Scenes
from tellapart.study.create import StudyPlan, create_study
from tellapart.study.design import Study
from tellapart.study.material import Material
from tellapart.study.scripted import StudyBrowser
from tellapart.types import Item

ATTACK = "<img src=x onerror=\"document.title='owned'\"> & <script>document.title='owned'</script>"
LONG = (
    " ".join(f"a {colour} thing stands near another {colour} one," for colour in ("red", "blue", "green") * 3)
    + " and so on"
)


@dataclass(frozen=True)
class Photo:
    """A scene as a photo of 3:2."""

    scene: Any

    @property
    def name(self) -> str:
        return str(self.scene.id)

    def key(self) -> str:
        return str(self.scene.id)

    def image(self) -> Image.Image:
        return drawn(self.scene).copy()


@lru_cache(200)
def drawn(scene: Any) -> Image.Image:
    """Drawn once for all tests."""
    return scene.image().resize((384, 256))


@lru_cache(4)
def scenes_of(count: int) -> list[Any]:
    """Scenes made once for all tests."""
    return list(Scenes(count, split="test", seed=7))


def number_tokens(monkeypatch: pytest.MonkeyPatch) -> None:
    """Makes a rehearsal of one participant after the other (``at_once=1``) the same each time.

    Of several at once, who answers first decides who is given which trial. The order of a participant's trials follows
    from a number that nobody can guess, and now and then it hides a difference.
    """
    numbers = itertools.count()
    monkeypatch.setattr(
        secrets, "token_hex", lambda size: hashlib.sha256(b"%d" % next(numbers)).hexdigest()[: 2 * size]
    )


def make_material(count: int = 60, *, hostile: bool = False) -> Material:
    """Pictures, two systems and references; features are coarse pixels."""
    scenes = scenes_of(count)
    items = [Item(scene.id, Photo(scene), tuple(scene.references)) for scene in scenes]
    captions = {
        "mle_base": {scene.id: min(scene.references, key=len) for scene in scenes},
        "smile": {scene.id: f"{scene.description} ({n})" for n, scene in enumerate(scenes)},
    }
    if hostile:
        captions["smile"] = {id_: f"{ATTACK} {text}" for id_, text in captions["smile"].items()}
    references = {
        item.id: (LONG if n == 0 else item.references[0], *item.references[1:]) for n, item in enumerate(items)
    }
    pixels = [np.asarray(item.picture.image().resize((8, 8)), np.float32).ravel() - 128 for item in items]
    return Material(items, captions, references, np.stack(pixels))


def make_study(folder: Path, kind: str = "pick", material: Material | None = None, **changes: Any) -> Study:
    """A study that takes a minute: six items in one or more blocks, two control items; its link needs no key."""
    settings: dict[str, Any] = {
        "items": 6,
        "candidates": 4,
        "block": 6,
        "controls": 2,
        "max_cosine": 0.999,
        "raters": 2,
    }
    made = create_study(folder, material or make_material(), StudyPlan(kind=kind, **{**settings, **changes}))
    assert made.settings.recruitment.link_key
    path = folder / "study.toml"
    path.write_text(
        path.read_text(encoding="utf-8").replace("TODO: describe how participants", "You"), encoding="utf-8"
    )
    who = {"researcher": "Ada", "institution": "A university", "contact": "ada@example.org", "ethics": "Board 12"}
    return edit_settings(made, link_key="", title="Distinguishing pictures", **who)


def edit_settings(study: Study, **values: Any) -> Study:
    """The study with other values in study.toml, by key."""
    import re

    from tellapart.study.design import open_study

    path = study.folder / "study.toml"
    text = path.read_text(encoding="utf-8")
    for key, value in values.items():
        text, count = re.subn(rf"(?m)^{key} = .*$", lambda _, k=key, v=value: f"{k} = {json.dumps(v)}", text)
        assert count == 1, key
    path.write_text(text, encoding="utf-8")
    return open_study(study.folder)


class Clock:
    """Seconds that pass only when told to."""

    def __init__(self) -> None:
        self.now = 1_000_000.0

    def __call__(self) -> float:
        return self.now


def browser(url: str, identifier: str = "") -> tuple[StudyBrowser, dict[str, Any]]:
    """Somebody who has agreed: requests with a token, and the first state."""
    web = StudyBrowser(url)
    state = web.json("/api/begin", {"consent": True, "identifier": identifier})
    return web, state


def answer(web: StudyBrowser, state: dict[str, Any], options: list[int]) -> dict[str, Any]:
    """Answer the item of a state."""
    body = {"position": state["position"], "options": options, "revision": state["revision"]}
    return web.json("/api/answer", body)
