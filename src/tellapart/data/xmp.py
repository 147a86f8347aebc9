"""Reads and writes alt text in XMP packets, in the properties that IPTC defines for accessibility.

The properties are ``Iptc4xmpCore:AltTextAccessibility`` and ``Iptc4xmpCore:ExtDescrAccessibility`` (IPTC Photo Metadata
Standard 2021.1). Each is an ``rdf:Alt`` with one text per language; ``x-default`` is the fallback. Everything else in
a packet is preserved. An event in ``xmpMM:History`` records who wrote a text and when.
"""

from __future__ import annotations

import io
import re
from collections.abc import Mapping
from dataclasses import dataclass
from xml.etree import ElementTree

from tellapart.errors import UsageError

_X, _RDF = "adobe:ns:meta/", "http://www.w3.org/1999/02/22-rdf-syntax-ns#"
_IPTC = "http://iptc.org/std/Iptc4xmpCore/1.0/xmlns/"
_MM, _EVENT = "http://ns.adobe.com/xap/1.0/mm/", "http://ns.adobe.com/xap/1.0/sType/ResourceEvent#"
_LANG = "{http://www.w3.org/XML/1998/namespace}lang"
ALT, LONG = f"{{{_IPTC}}}AltTextAccessibility", f"{{{_IPTC}}}ExtDescrAccessibility"
DEFAULT = "x-default"  # the language of the fallback text
_BEGIN, _END = '<?xpacket begin="\ufeff" id="W5M0MpCehiHzreSzNTczkc9d"?>\n', '\n<?xpacket end="w"?>'
_NOT_IN_XML = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
_DESCRIPTION, _ALTERNATIVES, _LINE = (f"{{{_RDF}}}{name}" for name in ("Description", "Alt", "li"))
_EMPTY = f'<x:xmpmeta xmlns:x="{_X}"><rdf:RDF xmlns:rdf="{_RDF}"><rdf:Description rdf:about=""/></rdf:RDF></x:xmpmeta>'


@dataclass(frozen=True)
class TextEvent:
    """An entry in a packet's history: ``agent`` is the model or program that wrote texts; ``when`` is in ISO 8601."""

    agent: str
    when: str


def with_languages(
    packet: str, texts: Mapping[tuple[str, str], str | None], where: str, event: TextEvent | None = None
) -> str:
    """Sets texts of an XMP packet, given by property and language (None removes a text). An empty ``packet`` starts a
    new packet.

    Preserves texts in other languages, all other properties, and comments. Adds ``event`` to the history. Raises
    `UsageError` for invalid XMP, with a message that begins with ``where``.
    """
    root = _parsed(packet or _EMPTY, where)
    descriptions = root.findall(f".//{_DESCRIPTION}")
    if not descriptions:
        raise UsageError(f"{where}: contains no XMP (no rdf:Description); move it elsewhere")
    if event is not None:
        history = _child(_child(_homes(descriptions, f"{{{_MM}}}History")[0], f"{{{_MM}}}History"), f"{{{_RDF}}}Seq")
        line = ElementTree.SubElement(history, _LINE, {f"{{{_RDF}}}parseType": "Resource"})
        fields = {"action": "edited", "when": event.when, "softwareAgent": event.agent, "changed": "/metadata"}
        for field, value in fields.items():
            ElementTree.SubElement(line, f"{{{_EVENT}}}{field}").text = _NOT_IN_XML.sub("\ufffd", value)
    for (name, language), text in texts.items():
        for one in descriptions:  # RDF may write a text without a language as an attribute
            if text is not None or language == DEFAULT:
                one.attrib.pop(name, None)
        homes = _homes(descriptions, name)
        if text is not None:
            _set_text(homes[0], name, language, text)
        else:
            for home in homes:
                _remove_text(home, name, language)
    ElementTree.indent(root)
    # A literal carriage return would be read as a line feed, so it is written as a character reference.
    written = ElementTree.tostring(root, encoding="unicode").replace("\r", "&#xD;")
    before, after = (re.findall("<!--.*?-->", part, re.DOTALL) for part in _around(packet))
    return _BEGIN + "\n".join([*before, written, *after]) + _END


def _homes(descriptions: list[ElementTree.Element], name: str) -> list[ElementTree.Element]:
    """Returns the descriptions with this property, or the first description if none has it."""
    return [one for one in descriptions if one.find(name) is not None] or descriptions[:1]


