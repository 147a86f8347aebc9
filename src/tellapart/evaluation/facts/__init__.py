"""Claims of captions: objects, attributes, relations; and verifiers that say which of them are true."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from tellapart.errors import need_extra

KINDS = ("object", "attribute", "relation")
# Kinds of attributes that are told by their words; any other attribute is an action, a size, a state.
FINE_KINDS = ("colour", "count", "material")


@dataclass(frozen=True)
class Synonyms:
    """``object_of`` maps every word or phrase to the name of its object. ``name``: of the file, for signatures."""

    object_of: Mapping[str, str] = field(default_factory=dict)
    name: str = ""

    def __bool__(self) -> bool:
        return bool(self.object_of)

    def canonical(self, lemma: str) -> str:
        """The object's name, or the word itself where the file has none."""
        return self.object_of.get(lemma, lemma)


def check_tagger() -> None:
    """`MissingExtra` where there is no tagger; nothing is loaded."""
    need_extra("words", "the extraction of claims", "HanTa")
