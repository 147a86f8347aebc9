"""The complete ground truth of a scene: its objects, its relations, and everything else that determines the picture."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from functools import cached_property

from tellapart.scenes.objects import Object
from tellapart.scenes.relations import Relation, chain
from tellapart.utils.versions import VERSIONS


@dataclass(frozen=True)
class SceneTruth:
    """The complete ground truth of a picture, or of a clip if ``length`` is greater than 1.

    ``family`` is the index of the family of look-alikes, and ``member`` is the index within the family (0 is the base).
    """

    id: str
    objects: tuple[Object, ...]
    ground: str
    grain: int
    domain: str = "plain"
    split: str = "train"
    family: int = 0
    member: int = 0
    detail: float = 0.3
    size: int = 64
    length: int = 1
    count: int = 5
    """The number of references."""
    full: bool = False
    """Whether the references are full descriptions."""

    @property
    def name(self) -> str:
        return self.id

    @property
    def motion(self) -> tuple[str, ...]:
        """Returns each object's motion in a clip, or an empty tuple for a picture."""
        return tuple(o.motion for o in self.objects) if self.length > 1 else ()

    @property
    def look_alikes(self) -> str:
        """Returns an identifier for the scene's family."""
        return f"{self.id.rpartition('-')[0]}-{self.family}"

    def content_key(self) -> str:
        """Returns a hash of the visible content. It depends neither on the id nor on the references."""
        shown = [f"{self.ground}/{self.grain}/{self.size}/{self.length}"]
        shown += ["/".join(map(str, (*o.attributes, o.x, o.y))) for o in self.objects]
        return hashlib.blake2b("|".join(shown).encode(), digest_size=16).hexdigest()

    def key(self) -> str:
        """Returns the `content_key` and the renderer's version, which form the cache key for the picture's features."""
        return f"{self.content_key()}-{VERSIONS['scenes']}"

    @cached_property
    def chain(self) -> tuple[Relation, ...]:
        """Returns the n-1 relations in the full description (see `relations.chain`)."""
        return chain(self.objects)

    @cached_property
    def facts(self) -> tuple[tuple[str, str, str, str, str], ...]:
        """Returns every object's shape, colour, size, texture and motion, for comparison with captions."""
        return tuple(o.attributes for o in self.objects)
