"""Maps words to the objects that they name."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True, eq=False)
class Synonyms:
    """Synonyms from a file. ``object_of`` maps a word or phrase to its object; ``name`` is the file's name, for
    signatures.
    """

    object_of: Mapping[str, str] = field(default_factory=dict)
    name: str = ""

    def __bool__(self) -> bool:
        return bool(self.object_of)

    def canonical(self, lemma: str) -> str:
        """Returns the name of a word's object, or the word itself if it is not in the file."""
        return self.object_of.get(lemma, lemma)


NO_SYNONYMS = Synonyms()
