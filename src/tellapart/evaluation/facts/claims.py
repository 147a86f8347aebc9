"""What a caption claims: objects, their attributes, and relations between them."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class Attribute:
    """A word of an object: "red", or "jump left" of "jumps left". ``action``: it is a verb's."""

    text: str
    lemma: str
    spans: tuple[tuple[int, int], ...]
    action: bool = False


@dataclass(slots=True)
class Mention:
    """An object that the caption names. ``count`` is the numeral's ("two dogs": 2)."""

    text: str
    lemma: str
    spans: list[tuple[int, int]]
    attributes: list[Attribute] = field(default_factory=list)
    count: int = 1
    count_span: tuple[int, int] | None = None

    def add(self, attribute: Attribute) -> None:
        """Add an attribute, or another place where it is stated."""
        for number, own in enumerate(self.attributes):
            if own.lemma == attribute.lemma:
                self.attributes[number] = Attribute(own.text, own.lemma, own.spans + attribute.spans, own.action)
                return
        self.attributes.append(attribute)


@dataclass(frozen=True, slots=True)
class Relation:
    """``text`` as the caption has it, ``lemma`` without auxiliaries; mentions by number. "between" has two objects."""

    text: str
    lemma: str
    subject: int
    objects: tuple[int, ...]
    span: tuple[int, int]


@dataclass(frozen=True, slots=True)
class Extraction:
    """What a caption claims. ``loose``: attributes bound to no object."""

    mentions: tuple[Mention, ...]
    relations: tuple[Relation, ...]
    loose: tuple[Attribute, ...] = ()
