"""Reads and writes IPTC's accessibility texts in XMP, in a sidecar file or embedded in a JPEG or PNG.

The properties are ``Iptc4xmpCore:AltTextAccessibility`` and ``Iptc4xmpCore:ExtDescrAccessibility`` (IPTC Photo Metadata
Standard 2021.1). Each is an ``rdf:Alt`` with one text per language; ``x-default`` is the fallback. Everything else in
a packet is preserved. An event in ``xmpMM:History`` records who wrote a text and when.
"""

from __future__ import annotations

import io
import re
import struct
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from xml.etree import ElementTree

from tellapart.data.text_files import UTF16_MARKS
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
_JPEG_MARK, _PNG_MARK = b"http://ns.adobe.com/xap/1.0/\0", b"XML:com.adobe.xmp\0"
_PNG_SIGNATURE = b"\x89PNG\r\n\x1a\n"
MOST = 65_533 - len(_JPEG_MARK)  # maximum size of a packet in one JPEG segment, in bytes
MOST_READ = 1 << 24  # maximum size of a decompressed packet, in bytes
_MPF_MARK, _MP_ENTRIES = b"MPF\0", 0xB002


@dataclass(frozen=True)
class TextEvent:
    """An entry of a packet's history: ``agent`` is the model or program that wrote texts, ``when`` is in ISO 8601."""

    agent: str
    when: str


def with_texts(packet: str, texts: Mapping[str, str], where: str) -> str:
    """Sets the `DEFAULT` texts of an XMP packet, given by property (`ALT`, `LONG`); see `with_languages`."""
    return with_languages(packet, {(name, DEFAULT): text for name, text in texts.items()}, where)


def with_languages(
    packet: str, texts: Mapping[tuple[str, str], str], where: str, event: TextEvent | None = None
) -> str:
    """Sets texts of an XMP packet, given by property and language; an empty ``packet`` starts a new one.

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
    """Returns the texts of a packet by property and language; a text without a language is `DEFAULT`.

    Raises `UsageError` like `with_languages`.
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
    """Returns the text of each property (`ALT`, `LONG`) in a packet: the default, else the first language.

    Raises `UsageError` like `with_texts`.
    """
    texts = languages_of(packet, where)
    ordered = sorted(texts.items(), key=lambda pair: pair[0][1] != DEFAULT)
    return {
        name: next(text for (own, _), text in ordered if own == name) for name in dict.fromkeys(n for n, _ in texts)
    }


def _parsed(packet: str, where: str) -> ElementTree.Element:
    """Parses a packet and returns its root. Registers its namespace prefixes, so that they survive rewriting."""
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
    """Returns what precedes and follows the root of a packet: comments and processing instructions."""
    outside = r"(?>\s+|<\?.*?\?>|<!--.*?-->)*+"
    text = packet.strip().strip("\ufeff\0")
    before = re.match(outside, text, re.DOTALL)
    after = re.search(rf"(?<=>){outside}\Z", text, re.DOTALL)
    return before[0] if before else "", after[0] if after else ""


def read_sidecar(path: Path) -> str:
    """Returns the packet of a ``.xmp`` file in UTF-8 or, with a byte order mark, UTF-16; "" if there is none.

    Raises `UsageError` for other encodings.
    """
    try:
        data = path.read_bytes()
        return data.decode("utf-16" if data.startswith(UTF16_MARKS) else "utf-8-sig")
    except FileNotFoundError:
        return ""
    except UnicodeDecodeError:
        raise UsageError(f"{path}: not valid XMP (not UTF-8); move it elsewhere") from None


def takes_packet(data: bytes) -> bool:
    """Returns whether a file that begins with these bytes is a JPEG or PNG, regardless of its name."""
    return data.startswith((_PNG_SIGNATURE, b"\xff\xd8\xff"))


def packet_in(data: bytes, where: str = "the picture") -> str:
    """Returns the packet inside a picture; "" if there is none. Raises `UsageError` for a damaged one."""
    try:
        if not takes_packet(data):  # other formats store the packet as plain text
            plain = re.search(rb"<x:xmpmeta\b.*?</x:xmpmeta>", data, re.DOTALL)
            return plain[0].decode() if plain else ""
        if not data.startswith(_PNG_SIGNATURE):
            found = (data[start:end] for _, start, end in _segments(data))
            return next((part[len(_JPEG_MARK) :].decode() for part in found if part.startswith(_JPEG_MARK)), "")
        for kind, start, end in _chunks(data):
            if kind == b"iTXt" and data[start:end].startswith(_PNG_MARK):
                compressed, rest = data[start + len(_PNG_MARK)], data[start + len(_PNG_MARK) + 2 : end]
                text = rest.split(b"\0", 2)[-1]  # the text follows the language and the translated keyword
                return (zlib.decompressobj().decompress(text, MOST_READ) if compressed else text).decode()
    except (zlib.error, UnicodeDecodeError) as error:
        raise UsageError(f"{where}: the embedded XMP is damaged ({error}); exclude this picture") from None
    return ""


