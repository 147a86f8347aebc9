"""The synthetic world `scenes`, a lazy sequence of pictures with exact ground truth."""

from __future__ import annotations

import hashlib
import operator
from collections.abc import Sequence
from dataclasses import KW_ONLY, dataclass
from functools import cached_property, lru_cache
from typing import overload

import numpy as np
from PIL import Image

from tellapart.errors import UsageError, nearest
from tellapart.scenes.families import Content, base, members
from tellapart.scenes.grammar import describe, full_description, paraphrases
from tellapart.scenes.ground_truth import SceneTruth
from tellapart.scenes.render import draw_scene
from tellapart.types import Item
from tellapart.utils.permutation import permuted
from tellapart.utils.random_stream import RandomStream, digest

DOMAINS = ("plain", "alt", "unseen", "cocolike")


class Scene(SceneTruth):
    """A picture (or clip) of the synthetic world, with its ground truth, renderer and descriptions. Implements
    `types.Picture`.
    """

    @cached_property
    def references(self) -> tuple[str, ...]:
        """Returns references that mention each detail with probability ``detail``, or full descriptions if ``full`` is
        set.
        """
        if self.full:
            return (self.description, *paraphrases(self, self.count))[: self.count]
        return tuple(describe(self, RandomStream("reference", self.id, k), self.detail) for k in range(self.count))

    @cached_property
    def description(self) -> str:
        """Returns the full description, which covers every object with every attribute, the relations and the
        background.
        """
        return full_description(self)

    def array(self, size: int | None = None) -> np.ndarray:
        """Renders uint8 pixels, height × width × 3. For a clip, renders the middle frame."""
        return draw_scene(self, size or self.size)

    def image(self, size: int | None = None) -> Image.Image:
        """Renders the picture as RGB. If ``size`` is given, renders the picture at that size instead of resizing it."""
        return Image.fromarray(self.array(size))

    def frames(self, count: int | None = None, size: int | None = None) -> list[Image.Image]:
        """Returns ``count`` frames of a clip, evenly spaced in time [default: all frames], or the single frame of a
        picture.
        """
        wanted = (
            range(self.length) if count is None else [(2 * k + 1) * self.length // (2 * count) for k in range(count)]
        )
        drawn = {k: Image.fromarray(draw_scene(self, size or self.size, frame=k)) for k in set(wanted)}
        return [drawn[k] for k in wanted]

    def item(self) -> Item:
        """Returns the scene as an `Item` whose ground truth is the scene itself."""
        return Item(id=self.id, picture=self, references=self.references, split=self.split, truth=self)

    def stills(self) -> list[Item]:
        """Returns a clip's frames as pictures. They have no ground truth, because the clip's ground truth may not hold
        for every frame.
        """
        numbers = range(self.length)
        return [Item(f"{self.id}#{k}", Still(self, k), self.references, self.split) for k in numbers]


@dataclass(frozen=True)
class Still:
    """A single frame of a clip, as a picture. Implements `types.Picture`."""

    clip: Scene
    number: int

    @property
    def name(self) -> str:
        return f"{self.clip.id}#{self.number}"

    def key(self) -> str:
        return hashlib.blake2b(f"{self.clip.key()}#{self.number}".encode(), digest_size=16).hexdigest()

    def image(self) -> Image.Image:
        return Image.fromarray(draw_scene(self.clip, self.clip.size, frame=self.number))


LARGEST_FAMILY = 32
# The least and the largest value of each number.
_RANGES = (
    ("n", 0, 10**9),
    ("seed", -(2**63), 2**63),
    ("family", 1, LARGEST_FAMILY),
    ("size", 32, 1024),
    ("references", 0, 1000),
    ("frames", 1, 64),
)


@dataclass(repr=False, eq=False)
class Scenes(Sequence[Scene]):
    """``n`` scenes, determined by ``seed``, ``split`` and ``domain``; ``scenes[i]`` creates only that scene.

    split       train, validation, test or any other name; no scene is in two of train, validation and test
    domain      plain; alt (terse alt-text style); unseen (shapes that other domains never show); cocolike (references
                with the statistics of COCO's)
    detail      probability that a reference mentions an optional detail: 0 mentions none, 1 all
    family      number of look-alikes, each one edit away from the first; 1 disables look-alikes
    size        width and height in pixels
    references  number of references per scene
    frames      more than 1 creates clips of moving objects
    full        references are full descriptions, regardless of ``detail``: the plainest wording, then paraphrases

    A fixed permutation of all ``n`` scenes determines their order, so that families are spread out. A scene is named
    after its position before the permutation. Thus, with the same settings, an id identifies the same scene for any
    ``n``, and the scenes for a smaller ``n`` are a subset of the scenes for a larger ``n``.
    """

    n: int = 1000
    _: KW_ONLY
    seed: int = 0
    split: str = "train"
    domain: str = "plain"
    detail: float = 0.3
    family: int = 5
    size: int = 64
    references: int = 5
    frames: int = 1
    full: bool = False

    def __post_init__(self) -> None:
        if self.domain not in DOMAINS:
            raise UsageError(f"unknown domain of scenes '{self.domain}'{nearest(self.domain, DOMAINS)}")
        if not self.split.replace("_", "").replace("-", "").isalnum():
            raise UsageError(f"expected a split name such as train or test, got '{self.split}'; use split=test")
        for name, low, high in _RANGES:
            value = getattr(self, name)
            if isinstance(value, bool) or not isinstance(value, int) or not low <= value <= high:
                raise UsageError(
                    f"{name}: expected an integer from {low} to {high}, got {value!r}; use a value such as {name}={low}"
                )
        detail = self.detail
        if isinstance(detail, bool) or not isinstance(detail, int | float) or not 0 <= detail <= 1:
            raise UsageError(f"detail: expected a probability, got {detail!r}; use a value such as detail=0.3")
        self._stream = ("clips" if self.frames > 1 else "scenes", self.domain, self.split, self.seed)
        self._order_key = digest("order", *self._stream, self.n)

    def __len__(self) -> int:
        return self.n

    def __repr__(self) -> str:
        return f"Scenes({self.n}, seed={self.seed}, split={self.split!r}, domain={self.domain!r})"

    @overload
    def __getitem__(self, index: int) -> Scene: ...
    @overload
    def __getitem__(self, index: slice) -> list[Scene]: ...
    def __getitem__(self, index: int | slice) -> Scene | list[Scene]:
        if isinstance(index, slice):
            return [self[i] for i in range(*index.indices(self.n))]
        index = operator.index(index)
        if not -self.n <= index < self.n:
            raise IndexError(f"scene {index} of {self.n}")
        return self._at(permuted(index % self.n, self.n, self._order_key))

    def _at(self, slot: int) -> Scene:
        family, member = divmod(slot, self.family)
        content = _member(self._stream, family, member)
        return Scene(
            id=self._name(slot),
            **content._asdict(),
            domain=self.domain,
            split=self.split,
            family=family,
            member=member,
            detail=self.detail,
            size=self.size,
            length=self.frames,
            count=self.references,
            full=self.full,
        )

    def _name(self, slot: int) -> str:
        kind, domain, split, seed = self._stream
        width = "" if self.family == 5 else f"-f{self.family}"
        return f"{kind}-{domain}-{split}-s{seed}{width}-{slot:06d}"

    def family_of(self, number: int) -> list[Scene]:
        """Returns the look-alikes in family ``number`` in order, starting with the base. Raises IndexError if the
        family does not exist.
        """
        slots = range(number * self.family, min((number + 1) * self.family, self.n))
        if not slots or number < 0:
            raise IndexError(f"family {number} of {-(-self.n // self.family)}")
        return [self._at(slot) for slot in slots]

    def families(self) -> list[list[str]]:
        """Returns the ids in each family. A family is a set of similar pictures that must be told apart."""
        starts = range(0, self.n, self.family)
        return [[self._name(s) for s in range(a, min(a + self.family, self.n))] for a in starts]


@lru_cache(maxsize=512)
def _member(stream: tuple[str, str, str, int], family: int, member: int) -> Content:
    kind, domain, split, _ = stream
    moving = kind == "clips"
    rng = RandomStream(*stream, family)
    origin = base(rng, split, domain, moving)
    return members(origin, rng, member + 1, domain, moving)[member]