def _child(parent: ElementTree.Element, name: str) -> ElementTree.Element:
    """Returns the child with this name, which is added if it is missing."""
    found = parent.find(name)
    return ElementTree.SubElement(parent, name) if found is None else found


def _remove_text(home: ElementTree.Element, name: str, language: str) -> None:
    """Removes a description's text of a property in one language, and the property if no text is left."""
    for own in home.findall(name):
        for listed in own.findall(_ALTERNATIVES):
            for line in [line for line in listed if line.get(_LANG) == language]:
                listed.remove(line)
        if own.find(f".//{_LINE}") is None:
            home.remove(own)


def _set_text(home: ElementTree.Element, name: str, language: str, text: str) -> None:
    """Sets a description's text of a property in one language. Other languages are kept."""
    own = _child(home, name)
    own.text = None
    for each in [each for each in own if isinstance(each.tag, str) and each.tag != _ALTERNATIVES]:
        own.remove(each)  # rdf:Seq and rdf:Bag have no languages
    listed = _child(own, _ALTERNATIVES)
    same = [line for line in listed if line.get(_LANG) == language]
    for line in same[1:]:
        listed.remove(line)
    if not same:
        same = [ElementTree.Element(_LINE, {_LANG: language})]
        listed.insert(0 if language == DEFAULT else len(listed), same[0])
    same[0].text = _NOT_IN_XML.sub("\ufffd", text)


def languages_of(packet: str, where: str) -> dict[tuple[str, str], str]:
    """Returns the texts in a packet by property and language. A text without a language counts as `DEFAULT`.

    Raises `UsageError` in the same cases as `with_languages`.
    """
    texts, root = dict[tuple[str, str], str](), _parsed(packet or _EMPTY, where)
    for name in (ALT, LONG):
        pairs = [(DEFAULT, own.text) for own in root.iter(name)]
        pairs += [(DEFAULT, one.get(name)) for one in root.iter(_DESCRIPTION)]
        pairs += [(line.get(_LANG, DEFAULT), line.text) for own in root.iter(name) for line in own.iter(_LINE)]
        texts |= {(name, language): text for language, text in pairs if text and text.strip()}
    return texts


def texts_of(packet: str, where: str) -> dict[str, str]:
    """Returns the text of each property (`ALT`, `LONG`) in a packet: the default text or, failing that, the first one.

    Raises `UsageError` in the same cases as `with_languages`.
    """
    default_first = sorted(languages_of(packet, where).items(), key=lambda pair: pair[0][1] != DEFAULT)
    return {name: text for (name, _), text in reversed(default_first)}


def _parsed(packet: str, where: str) -> ElementTree.Element:
    """Parses a packet and returns its root. Registers its namespace prefixes, so that rewriting preserves them."""
    if "<!DOCTYPE" in packet or "<!ENTITY" in packet:
        raise UsageError(f"{where}: XMP must not declare a document type; move the file elsewhere")
    known = (("x", _X), ("rdf", _RDF), ("Iptc4xmpCore", _IPTC), ("xmpMM", _MM), ("stEvt", _EVENT))
    for prefix, address in known:
        ElementTree.register_namespace(prefix, address)
    text = packet.strip().strip("\ufeff\0")[len(_around(packet)[0]) :]
    try:
        for _, (prefix, address) in ElementTree.iterparse(io.BytesIO(text.encode()), events=("start-ns",)):
            if prefix and not re.fullmatch(r"ns\d+", prefix):
                ElementTree.register_namespace(prefix, address)
        builder = ElementTree.TreeBuilder(insert_comments=True, insert_pis=True)
        return ElementTree.fromstring(text, ElementTree.XMLParser(target=builder))
    except (ElementTree.ParseError, UnicodeEncodeError) as error:
        raise UsageError(f"{where}: not valid XMP ({error}); move it elsewhere") from None


def _around(packet: str) -> tuple[str, str]:
    """Returns the comments and processing instructions before and after the root of a packet."""
    outside = r"(?>\s+|<\?.*?\?>|<!--.*?-->)*+"
    text = packet.strip().strip("\ufeff\0")
    before = re.match(outside, text, re.DOTALL)
    after = re.search(rf"(?<=>){outside}\Z", text, re.DOTALL)
    return before[0] if before else "", after[0] if after else ""