def with_packet(data: bytes, packet: str, where: str) -> bytes:
    """Replaces the XMP packet in the bytes of a JPEG or PNG; everything else is unchanged.

    Raises `UsageError` for other formats, and for a packet that exceeds a JPEG segment.
    """
    written = packet.encode()
    if data.startswith(_PNG_SIGNATURE):
        body = b"iTXt" + _PNG_MARK + b"\0\0\0\0" + written
        chunk = struct.pack(">I", len(body) - 4) + body + struct.pack(">I", zlib.crc32(body))
        chunks = _chunks(data)
        kept = [data[start - 8 : end + 4] for kind, start, end in chunks
                if not (kind == b"iTXt" and data[start:end].startswith(_PNG_MARK))]  # fmt: skip
        rest = data[chunks[-1][2] + 4 :] if chunks else b""
        return b"".join([_PNG_SIGNATURE, *kept[:1], chunk, *kept[1:], rest])
    if not data.startswith(b"\xff\xd8"):
        raise UsageError(f"{where}: a text can only be embedded in JPEG and PNG files")
    if len(written) > MOST:
        raise UsageError(f"{where}: the XMP has {len(written):,} bytes, but a JPEG holds at most {MOST:,}")
    own = b"\xff\xe1" + struct.pack(">H", len(_JPEG_MARK) + len(written) + 2) + _JPEG_MARK + written
    segments = _segments(data)
    parts = [(data[at:end], data[start:end].startswith(_JPEG_MARK)) for at, start, end in segments]
    # JFIF and EXIF come first. XMP precedes an MPO's index of pictures, whose offsets are relative to the index.
    first = next((n for n, (part, _) in enumerate(parts) if part.lstrip(b"\xff")[0] not in (0xE0, 0xE1)), len(parts))
    growth = len(own) - sum(len(part) for part, is_packet in parts if is_packet)
    written_parts = [data[:2]]
    for number, (part, is_packet) in enumerate(parts):
        if number == first:
            written_parts.append(own)
        if not is_packet:
            shift = -sum(len(later) for later, is_packet in parts[number:] if is_packet)
            written_parts.append(_moved_pictures(part, shift, growth))
    if first == len(parts):
        written_parts.append(own)
    return b"".join([*written_parts, data[segments[-1][2] if segments else 2 :]])


def _moved_pictures(segment: bytes, shift: int, growth: int) -> bytes:
    """Returns a JPEG segment; in an MPO's index of pictures (CIPA DC-007), updates sizes and offsets.

    Args:
        shift: bytes by which the later pictures move away from this segment.
        growth: bytes by which the first picture grows.
    """
    base = segment.find(_MPF_MARK) + len(_MPF_MARK)
    order = {b"II": "<", b"MM": ">"}.get(segment[base : base + 2])
    if not segment.lstrip(b"\xff").startswith(b"\xe2") or order is None:
        return segment
    changed = bytearray(segment)
    try:
        (at,) = struct.unpack_from(f"{order}I", segment, base + 4)
        (tags,) = struct.unpack_from(f"{order}H", segment, base + at)
        for tag in range(tags):
            kind, _, size, place = struct.unpack_from(f"{order}HHII", segment, base + at + 2 + 12 * tag)
            for entry in range(base + place, base + place + size, 16) if kind == _MP_ENTRIES else ():
                length, offset = struct.unpack_from(f"{order}II", segment, entry + 4)
                moved = (length, offset + shift) if offset else (length + growth, 0)
                struct.pack_into(f"{order}II", changed, entry + 4, *moved)
    except struct.error:  # leaves a damaged index unchanged
        return segment
    return bytes(changed)


def _segments(data: bytes) -> list[tuple[int, int, int]]:
    """Returns a JPEG's segments before the first scan: start including fill bytes, and start and end of the content."""
    found: list[tuple[int, int, int]] = []
    at = 2
    while at + 4 <= len(data) and data[at] == 0xFF:
        mark = at + 1
        while mark < len(data) and data[mark] == 0xFF:
            mark += 1
        end = mark + 1 + int.from_bytes(data[mark + 1 : mark + 3], "big")
        if mark >= len(data) or data[mark] == 0xDA or not mark + 3 <= end <= len(data):
            break
        found.append((at, mark + 3, end))
        at = end
    return found


def _chunks(data: bytes) -> list[tuple[bytes, int, int]]:
    """Returns a PNG's chunks up to IEND: type, and start and end of the content."""
    found: list[tuple[bytes, int, int]] = []
    at = len(_PNG_SIGNATURE)
    while at + 12 <= len(data) and (not found or found[-1][0] != b"IEND"):
        length = int.from_bytes(data[at : at + 4], "big")
        found.append((data[at + 4 : at + 8], at + 8, min(at + 8 + length, len(data))))
        at += 12 + length
    return found
