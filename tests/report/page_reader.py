"""Reads a report as a browser would find it, with the standard library's parser: elements, attributes, texts."""

from __future__ import annotations

from dataclasses import dataclass, field
from html.parser import HTMLParser
from pathlib import Path

VOID = {"meta", "link", "br", "img", "input", "hr"}


@dataclass
class Element:
    tag: str
    attributes: dict[str, str]
    children: list[Element | str] = field(default_factory=list)

    def all(self, tag: str = "", **wanted: str) -> list[Element]:
        """Elements below this one; ``class_`` must be among the element's classes, other attributes equal."""
        found = []
        for child in self.children:
            if isinstance(child, Element):
                if tag in ("", child.tag) and all(_matches(child, k, v) for k, v in wanted.items()):
                    found.append(child)
                found += child.all(tag, **wanted)
        return found

    @property
    def text(self) -> str:
        """All text below, white space made single."""
        parts = [c if isinstance(c, str) else c.text for c in self.children]
        return " ".join(" ".join(parts).split())


def _matches(element: Element, key: str, value: str) -> bool:
    if key == "class_":
        return value in element.attributes.get("class", "").split()
    return element.attributes.get(key.replace("_", "-")) == value


class _Reader(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.root = Element("", {})
        self.open = [self.root]

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        element = Element(tag, {key: value or "" for key, value in attrs})
        self.open[-1].children.append(element)
        if tag not in VOID:
            self.open.append(element)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.open[-1].children.append(Element(tag, {key: value or "" for key, value in attrs}))

    def handle_endtag(self, tag: str) -> None:
        last = self.open.pop()
        assert last.tag == tag, f"</{tag}> closes <{last.tag}>"

    def handle_data(self, data: str) -> None:
        self.open[-1].children.append(data)


def read_page(path: Path) -> Element:
    """The page's elements. Fails where a tag is closed by another: the page must be well formed."""
    reader = _Reader()
    reader.feed(path.read_text(encoding="utf-8"))
    reader.close()
    assert reader.open == [reader.root], f"never closed: {[e.tag for e in reader.open[1:]]}"
    return reader.root
