"""What is true of one picture of the world: its objects, their attributes and their relations."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from functools import cached_property

from tellapart.utils.versions import VERSIONS

from .families import Object
from .relations import INVERSE, Relation, between, chain, holds, natural


@dataclass(frozen=True)
class SceneTruth:
    """The whole truth about one picture, or clip where ``length`` > 1.

    ``family`` numbers the family of look-alikes, ``member`` the place in it (0 is the base).
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
    """How many references there are."""
    full: bool = False
    """Whether the references are full descriptions."""

    @property
    def name(self) -> str:
        return self.id

    @property
    def motion(self) -> tuple[str, ...]:
        """What each object does in a clip; empty in a picture."""
        return tuple(o.motion for o in self.objects) if self.length > 1 else ()

    @property
    def look_alikes(self) -> str:
        """An identifier of the scene's family."""
        return f"{self.id.rpartition('-')[0]}-{self.family}"

    def content_key(self) -> str:
        """Hash of what is shown (not of the id or the references)."""
        shown = [f"{self.ground}/{self.grain}/{self.size}/{self.length}"]
        shown += ["/".join(map(str, (*o.attributes, o.x, o.y))) for o in self.objects]
        return hashlib.blake2b("|".join(shown).encode(), digest_size=16).hexdigest()

    def key(self) -> str:
        """The `content_key` and the version of what draws it: under it the picture's features are kept."""
        return f"{self.content_key()}-{VERSIONS['scenes']}"

    @cached_property
    def chain(self) -> tuple[Relation, ...]:
        """The n-1 relations of the full description; see `relations.chain`."""
        return chain(self.objects)

    @cached_property
    def facts(self) -> tuple[tuple[str, str, str, str, str], ...]:
        """Shape, colour, size, texture, motion of every object: what captions are compared with."""
        return tuple(o.attributes for o in self.objects)

    @cached_property
    def true_relation_tuples(self) -> frozenset[tuple[str, ...]]:
        """Every true relation by the names of the shapes, in the one form that the scene graph uses."""
        names = [f[0] for f in self.facts]
        numbers = range(len(names))
        pairs = [(i, j) for i in numbers for j in numbers if i != j]
        found: set[tuple[str, ...]] = set()
        for kind in ("left of", "above", "in front of"):
            found |= {(kind, names[i], names[j]) for i, j in pairs if holds(kind, self.objects, i, j)}
        found |= {
            ("near", *sorted((names[i], names[j]))) for i, j in pairs if i < j and holds("near", self.objects, i, j)
        }
        for i, j in pairs:
            found |= {
                ("between", names[k], *sorted((names[i], names[j])))
                for k in numbers
                if k not in (i, j) and between(self.objects, k, i, j)
            }
        return frozenset(found)

    def relations(self) -> tuple[tuple[str, int, int] | tuple[str, int, int, int], ...]:
        """The natural relation of every ordered pair, then ("between", i, j, k) for every i between j and k."""
        numbers = range(len(self.objects))
        found: list[tuple[str, int, int] | tuple[str, int, int, int]] = []
        for i in numbers:
            for j in numbers[i + 1 :]:
                kind = natural(self.objects, i, j)
                found += [(kind, i, j), (INVERSE[kind], j, i)]
        for i in numbers:
            for j in numbers:
                found += [
                    ("between", i, j, k) for k in numbers[j + 1 :] if i not in (j, k) and between(self.objects, i, j, k)
                ]
        return tuple(found)
