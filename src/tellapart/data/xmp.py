"""Texts for people who do not see a picture, as IPTC keeps them in XMP: a sidecar file, or inside a JPEG or PNG.

The properties are ``Iptc4xmpCore:AltTextAccessibility`` and ``Iptc4xmpCore:ExtDescrAccessibility`` (IPTC Photo Metadata
Standard 2021.1), each an ``rdf:Alt`` with the text as ``x-default``. Everything else that a packet says stays.
"""

from __future__ import annotations

import io
import re
import struct
import zlib
from pathlib import Path
from xml.etree import ElementTree

from tellapart.errors import UsageError

_X, _RDF = "adobe:ns:meta/", "http://www.w3.org/1999/02/22-rdf-syntax-ns#"
_IPTC = "http://iptc.org/std/Iptc4xmpCore/1.0/xmlns/"
_LANG = "{http://www.w3.org/XML/1998/namespace}lang"
ALT, LONG = f"{{{_IPTC}}}AltTextAccessibility", f"{{{_IPTC}}}ExtDescrAccessibility"
_BEGIN, _END = '<?xpacket begin="\ufeff" id="W5M0MpCehiHzreSzNTczkc9d"?>\n', '\n<?xpacket end="w"?>'
_NOT_IN_XML = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
_EMPTY = f'<x:xmpmeta xmlns:x="{_X}"><rdf:RDF xmlns:rdf="{_RDF}"><rdf:Description rdf:about=""/></rdf:RDF></x:xmpmeta>'
_JPEG_MARK, _PNG_MARK = b"http://ns.adobe.com/xap/1.0/\0", b"XML:com.adobe.xmp\0"
_PNG_SIGNATURE = b"\x89PNG\r\n\x1a\n"
MOST = 65_533 - len(_JPEG_MARK)  # bytes of a packet in one segment of a JPEG
MOST_READ = 1 << 24  # bytes of a compressed packet
EMBEDDED = (".jpg", ".jpeg", ".jpe", ".jfif", ".png")


def with_texts(packet: str, texts: dict[str, str], where: str) -> str:
    """Returns an XMP packet with these texts by property (`ALT`, `LONG`); an empty ``packet`` is begun anew.

    Texts in other languages and all other properties stay. Raises `UsageError` that begins with ``where`` for what is
    no XMP.
    """
    root = _parsed(packet or _EMPTY, where)
    descriptions = root.findall(f".//{{{_RDF}}}Description")
    if not descriptions:
        raise UsageError(f"{where}: holds no XMP (no rdf:Description); move it away")
    for name, text in texts.items():
        home = next((one for one in descriptions if one.find(name) is not None), descriptions[0])
        own = home.find(name)
        own = ElementTree.SubElement(home, name) if own is None else own
        listed = own.find(f"{{{_RDF}}}Alt")
        listed = ElementTree.SubElement(own, f"{{{_RDF}}}Alt") if listed is None else listed
        line = next((each for each in listed if each.get(_LANG) == "x-default"), None)
        if line is None:
            line = ElementTree.Element(f"{{{_RDF}}}li", {_LANG: "x-default"})
            listed.insert(0, line)
        line.text = _NOT_IN_XML.sub("\ufffd", text)
    ElementTree.indent(root)
    return _BEGIN + ElementTree.tostring(root, encoding="unicode") + _END


def texts_of(packet: str, where: str) -> dict[str, str]:
    """Returns the texts of a packet by property (`ALT`, `LONG`). Raises `UsageError`, as `with_texts`."""
    found, root = {}, _parsed(packet or _EMPTY, where)
    for name in (ALT, LONG):
        line = root.find(f".//{name}/{{{_RDF}}}Alt/{{{_RDF}}}li[@{_LANG}='x-default']")
        if line is not None and line.text:
            found[name] = line.text
    return found


def _parsed(packet: str, where: str) -> ElementTree.Element:
    """The root of a packet; the prefixes of its namespaces are those with which it is written again."""
    if "<!DOCTYPE" in packet or "<!ENTITY" in packet:
        raise UsageError(f"{where}: declares a document type, which XMP does not; move it away")
    for prefix, address in (("x", _X), ("rdf", _RDF), ("Iptc4xmpCore", _IPTC)):
        ElementTree.register_namespace(prefix, address)
    text = packet.strip().strip("\ufeff\0")
    try:
        for _, (prefix, address) in ElementTree.iterparse(io.BytesIO(text.encode()), events=("start-ns",)):
            if prefix and not re.fullmatch(r"ns\d+", prefix):
                ElementTree.register_namespace(prefix, address)
        return ElementTree.fromstring(text)
    except (ElementTree.ParseError, UnicodeEncodeError) as error:
        raise UsageError(f"{where}: is not XMP ({error}); move it away") from None


