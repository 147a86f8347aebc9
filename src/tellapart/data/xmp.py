"""Reads and writes alt text in XMP packets, in the properties that IPTC defines for accessibility.

The properties are ``Iptc4xmpCore:AltTextAccessibility`` and ``Iptc4xmpCore:ExtDescrAccessibility`` (IPTC Photo Metadata
Standard 2021.1). Each is an ``rdf:Alt`` with one text per language; ``x-default`` is the fallback. Everything else in
a packet is preserved. An event in ``xmpMM:History`` records who wrote a text and when.
"""

from __future__ import annotations

import io
import re
from collections.abc import Mapping, Sequence
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
_EMPTY = f'<x:xmpmeta xmlns:x="{_X}"><rdf:RDF xmlns:rdf="{_RDF}"><rdf:Description rdf:about=""/></rdf:RDF></x:xmpmeta>'


def key_of(name: str, language: str) -> str:
    """Returns the suffix of a file's name in the log, for the text of a property in a language."""
    return "".join(["#long"] * (name == LONG) + [f"#{language}"] * (language != DEFAULT))


def part_of(key: str) -> tuple[str, str]:
    """Returns the property and the language that `key_of` encoded."""
    is_long = key == "#long" or key.startswith("#long#")
    return LONG if is_long else ALT, key.removeprefix("#long" if is_long else "").removeprefix("#") or DEFAULT


@dataclass(frozen=True)
class TextEvent:
    """An entry in a packet's history: ``agent`` is the model or program that wrote texts; ``when`` is in ISO 8601."""

    agent: str
    when: str


def with_texts(packet: str, texts: Mapping[str, str], where: str) -> str:
    """Sets the `DEFAULT` texts of an XMP packet, given by property (`ALT`, `LONG`); see `with_languages`."""
    return with_languages(packet, {(name, DEFAULT): text for name, text in texts.items()}, where)


def with_languages(
    packet: str, texts: Mapping[tuple[str, str], str | None], where: str, event: TextEvent | None = None
) -> str:
    """Sets texts of an XMP packet, given by property and language (None removes a text). An empty ``packet`` starts a
    new packet.

    Preserves texts in other languages, all other properties, and comments. Adds ``event`` to the history. Raises
    `UsageError` for invalid XMP, with a message that begins with ``where``.
    """
    root = _parsed(packet or _EMPTY, where)
    descriptions = root.findall(f".//{{{_RDF}}}Description")
    if not descriptions:
        raise UsageError(f"{where}: contains no XMP (no rdf:Description); move it elsewhere")
    if event is not None:
        _add_event(descriptions, event)
    for (name, language), text in texts.items():
        if text is None:
            _remove(descriptions, name, language)
            continue
        home = next((one for one in descriptions if one.find(name) is not None), descriptions[0])
        own = home.find(name)
        own = ElementTree.SubElement(home, name) if own is None else own
        for one in descriptions:  # RDF may write a text without a language as an attribute
            one.attrib.pop(name, None)
        own.text = None
        for each in list(own):  # rdf:Seq and rdf:Bag have no languages
            if isinstance(each.tag, str) and each.tag != f"{{{_RDF}}}Alt":
                own.remove(each)
        listed = own.find(f"{{{_RDF}}}Alt")
        listed = ElementTree.SubElement(own, f"{{{_RDF}}}Alt") if listed is None else listed
        line = next((each for each in listed if each.get(_LANG) == language), None)
        if line is None:
            line = ElementTree.Element(f"{{{_RDF}}}li", {_LANG: language})
            listed.insert(0 if language == DEFAULT else len(listed), line)
        line.text = _NOT_IN_XML.sub("\ufffd", text)
    ElementTree.indent(root)
    # A literal carriage return would be read as a line feed, so it is written as a character reference.
    text = ElementTree.tostring(root, encoding="unicode").replace("\r", "&#xD;")
    before, after = (re.findall("<!--.*?-->", part, re.DOTALL) for part in _around(packet))
    return _BEGIN + "\n".join([*before, text, *after]) + _END


def _remove(descriptions: Sequence[ElementTree.Element], name: str, language: str) -> None:
    """Removes the text of a property in one language, and the property if no text is left."""
    for home in descriptions:
        if language == DEFAULT:
            home.attrib.pop(name, None)
        for own in home.findall(name):
            for listed in own.findall(f"{{{_RDF}}}Alt"):
                for line in [each for each in listed if each.get(_LANG) == language]:
                    listed.remove(line)
            if not list(own.iter(f"{{{_RDF}}}li")):
                home.remove(own)


def _add_event(descriptions: Sequence[ElementTree.Element], event: TextEvent) -> None:
    """Adds an event to the history of a packet."""
    name = f"{{{_MM}}}History"
    home = next((one for one in descriptions if one.find(name) is not None), descriptions[0])
    history = home.find(name)
    history = ElementTree.SubElement(home, name) if history is None else history
    listed = history.find(f"{{{_RDF}}}Seq")
    listed = ElementTree.SubElement(history, f"{{{_RDF}}}Seq") if listed is None else listed
    line = ElementTree.SubElement(listed, f"{{{_RDF}}}li", {f"{{{_RDF}}}parseType": "Resource"})
    fields = {"action": "edited", "when": event.when, "softwareAgent": event.agent, "changed": "/metadata"}
    for field, value in fields.items():
        ElementTree.SubElement(line, f"{{{_EVENT}}}{field}").text = _NOT_IN_XML.sub("\ufffd", value)


def languages_of(packet: str, where: str) -> dict[tuple[str, str], str]:
    """Returns the texts in a packet by property and language. A text without a language counts as `DEFAULT`.

    Raises `UsageError` in the same cases as `with_languages`.
    """
    texts, root = dict[tuple[str, str], str](), _parsed(packet or _EMPTY, where)
    for name in (ALT, LONG):
        plain = [own.text for own in root.iter(name)] + [one.get(name) for one in root.iter(f"{{{_RDF}}}Description")]
        pairs = [(DEFAULT, text) for text in plain]
        pairs += [
            (line.get(_LANG, DEFAULT), line.text) for own in root.iter(name) for line in own.iter(f"{{{_RDF}}}li")
        ]
        texts |= {(name, language): text for language, text in pairs if text and text.strip()}
    return texts


def texts_of(packet: str, where: str) -> dict[str, str]:
    """Returns the text of each property (`ALT`, `LONG`) in a packet: the default text or, failing that, the first one.

    Raises `UsageError` in the same cases as `with_texts`.
    """
    texts = languages_of(packet, where)
    ordered = sorted(texts.items(), key=lambda pair: pair[0][1] != DEFAULT)
    return {
        name: next(text for (own, _), text in ordered if own == name) for name in dict.fromkeys(n for n, _ in texts)
    }


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
