"""Sidecars of other programs: ``alt-text --embed`` keeps all that is in them, and ``captions undo`` restores texts."""

from __future__ import annotations

import json
import re
from pathlib import Path
from xml.etree import ElementTree

import pytest
from command_line import Cli
from PIL import Image

from tellapart.data import xmp, xmp_files

RDF = "http://www.w3.org/1999/02/22-rdf-syntax-ns#"
# As the programs write them: packet wrapper or none, attributes or elements, structures, languages, empty lists.
EXIFTOOL = """<?xpacket begin='\ufeff' id='W5M0MpCehiHzreSzNTczkc9d'?>
<x:xmpmeta xmlns:x='adobe:ns:meta/' x:xmptk='Image::ExifTool 12.76'>
<rdf:RDF xmlns:rdf='http://www.w3.org/1999/02/22-rdf-syntax-ns#'>

 <rdf:Description rdf:about=''
  xmlns:Iptc4xmpCore='http://iptc.org/std/Iptc4xmpCore/1.0/xmlns/'>
  <Iptc4xmpCore:AltTextAccessibility>
   <rdf:Alt>
    <rdf:li xml:lang='x-default'>by a person</rdf:li>
    <rdf:li xml:lang='de'>von einem Menschen</rdf:li>
   </rdf:Alt>
  </Iptc4xmpCore:AltTextAccessibility>
  <Iptc4xmpCore:CreatorContactInfo rdf:parseType='Resource'>
   <Iptc4xmpCore:CiAdrCity>Köln &amp; Bonn</Iptc4xmpCore:CiAdrCity>
  </Iptc4xmpCore:CreatorContactInfo>
 </rdf:Description>

 <rdf:Description rdf:about=''
  xmlns:dc='http://purl.org/dc/elements/1.1/'>
  <dc:subject>
   <rdf:Bag>
    <rdf:li>dog &lt;1&gt;</rdf:li>
   </rdf:Bag>
  </dc:subject>
 </rdf:Description>
</rdf:RDF>
</x:xmpmeta>
<?xpacket end='w'?>"""
DARKTABLE = """<?xml version="1.0" encoding="UTF-8"?>
<x:xmpmeta xmlns:x="adobe:ns:meta/" x:xmptk="XMP Core 4.4.0-Exiv2">
 <rdf:RDF xmlns:rdf="http://www.w3.org/1999/02/22-rdf-syntax-ns#">
  <rdf:Description rdf:about=""
    xmlns:xmp="http://ns.adobe.com/xap/1.0/"
    xmlns:darktable="http://darktable.sf.net/"
   xmp:Rating="4"
   darktable:xmp_version="5"
   darktable:auto_presets_applied="1"
   darktable:history_end="2">
   <darktable:masks_history>
    <rdf:Seq/>
   </darktable:masks_history>
   <darktable:history>
    <rdf:Seq>
     <rdf:li
      darktable:num="0"
      darktable:operation="exposure"
      darktable:params="gz02eJxjYIAAD"/>
    </rdf:Seq>
   </darktable:history>
  </rdf:Description>
 </rdf:RDF>
</x:xmpmeta>
"""
DIGIKAM = """<?xpacket begin="" id="W5M0MpCehiHzreSzNTczkc9d"?>
<x:xmpmeta xmlns:x="adobe:ns:meta/" x:xmptk="XMP Core 4.4.0-Exiv2">
 <rdf:RDF xmlns:rdf="http://www.w3.org/1999/02/22-rdf-syntax-ns#">
  <rdf:Description rdf:about="" xmlns:digiKam="http://www.digikam.org/ns/1.0/" xmlns:dc="http://purl.org/dc/elements/1.1/"
    xmlns:MP="http://ns.microsoft.com/photo/1.2/" xmlns:MPRI="http://ns.microsoft.com/photo/1.2/t/RegionInfo#"
    xmlns:MPReg="http://ns.microsoft.com/photo/1.2/t/Region#" digiKam:PickLabel="3">
   <digiKam:TagsList><rdf:Seq><rdf:li>People/Zoë</rdf:li></rdf:Seq></digiKam:TagsList>
   <digiKam:CaptionsAuthorNames><rdf:Alt><rdf:li xml:lang="x-default">Zoë</rdf:li></rdf:Alt>
   </digiKam:CaptionsAuthorNames>
   <dc:description><rdf:Alt><rdf:li xml:lang="x-default">her own
two lines</rdf:li></rdf:Alt></dc:description>
   <MP:RegionInfo rdf:parseType="Resource"><MPRI:Regions><rdf:Bag>
     <rdf:li MPReg:Rectangle="0.1, 0.2, 0.3, 0.4" MPReg:PersonDisplayName="Zoë"/></rdf:Bag></MPRI:Regions>
   </MP:RegionInfo>
  </rdf:Description>
 </rdf:RDF>
</x:xmpmeta>
<?xpacket end="w"?>"""