def read_sidecar(path: Path) -> str:
    """Returns the packet of a ``.xmp`` file; "" where there is none. Raises `UsageError` for what is not UTF-8."""
    try:
        return path.read_bytes().decode("utf-8-sig")
    except FileNotFoundError:
        return ""
    except UnicodeDecodeError:
        raise UsageError(f"{path}: is not XMP (no UTF-8); move it away") from None


def packet_in(data: bytes, where: str = "the picture") -> str:
    """Returns the packet inside a JPEG or PNG; "" where there is none. Raises `UsageError` for one that is damaged."""
    if data.startswith(_PNG_SIGNATURE):
        for kind, start, end in _chunks(data):
            if kind == b"iTXt" and data[start:end].startswith(_PNG_MARK):
                compressed, rest = data[start + len(_PNG_MARK)], data[start + len(_PNG_MARK) + 2 : end]
                text = rest.split(b"\0", 2)[-1]  # after the language and its translation
                try:
                    text = zlib.decompressobj().decompress(text, MOST_READ) if compressed else text
                except zlib.error as error:
                    raise UsageError(f"{where}: its XMP is damaged ({error}); leave the picture out") from None
                return text.decode("utf-8", "replace")
        return ""
    found = (data[start + 4 : end] for start, end in _segments(data))
    return next(
        (part[len(_JPEG_MARK) :].decode("utf-8", "replace") for part in found if part.startswith(_JPEG_MARK)), ""
    )


def with_packet(data: bytes, packet: str, where: str) -> bytes:
    """Returns the bytes of a JPEG or PNG with this packet in place of its own; pixels and all else stay as they are.

    Raises `UsageError` for other formats, and for a packet that no segment of a JPEG holds.
    """
    written = packet.encode()
    if data.startswith(_PNG_SIGNATURE):
        body = b"iTXt" + _PNG_MARK + b"\0\0\0\0" + written
        chunk = struct.pack(">I", len(body) - 4) + body + struct.pack(">I", zlib.crc32(body))
        kept = [(start - 8, end + 4) for kind, start, end in _chunks(data)
                if not (kind == b"iTXt" and data[start:end].startswith(_PNG_MARK))]  # fmt: skip
        first, *others = kept
        parts = [data[start:end] for start, end in others]
        return b"".join([_PNG_SIGNATURE, data[slice(*first)], chunk, *parts])
    if not data.startswith(b"\xff\xd8"):
        raise UsageError(f"{where}: neither JPEG nor PNG, so no text goes into it")
    if len(written) > MOST:
        raise UsageError(f"{where}: {len(written):,} bytes of XMP, and a JPEG takes {MOST:,}")
    segments = _segments(data)
    kept = [(start, end) for start, end in segments if not data[start + 4 : end].startswith(_JPEG_MARK)]
    before = [part for part in kept if data[part[0] + 1] in (0xE0, 0xE1)]  # JFIF and EXIF stand first
    after = [part for part in kept if part not in before]
    own = b"\xff\xe1" + struct.pack(">H", len(_JPEG_MARK) + len(written) + 2) + _JPEG_MARK + written
    rest = data[segments[-1][1] if segments else 2 :]
    return b"".join([b"\xff\xd8", *(data[slice(*p)] for p in before), own, *(data[slice(*p)] for p in after), rest])


def _segments(data: bytes) -> list[tuple[int, int]]:
    """Returns where the segments of a JPEG before its first scan begin and end, markers included."""
    found, at = [], 2
    while at + 4 <= len(data) and data[at] == 0xFF and data[at + 1] != 0xDA:
        end = at + 2 + int.from_bytes(data[at + 2 : at + 4], "big")
        if end > len(data):
            break
        found.append((at, end))
        at = end
    return found


def _chunks(data: bytes) -> list[tuple[bytes, int, int]]:
    """The chunks of a PNG: kind, and where their content begins and ends."""
    found, at = [], len(_PNG_SIGNATURE)
    while at + 12 <= len(data):
        length = int.from_bytes(data[at : at + 4], "big")
        found.append((data[at + 4 : at + 8], at + 8, min(at + 8 + length, len(data))))
        at += 12 + length
    return found