def properties(packet: str) -> list[str]:
    """All properties but those that alt-text writes, in canonical form without indentation."""
    root = ElementTree.fromstring(re.sub(r"<\?.*?\?>", "", packet).strip("\ufeff \n"))
    ours = {xmp.ALT, xmp.LONG, "{http://ns.adobe.com/xap/1.0/mm/}History"}
    found = [root.get("{adobe:ns:meta/}xmptk", "")]
    for home in root.iter(f"{{{RDF}}}Description"):
        found += [f"{name}={value}" for name, value in home.attrib.items() if name not in ours and value]
        for each in home:
            if each.tag not in ours:
                each.tail = None
                found.append(ElementTree.canonicalize(ElementTree.tostring(each, encoding="unicode"), strip_text=True))
    return sorted(re.sub(r"\bns\d+\b|xmlns:\w+=", "", text) for text in found)


@pytest.fixture
def photos(tmp_path: Path) -> Path:
    folder = tmp_path / "photos"
    folder.mkdir()
    for name in ("exiftool", "darktable", "digikam", "bare"):
        Image.new("RGB", (8, 8)).save(folder / f"{name}.jpg")
    for name, packet in (("exiftool", EXIFTOOL), ("darktable", DARKTABLE), ("digikam", DIGIKAM)):
        (folder / f"{name}.xmp").write_text(packet, encoding="utf-8")
    rows = [{"id": f"{name}.jpg", "caption": f"a {name} on a long red table in the hall"} for name in
            ("exiftool", "darktable", "digikam", "bare")]  # fmt: skip
    (tmp_path / "captions.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    return folder


def texts_in(folder: Path) -> dict[str, dict[tuple[str, str], str]]:
    names = ("exiftool", "darktable", "digikam", "bare")
    return {name: xmp.languages_of(xmp_files.read_sidecar(folder / f"{name}.xmp"), name) for name in names}


@pytest.mark.parametrize("more", [(), ("--language", "de"), ("--long", "--language", "de"), ("--long",)])
def test_all_is_kept_and_undo_restores_every_text(cli: Cli, photos: Path, more: tuple[str, ...]) -> None:
    before, texts = {path.name: path.read_text(encoding="utf-8") for path in photos.glob("*.xmp")}, texts_in(photos)
    out = photos.parent / "alt.jsonl"
    typed = ("alt-text", photos, "--captions", photos.parent / "captions.jsonl", "-o", out, "--embed", *more)
    assert cli(*typed).status == 0
    assert texts_in(photos)["exiftool"] == texts["exiftool"] and texts_in(photos)["bare"]
    done = cli(*typed, "--replace-edited")
    assert done.status == 0, done.err
    replaced = texts_in(photos)
    assert "by a person" not in replaced["exiftool"].values() or more, replaced
    for name, packet in before.items():
        assert properties((photos / name).read_text(encoding="utf-8")) == properties(packet), name
    history = cli("captions", "history", photos, "exiftool.jpg", "--captions", ".xmp", "--json")
    assert "by a person" in history.out, "the text that was replaced, or is there still"
    done = cli("captions", "undo", photos, "--captions", ".xmp")
    assert done.status == 0 and texts_in(photos)["exiftool"] == texts["exiftool"], done.err
    assert cli("captions", "undo", photos, "--captions", ".xmp").status == 0
    assert texts_in(photos) == texts
    for name, packet in before.items():
        assert properties((photos / name).read_text(encoding="utf-8")) == properties(packet), name
    # What undo removed was not emptied by a person: the next run writes it again.
    assert cli(*typed).status == 0 and texts_in(photos)["bare"]
    assert texts_in(photos)["exiftool"] == texts["exiftool"]


def test_one_language_changes_nothing_else() -> None:
    """The order of the languages stays; a list without languages gets no second one; a doubled property goes whole."""
    rdf, name = "http://www.w3.org/1999/02/22-rdf-syntax-ns#", "Iptc4xmpCore:AltTextAccessibility"

    def packet(*lists: str) -> str:
        own = "".join(f"<{name}>{one}</{name}>" for one in lists)
        names = f'xmlns:rdf="{rdf}" xmlns:Iptc4xmpCore="http://iptc.org/std/Iptc4xmpCore/1.0/xmlns/"'
        described = f'<rdf:RDF {names}><rdf:Description rdf:about="">{own}</rdf:Description></rdf:RDF>'
        return f'<x:xmpmeta xmlns:x="adobe:ns:meta/">{described}</x:xmpmeta>'

    def alt(**texts: str) -> str:
        lines = (f'<rdf:li xml:lang="{language.replace("_", "-")}">{text}</rdf:li>' for language, text in texts.items())
        return f"<rdf:Alt>{''.join(lines)}</rdf:Alt>"

    changed = xmp.with_languages(packet(alt(x_default="a", de="b", fr="c")), {(xmp.ALT, "de"): "new"}, "a.xmp")
    assert [text for _, text in xmp.languages_of(changed, "a.xmp").items()] == ["a", "new", "c"]
    listed = packet("<rdf:Seq><rdf:li>one</rdf:li></rdf:Seq>")
    assert "rdf:Alt" not in xmp.with_languages(listed, {(xmp.ALT, xmp.DEFAULT): None}, "a.xmp")
    doubled = packet(alt(x_default="a"), alt(x_default="b"))
    assert not xmp.languages_of(xmp.with_languages(doubled, {(xmp.ALT, xmp.DEFAULT): None}, "a.xmp"), "a.xmp")


def test_the_sidecar_of_one_program_does_not_replace_that_of_another(cli: Cli, photos: Path) -> None:
    """``bare.xmp`` has ratings, ``bare.jpg.xmp`` an alt text."""
    (photos / "bare.xmp").write_text(DARKTABLE, encoding="utf-8")
    (photos / "bare.jpg.xmp").write_text(EXIFTOOL, encoding="utf-8")
    typed = ("alt-text", photos, "--captions", photos.parent / "captions.jsonl", "-o", photos.parent / "alt.jsonl")
    assert cli(*typed, "--embed", "--replace-edited").status == 0
    assert properties((photos / "bare.xmp").read_text(encoding="utf-8")) == properties(DARKTABLE)
    assert (photos / "bare.jpg.xmp").read_text(encoding="utf-8") == EXIFTOOL


def test_a_sidecar_in_utf_16_is_listed_and_edited(cli: Cli, photos: Path) -> None:
    (photos / "exiftool.xmp").write_text(EXIFTOOL, encoding="utf-16")
    done = cli("captions", "list", photos, "--captions", ".xmp", "--json")
    assert done.status == 0 and "by a person" in done.out, done.err
