"""`tellapart alt-text` with IPTC's properties, and `tellapart lora`: captions of a folder for an image generator."""

import csv
import io
import json
import re
import shlex
import shutil
import stat
import struct
import subprocess
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import datasets
import pytest
from command_line import Cli
from PIL import Image

from tellapart.captions.formats import json_line
from tellapart.captions.log_file import LOG_NAME
from tellapart.captions.logged_captions import logged_captions
from tellapart.captions.own_files import OwnFiles
from tellapart.captions.store import CaptionStore
from tellapart.captions.written import Written
from tellapart.check.captions import rows_of, template
from tellapart.data import open_data, xmp, xmp_files
from tellapart.errors import TellapartError, UsageError
from tellapart.language.phrase_ends import phrase_ends
from tellapart.language.word_removal import without_words
from tellapart.purposes.alt_text import alt_texts
from tellapart.purposes.edited import Edited
from tellapart.purposes.embed import EmbedSettings, embed
from tellapart.purposes.list_file import json_lines
from tellapart.purposes.lora import LoraCaptions
from tellapart.purposes.shortening import shortened, without_openings
from tellapart.review.start import open_session
from tellapart.scenes import Scenes

# A captioner on a shoot of one dog, written by hand in the manner of one.
DOG = {
    "1.jpg": "a brown dog is running through the grass",
    "2.jpg": "a black and white dog with a stick in its mouth",
    "3.jpg": "The image shows a dog sitting on a couch.",
    "4.jpg": "a man and a dog in a hat are sitting on a bench",
    "5.jpg": "There is a dog in the water. The dog is swimming.",
    "6.jpg": "two dogs are playing with a ball",
}


@pytest.mark.parametrize(
    ("caption", "expected"),
    [
        ("The image shows a dog on a sofa.", "A dog on a sofa."),
        ("a picture of a cat", "a cat"),
        ("In this image, we can see a red car. The image also shows two people.", "A red car. Two people."),
        ("Sure! Here is a caption: A dog runs.", "A dog runs."),
        ("This is a photo of an old house.", "An old house."),
        ("In the photograph is a man.", "A man."),
        ("There are two men in a boat.", "Two men in a boat."),
        ("a close-up of a cat", "a close-up of a cat"),
        ("The picture on the wall is old.", "The picture on the wall is old."),
        ("There is no one here.", "There is no one here."),
    ],
)
def test_openings_that_say_only_that_there_is_a_picture(caption: str, expected: str) -> None:
    text, opening = without_openings(caption)
    assert text == expected
    assert bool(opening) == (caption != expected)
    if opening:
        assert not list(template(rows_of({"1": [text]}))), "the check still finds an opening"


@pytest.mark.parametrize(
    ("caption", "ends"),
    [
        ("a man in a red jacket riding a bike", ["a man", "a man in a red jacket"]),
        ("a black and white dog", []),
        ("a group of people on a beach", ["a group of people"]),
        ("a man wearing a hat and holding on to a rope", ["a man", "a man wearing a hat"]),
        ("a dog is standing next to a car", ["a dog is standing next"]),
    ],
)
def test_a_text_is_cut_where_a_phrase_ends(caption: str, ends: list[str]) -> None:
    found = [caption[:end] for end in phrase_ends(caption)]
    assert found[-1] == caption
    assert [text for text in ends if not text.endswith("next")] == [text for text in found[:-1] if text in ends]
    assert not any(text.split()[-1] in ("a", "the", "of", "is", "black", "wearing", "next") for text in found[:-1])


def test_alt_texts_have_whole_words_and_doubts() -> None:
    long = "Two women in red coats are standing in front of a large building with many windows. It is raining."
    made = alt_texts(
        {"a": long, "b": "a picture of a dog", "c": "I'm sorry, I can't help with that.", "d": "A dog. A cat.",
         "e": "A dog runs. " + long}, 60, long=True)  # fmt: skip
    assert made["a"].text == "Two women in red coats are standing"
    assert [kind for kind, _ in made["a"].doubts] == ["shortened"] and made["a"].long == long
    assert made["b"].text == "a dog" and [kind for kind, _ in made["b"].doubts] == ["opening"] and not made["b"].long
    assert made["c"].text == "" and made["c"].doubts[0][1] == "a refusal"
    assert made["d"].text == "A dog. A cat." and made["d"].doubts == ()
    assert made["e"].text == "A dog runs." and made["e"].doubts == () and made["e"].long.endswith("raining.")
    assert shortened("one extraordinarily photogenic internationally renowned cat", 45) == (
        "one extraordinarily photogenic",
        "word",
    )


def test_what_a_set_has_in_common_is_left_out_and_the_rest_is_grammatical() -> None:
    maker = LoraCaptions("ohwx")
    assert {one.word: one.left_out for one in maker.evidence(DOG)}["dog"]
    assert [one.word for one in maker.evidence(DOG) if one.left_out] == ["dog"]
    assert maker.evidence(DOG)[0].count == 6, "dogs and dog are one word"
    assert {key: one.text for key, one in maker.edited(DOG).items()} == {
        "1.jpg": "ohwx, brown, is running through the grass",
        "2.jpg": "ohwx, black and white, with a stick in its mouth",
        "3.jpg": "ohwx sitting on a couch.",
        "4.jpg": "ohwx, a man and a dog in a hat are sitting on a bench",  # whose hat it is must not change
        "5.jpg": "ohwx in the water. ohwx is swimming.",
        "6.jpg": "ohwx, two dogs are playing with a ball",
    }
    kept = LoraCaptions("ohwx", keep=frozenset({"dog"}), avoid=frozenset({"brown"}), prefix="photo of", suffix=", film")
    assert kept.edited(DOG)["1.jpg"].text == "photo of ohwx, a dog is running through the grass, film"
    assert kept.edited(DOG)["3.jpg"].text == "photo of ohwx, a dog sitting on a couch, film"
    assert maker.edited({"7.jpg": "The image shows brown grass."})["7.jpg"].text == "ohwx, brown grass."
    both = DOG | {"7.jpg": "The image shows brown dog, and a hat."}
    assert maker.edited(both)["7.jpg"].text == "ohwx, brown, and a hat."
    few = {key: DOG[key] for key in list(DOG)[:4]}
    assert not any(one.left_out for one in maker.evidence(few)), (
        "four captions are too few to determine what the set has in"
    )


def test_a_common_phrase_is_left_out_and_its_words_stay_elsewhere() -> None:
    """A part of a phrase counts only where it stands outside of it."""
    barns = {f"{n}.jpg": f"a red barn with {what}" for n, what in enumerate(("a red car", "a dog", "two men", "snow"))}
    barns |= {"4.jpg": "a field with red flowers", "5.jpg": "a horse by a red barn"}
    shares = {one.word: one for one in LoraCaptions("ohwx").evidence(barns)}
    assert shares["red barn"].left_out and shares["red barn"].count == 5 and "barn" not in shares
    assert shares["red"].count == 2 and not shares["red"].left_out
    texts = {key: one.text for key, one in LoraCaptions("ohwx").edited(barns).items()}
    assert texts["0.jpg"] == "ohwx with a red car" and texts["4.jpg"] == "ohwx, a field with red flowers"
    assert texts["5.jpg"] == "ohwx, a horse"
    dogs = {f"{n}.jpg": "a dog on a lawn" for n in range(8)} | {"8.jpg": "a brown dog by a lake"}
    assert LoraCaptions("ohwx").edited(dogs)["8.jpg"].text == "ohwx, brown, by a lake", "in all captions"
    kept = LoraCaptions("ohwx", keep=frozenset({"red"}))
    assert kept.edited(barns)["0.jpg"].text == "ohwx, red, with a red car"
    avoided = {
        one.word for one in LoraCaptions("ohwx", common=1, avoid=frozenset({"red"})).evidence(barns) if one.left_out
    }
    assert avoided == {"red"}


@pytest.mark.parametrize(
    ("caption", "expected"),
    [
        ("a woman in a red dress standing on a beach", "NAME on a beach"),
        ("a bottle on a wooden table, next to a red apple", "NAME on a wooden table, next to an apple"),
        ("a young woman holding a glass of wine", "NAME, young, holding a glass of wine"),
        ("a fire bottle on a hill", "a fire bottle on a hill"),
        ('a cat and a woman with a "stop" sign', 'a cat and a woman with a "stop" sign'),
        ("in a garden a woman sits on a red chair", "in a garden a woman sits on a chair"),
        ("The woman is standing. A cat is on a table.", "NAME. A cat."),
        ("A white bottle, a woman, and a cat sit here.", "NAME, white, and a cat sit here."),
        ("a red bottle on a table", "NAME"),
        ("A woman walking alone at night.", "A woman walking alone at night."),
        ("a woman in a red cap , a red coat , and boots", "NAME in a cap , a coat , and boots"),
    ],
)
def test_words_are_left_out_with_their_phrases(caption: str, expected: str) -> None:
    common = {"woman", "bottle", "red", "dress", "standing", "table"}
    assert without_words(caption, common, "NAME") == expected


def test_lengths_are_a_mixture_that_the_seed_and_the_id_fix() -> None:
    long = "a man in a hat is standing on a wide beach with two umbrellas beside a boat under a grey sky"
    captions = {f"{n}.jpg": long for n in range(300)}
    made = LoraCaptions("ohwx", common=1.0, lengths=(0.2, 0.5, 0.3)).edited(captions)
    counts = [sum(one.text == text for one in made.values()) for text in sorted({one.text for one in made.values()})]
    assert len(counts) == 3 and all(
        abs(count / 300 - share) < 0.08 for count, share in zip(counts, (0.2, 0.5, 0.3), strict=True)
    )
    assert all(f"ohwx, {long}".startswith(one.text) for one in made.values())
    some = {key: captions[key] for key in list(captions)[:9]}
    again = LoraCaptions("ohwx", common=1.0, lengths=(0.2, 0.5, 0.3)).edited(some)
    assert again == {key: made[key] for key in some}
    other = LoraCaptions("ohwx", common=1.0, lengths=(0.2, 0.5, 0.3), seed=1).edited(captions)
    assert other != made


# XMP.

LIGHTROOM = """<?xpacket begin="\ufeff" id="W5M0MpCehiHzreSzNTczkc9d"?>
<x:xmpmeta xmlns:x="adobe:ns:meta/" x:xmptk="Adobe"><rdf:RDF
 xmlns:rdf="http://www.w3.org/1999/02/22-rdf-syntax-ns#"><rdf:Description rdf:about=""
 xmlns:xmp="http://ns.adobe.com/xap/1.0/" xmlns:crs="http://ns.adobe.com/camera-raw-settings/1.0/"
 xmlns:Iptc4xmpCore="http://iptc.org/std/Iptc4xmpCore/1.0/xmlns/" xmp:Rating="4" crs:Exposure="+0.35">
<Iptc4xmpCore:AltTextAccessibility><rdf:Alt><rdf:li xml:lang="x-default">by hand</rdf:li>
<rdf:li xml:lang="de">von Hand</rdf:li></rdf:Alt></Iptc4xmpCore:AltTextAccessibility>
</rdf:Description></rdf:RDF></x:xmpmeta><?xpacket end="w"?>"""


def alt_of(packet: str) -> str:
    """The alt text, by the standard library alone."""
    spaces = {
        "i": "http://iptc.org/std/Iptc4xmpCore/1.0/xmlns/",
        "r": "http://www.w3.org/1999/02/22-rdf-syntax-ns#",
    }
    root = ElementTree.fromstring(packet.strip().strip("\ufeff"))
    line = root.find(".//i:AltTextAccessibility/r:Alt/r:li[@{http://www.w3.org/XML/1998/namespace}lang='x-default']",
                     spaces)  # fmt: skip
    return str(line.text) if line is not None else ""


def test_a_packet_keeps_what_else_it_says() -> None:
    made = xmp.with_languages(
        LIGHTROOM, {(xmp.ALT, xmp.DEFAULT): 'a "dog" & <cat>\x0b', (xmp.LONG, xmp.DEFAULT): "more"}, "a.xmp"
    )
    assert alt_of(made) == 'a "dog" & <cat>\ufffd'
    assert 'xmp:Rating="4"' in made and 'crs:Exposure="+0.35"' in made and "von Hand" in made and "by hand" not in made
    assert xmp.texts_of(made, "a.xmp")[xmp.LONG] == "more"
    for wrong in ("<a", "<!DOCTYPE a [<!ENTITY b 'c'>]><a>&b;</a>", "<a/>"):
        with pytest.raises(UsageError, match=r"^a\.xmp: "):
            xmp.with_languages(wrong, {(xmp.ALT, xmp.DEFAULT): "x"}, "a.xmp")


def test_a_damaged_packet_is_one_line() -> None:
    body = b"iTXtXML:com.adobe.xmp\0\1\0\0\0" + b"no zlib"
    chunk = struct.pack(">I", len(body) - 4) + body + struct.pack(">I", zlib.crc32(body))
    with pytest.raises(UsageError, match=r"a\.png: the embedded XMP is damaged"):
        xmp_files.packet_in(b"\x89PNG\r\n\x1a\n" + chunk, "a.png")


@pytest.mark.parametrize("suffix", [".jpg", ".png"])
def test_a_copy_has_the_packet_inside_and_the_same_pixels(tmp_path: Path, suffix: str) -> None:
    picture = tmp_path / f"a{suffix}"
    image = next(iter(Scenes(1))).image()
    image.save(picture, **({"exif": Image.Exif()} if suffix == ".jpg" else {}))
    before = picture.read_bytes()
    first = xmp_files.with_packet(before, LIGHTROOM, "a")
    assert xmp_files.packet_in(first).strip() == LIGHTROOM
    second = xmp_files.with_packet(
        first, xmp.with_languages(xmp_files.packet_in(first), {(xmp.ALT, xmp.DEFAULT): "a dog"}, "a"), "a"
    )
    assert alt_of(xmp_files.packet_in(second)) == "a dog" and second.count(b"xmpmeta xmlns") == 1
    (tmp_path / f"b{suffix}").write_bytes(second)
    with Image.open(picture) as one, Image.open(tmp_path / f"b{suffix}") as other:
        assert one.tobytes() == other.tobytes()
    assert xmp_files.packet_in(before) == "" and zlib.crc32(before) == zlib.crc32(picture.read_bytes())


def test_an_alt_text_of_another_origin_stays(tmp_path: Path) -> None:
    for name in ("a.jpg", "b.jpg"):
        Image.new("RGB", (8, 8)).save(tmp_path / name)
    (tmp_path / "a.xmp").write_text(LIGHTROOM, encoding="utf-8")
    items, own = list(open_data(str(tmp_path))), OwnFiles()
    made = alt_texts({"a.jpg": "a dog", "b.jpg": "a cat"})
    assert embed(items, made, own, EmbedSettings()).stayed == ("a.jpg",)
    assert (tmp_path / "a.xmp").read_text(encoding="utf-8") == LIGHTROOM
    assert alt_of((tmp_path / "b.xmp").read_text(encoding="utf-8")) == "a cat"
    again = OwnFiles()
    assert embed(items, alt_texts({"b.jpg": "a tom"}), again, EmbedSettings()).sidecars == 1, "its own is replaced"
    assert alt_of((tmp_path / "b.xmp").read_text(encoding="utf-8")) == "a tom"
    assert embed(items, made, OwnFiles(), EmbedSettings(True)).stayed == ()
    assert alt_of((tmp_path / "a.xmp").read_text(encoding="utf-8")) == "a dog"
    with pytest.raises(UsageError, match="choose another folder"):
        embed(items, made, own, EmbedSettings(False, tmp_path))


def test_an_alt_text_that_a_person_emptied_in_the_sidecar_stays_empty(tmp_path: Path) -> None:
    """As programs leave it: an empty line, or no property; a sidecar that is gone is written again."""
    for name in ("a.jpg", "b.jpg", "c.jpg"):
        Image.new("RGB", (8, 8)).save(tmp_path / name)
    items = list(open_data(str(tmp_path)))
    made = alt_texts(dict.fromkeys(("a.jpg", "b.jpg", "c.jpg"), "a dog"))
    embed(items, made, OwnFiles(), EmbedSettings())
    emptied = (tmp_path / "a.xmp").read_text(encoding="utf-8").replace("a dog", "")
    (tmp_path / "a.xmp").write_text(emptied, encoding="utf-8")
    without = re.sub("(?s)<Iptc4xmpCore:AltText.*</Iptc4xmpCore:AltText[^>]*>", "", emptied)
    assert without != emptied
    (tmp_path / "b.xmp").write_text(without, encoding="utf-8")
    (tmp_path / "c.xmp").unlink()
    for _ in range(2):
        assert embed(items, made, OwnFiles(), EmbedSettings()).stayed == ("a.jpg", "b.jpg")
    assert (tmp_path / "a.xmp").read_text(encoding="utf-8") == emptied
    assert (tmp_path / "b.xmp").read_text(encoding="utf-8") == without
    assert alt_of((tmp_path / "c.xmp").read_text(encoding="utf-8")) == "a dog"
    assert embed(items, made, OwnFiles(), EmbedSettings(True)).stayed == ()
    assert alt_of((tmp_path / "a.xmp").read_text(encoding="utf-8")) == "a dog"


MARK = b"http://ns.adobe.com/xap/1.0/\0"


def described(alt: str, language: str = "x-default") -> str:
    """An XMP packet in which a person wrote an alt text in one language, with a comment and a carriage return."""
    return LIGHTROOM_EMPTY.format(
        f"<!-- of a person --><Iptc4xmpCore:AltTextAccessibility xmlns:Iptc4xmpCore="
        f'"http://iptc.org/std/Iptc4xmpCore/1.0/xmlns/"><rdf:Alt><rdf:li xml:lang="{language}">{alt}</rdf:li></rdf:Alt>'
        "</Iptc4xmpCore:AltTextAccessibility>"
    )


LIGHTROOM_EMPTY = (
    '<!-- before --><x:xmpmeta xmlns:x="adobe:ns:meta/">'
    '<rdf:RDF xmlns:rdf="http://www.w3.org/1999/02/22-rdf-syntax-ns#">'
    '<rdf:Description rdf:about="" xmlns:dc="http://purl.org/dc/elements/1.1/"><dc:source>a&#xD;\nb</dc:source>{}'
    "</rdf:Description></rdf:RDF></x:xmpmeta><!-- after -->"
)


@pytest.mark.parametrize("language", ["x-default", "en-US", "none", "attribute"])
@pytest.mark.parametrize("place", ["inside", "beside", "photo.jpg.xmp", "webp"])
def test_an_alt_text_of_a_person_is_seen_wherever_it_is(tmp_path: Path, place: str, language: str) -> None:
    """In the picture or beside it, in any language: it stays, and a copy has it, not the machine's."""
    (tmp_path / "photos").mkdir()
    picture = tmp_path / "photos" / ("a.webp" if place == "webp" else "a.jpg")
    packet = described("by a person", language)
    if language in ("none", "attribute"):
        core = 'xmlns:Iptc4xmpCore="http://iptc.org/std/Iptc4xmpCore/1.0/xmlns/"'
        tag = "Iptc4xmpCore:AltTextAccessibility"
        packet = LIGHTROOM_EMPTY.format(f"<{tag} {core}>by a person</{tag}>")
        if language == "attribute":
            packet = LIGHTROOM_EMPTY.format("").replace('rdf:about=""', f'rdf:about="" {core} {tag}="by a person"')
    image = Image.new("RGB", (8, 8))
    image.save(picture, **({"xmp": packet.encode()} if place == "webp" else {}))
    if place == "inside":
        picture.write_bytes(xmp_files.with_packet(picture.read_bytes(), packet, "a"))
    elif place != "webp":
        picture.with_name("a.xmp" if place == "beside" else place.replace("photo", "a")).write_text(packet)
    before = {path: path.read_bytes() for path in picture.parent.iterdir()}
    items, made = list(open_data(str(picture.parent))), alt_texts({picture.name: "a machine's"})
    own = OwnFiles()
    for folder in (None, tmp_path / "copies"):
        assert embed(items, made, own, EmbedSettings(False, folder)).stayed == (picture.name,)
        assert {path: path.read_bytes() for path in picture.parent.iterdir()} == before
    copy = tmp_path / "copies" / picture.name
    text = copy.with_suffix(".xmp").read_text() if place == "webp" else xmp_files.packet_in(copy.read_bytes())
    if place != "webp":
        assert xmp.texts_of(text, "a")[xmp.ALT] == "by a person"
    assert "a machine's" not in text
    embed(items, made, own, EmbedSettings(True, tmp_path / "copies"))
    text = copy.with_suffix(".xmp").read_text() if place == "webp" else xmp_files.packet_in(copy.read_bytes())
    assert xmp.texts_of(text, "a")[xmp.ALT] == "a machine's"


@pytest.mark.parametrize(("there", "ours", "stays"), [("en-US", "en", True), ("pt", "pt-BR", True), ("EN", "en", True),
                                                      ("en-US", "en-GB", False), ("de", "en", False)])  # fmt: skip
def test_an_alt_text_of_a_person_in_a_kind_of_the_language_stays(
    tmp_path: Path, there: str, ours: str, stays: bool
) -> None:
    Image.new("RGB", (8, 8)).save(tmp_path / "a.jpg")
    (tmp_path / "a.xmp").write_text(described("by a person", there))
    made = alt_texts({"a.jpg": "a machine's"})
    done = embed(list(open_data(str(tmp_path))), made, OwnFiles(), EmbedSettings(language=ours))
    texts = xmp.languages_of((tmp_path / "a.xmp").read_text(), "a")
    assert (done.stayed == ("a.jpg",)) is stays is ("a machine's" not in texts.values())
    assert texts[xmp.ALT, there] == "by a person"


def test_a_packet_keeps_comments_and_carriage_returns() -> None:
    written = xmp.with_languages(described("old"), {(xmp.ALT, xmp.DEFAULT): "a\r\nb"}, "a")
    again = xmp.with_languages(written, {(xmp.LONG, xmp.DEFAULT): "more"}, "a")
    assert all(f"<!-- {each} -->" in again for each in ("before", "of a person", "after"))
    source = ElementTree.fromstring(again.strip("\ufeff")).find(".//{http://purl.org/dc/elements/1.1/}source")
    assert source is not None and source.text == "a\r\nb" and alt_of(again) == "a\r\nb"


def saved(image: Image.Image, **options: Any) -> bytes:
    stream = io.BytesIO()
    image.save(stream, **options)
    return stream.getvalue()


def test_fill_bytes_of_a_jpeg_hide_no_packet() -> None:
    first = xmp_files.with_packet(saved(Image.new("RGB", (8, 8)), format="JPEG"), described("old"), "a")
    at = first.index(MARK) - 4
    filled = first[:at] + b"\xff\xff\xff" + first[at:]
    assert alt_of(xmp_files.packet_in(filled)) == "old"
    assert xmp_files.with_packet(filled, described("new"), "a").count(MARK) == 1


@pytest.mark.parametrize("more", [b"short", b"a motion photo's clip"])
def test_bytes_behind_the_end_of_a_png_stay(more: bytes) -> None:
    data = xmp_files.with_packet(saved(Image.new("RGB", (8, 8)), format="PNG") + more, described("new"), "a")
    assert data.endswith(b"IEND\xaeB`\x82" + more) and alt_of(xmp_files.packet_in(data)) == "new"


@pytest.mark.parametrize("behind", [True, False], ids=["XMP behind the list of pictures", "XMP before it"])
def test_an_mpo_keeps_its_later_pictures(tmp_path: Path, behind: bool) -> None:
    colours = [(200, 0, 0), (0, 200, 0), (0, 0, 200)]
    images = [Image.new("RGB", (64, 48), colour) for colour in colours]
    more = {"xmp": described("old " * 50).encode()} if behind else {}  # Pillow writes it behind the list
    data = saved(images[0], format="MPO", save_all=True, append_images=images[1:], **more)
    assert not behind or data.index(b"MPF\0") < data.index(MARK)
    for text in ("new", "new " * 300):
        (tmp_path / "a.mpo").write_bytes(xmp_files.with_packet(data, described(text), "a"))
        with Image.open(tmp_path / "a.mpo") as found:
            assert found.n_frames == 3
            for number, colour in enumerate(colours):
                found.seek(number)
                pixel = found.convert("RGB").getpixel((9, 9))
                assert all(abs(a - b) < 9 for a, b in zip(pixel, colour, strict=True))


@pytest.mark.skipif(shutil.which("exiftool") is None, reason="no exiftool; type: apt install libimage-exiftool-perl")
@pytest.mark.parametrize("tag", ["AltTextAccessibility", "AltTextAccessibility-en-US", "AltTextAccessibility-de"])
def test_what_exiftool_writes_is_seen_and_what_is_written_it_reads(tmp_path: Path, tag: str) -> None:
    Image.new("RGB", (8, 8)).save(tmp_path / "a.jpg")
    Image.new("RGB", (8, 8)).save(tmp_path / "b.png")
    tool = ("exiftool", "-q", "-overwrite_original")
    for name in ("a.jpg", "b.png"):
        subprocess.run([*tool, f"-XMP-iptcCore:{tag}=by a person", "-XMP-dc:Rights=me", tmp_path / name], check=True)
        data = (tmp_path / name).read_bytes()
        packet = xmp_files.packet_in(data)
        assert xmp.texts_of(packet, name) == {xmp.ALT: "by a person"}
        (tmp_path / name).write_bytes(
            xmp_files.with_packet(data, xmp.with_languages(packet, {(xmp.ALT, xmp.DEFAULT): "new"}, name), name)
        )
        shown = subprocess.run(["exiftool", "-j", "-Rights", "-AltTextAccessibility", "-Validate", tmp_path / name],
                               capture_output=True, text=True, check=True)  # fmt: skip
        value = json.loads(shown.stdout)[0]
        assert (value["Rights"], value["AltTextAccessibility"], value["Validate"]) == ("me", "new", "OK")


def test_a_log_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    (tmp_path / LOG_NAME).mkdir()
    with pytest.raises(TellapartError, match=r"captions\.jsonl cannot be read .*; make it readable"):
        OwnFiles().is_own(tmp_path / "a.txt", "a dog")


def test_printed_lines_hold_no_characters_that_turn_the_direction_of_writing() -> None:
    item = next(iter(Scenes(1))).item()
    text = "a cat \u202egnp.exe\u202c sits\u2028here \x9b31m"
    for printed in (json_line(Written(item, text)), json_lines([item], {item.id: Edited(text)})):
        assert printed.isascii() and printed.count("\n") == 1
        assert json.loads(printed) == {"id": item.id, "caption": text}


# The command.


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Twelve scenes as photos."""
    (tmp_path / "photos").mkdir()
    for number, scene in enumerate(Scenes(12, split="test", seed=3)):
        scene.image().save(tmp_path / "photos" / f"{number:02}.jpg")
    return tmp_path / "photos"


def records(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


def test_alt_texts_say_that_they_use_the_first_of_several_captions(cli: Cli, folder: Path, tmp_path: Path) -> None:
    rows = [(f"{n:02}.jpg", f"a dog, number {n}") for n in range(12)]
    listed = tmp_path / "listed.jsonl"
    for several, names in ([], ""), ([("01.jpg", "a cat"), ("03.jpg", "a cow")], "01.jpg, 03.jpg"):
        listed.write_text("".join(f'{{"id": "{id_}", "caption": "{text}"}}\n' for id_, text in (*rows, *several)))
        done = cli("alt-text", folder, "--captions", listed, "-o", tmp_path / "alt.jsonl")
        assert done.status == 0, done.err
        message = "2 pictures have several captions; the first one is used: "
        assert (message + names in done.err) == bool(names), done.err
    assert records(tmp_path / "alt.jsonl")[1]["caption"].startswith("a dog")


@pytest.mark.long
def test_alt_texts_of_a_folder(cli: Cli, tiny_captioner: Path, folder: Path, tmp_path: Path) -> None:
    before = {path.name: path.read_bytes() for path in folder.glob("*.jpg")}
    out, copies = tmp_path / "alt.jsonl", tmp_path / "copies"
    typed = ("alt-text", folder, "--model", tiny_captioner, "--decoding", "max_tokens=12", "-o", out)
    done = cli(*typed, "--characters", 30, "--doubtful", "--embed", "--copies", copies)
    assert done.status == 0, done.err
    texts = {row["id"]: row["caption"] for row in records(out)}
    assert texts and all(0 < len(text) <= 30 for text in texts.values())
    written = {key: texts[0] for key, texts in logged_captions(out, list(open_data(str(folder)))).items()}
    for key, text in texts.items():
        assert written[key].startswith(text) and (written[key] + " ")[len(text)] in " .,"
        assert alt_of((folder / key).with_suffix(".xmp").read_text(encoding="utf-8")) == text
        assert alt_of(xmp_files.packet_in((copies / key).read_bytes())) == text
        if exiftool := shutil.which("exiftool"):
            for path in ((folder / key).with_suffix(".xmp"), copies / key):
                shown = subprocess.run([exiftool, "-s3", "-AltTextAccessibility", path], capture_output=True, text=True)
                assert shown.stdout.strip() == text
    assert {path.name: path.read_bytes() for path in folder.glob("*.jpg")} == before
    assert f"to review them, run: tellapart review {folder} {out}" in done.err
    stored = CaptionStore.open(folder, out).captions().values()
    kinds = {kind for one in stored for kind, _ in one.doubts}
    assert "shortened" in kinds and "doubtful" in kinds, "the second is the captioner's own"
    assert f"{sum(bool(one.doubts) for one in stored)} of 12 alt texts need checking" in done.err
    shared = [one.text for one in stored if any(kind == "shared" for kind, _ in one.doubts)]
    assert shared and all(list(texts.values()).count(text) > 1 for text in shared)
    assert len(shared) == sum(list(texts.values()).count(text) > 1 for text in texts.values())
    assert all(one.candidates == (written[one.id],) for one in stored if one.text != written.get(one.id, one.text))
    # Other characters are another text of the same captions.
    done = cli(*typed, "--characters", 20)
    assert done.status == 0 and "0 captions written, 12 already done" in done.err
    assert all(len(row["caption"]) <= 20 for row in records(out))


def test_two_pictures_of_one_sidecar_are_refused_before_the_work(cli: Cli, folder: Path, tmp_path: Path) -> None:
    Image.new("RGB", (32, 32)).save(folder / "00.png")
    for more in (["--embed"], ["--copies", tmp_path / "copies"]):
        line = cli("alt-text", folder, "--model", "scenes", "-o", tmp_path / "alt.jsonl", *more).line
        assert re.search(r"00\.jpg and \S*00\.png would both use \S*00\.xmp; rename one of each", line)
    assert [path.name for path in tmp_path.iterdir()] == ["photos"]


def pictures_of(folder: Path) -> dict[str, tuple[bytes, int]]:
    return {str(path.relative_to(folder)): (path.read_bytes(), path.stat().st_mode) for path in folder.rglob("*.*")}


def link_below(copies: Path, folder: Path) -> None:
    copies.mkdir()
    (copies / "03.jpg").symlink_to(folder / "05.jpg")


def hard_link(copies: Path, folder: Path) -> None:
    copies.mkdir()
    (copies / "03.jpg").hardlink_to(folder / "05.jpg")


def foreign(copies: Path, folder: Path) -> None:
    copies.mkdir()
    (copies / "03.jpg").write_bytes(b"a person's")


def foreign_sidecar(copies: Path, folder: Path) -> None:
    (folder / "03.jpg").unlink()
    Image.new("RGB", (32, 32)).save(folder / "03.webp")
    copies.mkdir()
    (copies / "03.xmp").write_text(described("by a person"))


def folder_link(copies: Path, folder: Path) -> None:
    copies.symlink_to(folder)


@pytest.mark.parametrize("make", [link_below, hard_link, foreign, foreign_sidecar, folder_link])
def test_copies_never_take_the_place_of_a_picture_or_a_file_of_somebody_else(
    cli: Cli, folder: Path, tmp_path: Path, make: Callable[[Path, Path], None]
) -> None:
    copies = tmp_path / "copies"
    make(copies, folder)
    before = pictures_of(folder), pictures_of(copies)
    done = cli("alt-text", folder, "--model", "scenes", "-o", tmp_path / "alt.jsonl", "--copies", copies)
    assert done.status == 2 and (
        "is also the input picture" in done.err
        or "already exists, and was not written by tellapart or has been" in done.err
    ), done.err
    assert (pictures_of(folder), pictures_of(copies)) == before
    assert not (tmp_path / "alt.jsonl.written.jsonl").exists(), "before anything is captioned"


def test_copies_lie_outside_of_the_folder_that_is_captioned(cli: Cli, folder: Path, tmp_path: Path) -> None:
    out = tmp_path / "alt" / "alt.jsonl"
    typed = ("alt-text", "--model", "scenes", "--decoding", "beams=1", "-o", out)
    (folder / "photos").mkdir()
    Image.new("RGB", (32, 32)).save(folder / "photos" / "00.jpg")
    before = pictures_of(tmp_path)
    for pictures, copies in ((folder, folder / "copies"), (folder, folder), (tmp_path, tmp_path / "copies")):
        done = cli(*typed, pictures, "--copies", copies)
        assert done.status == 2 and re.search(
            "would treat the copies as input pictures|is also the input picture", done.err
        ), done.err
    assert pictures_of(tmp_path) == before
    done = cli(*typed, folder, "--copies", tmp_path)  # above it: photos/00.jpg is a picture and would be a copy
    assert done.status == 2 and "is also the input picture" in done.err and pictures_of(tmp_path) == before


def shown_by_exiftool(path: Path, *names: str) -> dict[str, Any]:
    """What exiftool reads in a file."""
    done = subprocess.run(["exiftool", "-j", *(f"-{name}" for name in names), path], capture_output=True, text=True)
    shown: dict[str, Any] = json.loads(done.stdout)[0]
    return shown


@pytest.mark.skipif(not shutil.which("exiftool"), reason="no exiftool")
def test_two_languages_stand_side_by_side_with_who_wrote_them(cli: Cli, folder: Path, tmp_path: Path) -> None:
    """Three decorative pictures have none; a person's text in one language stops no other language."""
    out = {code: tmp_path / f"alt.{code}.jsonl" for code in ("en", "de")}
    english = ("alt-text", folder, "--model", "scenes", "--language", "en", "-o", out["en"], "--embed")
    assert cli(*english).status == 0
    rows = records(out["en"])
    for n, row in enumerate(rows):
        if n < 3:
            row |= {"decorative": True}
    out["en"].write_text("".join(json.dumps(row) + "\n" for row in rows))
    for _ in range(2):
        assert cli(*english).status == 0
    assert [row.get("decorative") for row in records(out["en"])] == [True] * 3 + [None] * 9
    assert all(row["caption"] == "" for row in records(out["en"])[:3])
    captions = {row["id"]: f"Ein Bild von Nr. {n}, sehr schön." for n, row in enumerate(rows)}
    (tmp_path / "de.jsonl").write_text("".join(json.dumps({"id": k, "caption": v}) + "\n" for k, v in captions.items()))
    german = ("alt-text", folder, "--captions", tmp_path / "de.jsonl", "--language", "de", "-o", out["de"], "--embed")
    photo, name = folder / "05.jpg", "AltTextAccessibility"
    by_hand = xmp.with_languages(
        xmp_files.read_sidecar(photo.with_suffix(".xmp")), {(xmp.ALT, "fr"): "à la main"}, "05.xmp"
    )
    photo.with_suffix(".xmp").write_text(by_hand, encoding="utf-8")
    for _ in range(2):
        done = cli(*german)
        assert done.status == 0, done.err
    kept = {row["id"]: row["caption"] for row in records(out["en"])}
    shown = shown_by_exiftool(
        photo.with_suffix(".xmp"), name, f"{name}-en", f"{name}-de", f"{name}-fr", "HistorySoftwareAgent", "HistoryWhen"
    )
    assert shown[name] == shown[f"{name}-en"] == kept["05.jpg"]
    assert shown[f"{name}-de"] == "Nr. 5, sehr schön." or shown[f"{name}-de"] == captions["05.jpg"]
    assert shown[f"{name}-fr"] == "à la main"
    agents = shown["HistorySoftwareAgent"]
    assert len(agents) == len(shown["HistoryWhen"]) == 2, "an event for each language, and none where nothing changed"
    assert agents[0].startswith("scenes, tellapart ") and agents[1].startswith("tellapart ")
    empty = xmp.languages_of(xmp_files.read_sidecar(folder / "00.xmp"), "")
    assert (xmp.ALT, "en") not in empty and (xmp.ALT, "de") in empty, "decorative in English alone"
    assert {row["language"] for row in records(out["de"])} == {"de"}
    # A text of another origin in the same language stays.
    packet = xmp.with_languages(xmp_files.read_sidecar(folder / "06.xmp"), {(xmp.ALT, "de"): "von Hand"}, "06.xmp")
    (folder / "06.xmp").write_text(packet, encoding="utf-8")
    done = cli(*german)
    assert "1 pictures already have an alt text from another source" in done.err
    assert xmp.languages_of(xmp_files.read_sidecar(folder / "06.xmp"), "")[xmp.ALT, "de"] == "von Hand"
    # One file has one language.
    line = cli(*german[:-2], out["en"]).line
    assert "are marked as 'en'; use one file per language, such as -o" in line
    assert "expected a language code such as de or pt-BR" in cli(*german[:4], "--language", "german!", *german[6:]).line


@pytest.mark.parametrize(
    ("caption", "expected"),
    [
        ("Das Bild zeigt einen kleinen braunen Hund auf einer Wiese.", "Ein kleiner brauner Hund auf einer Wiese."),
        ("Das Foto zeigt den alten Turm.", "Der alte Turm."),
        ("Das Bild zeigt eine Frau.", "Eine Frau."),
        ("Einen Hund sieht man hier.", "Einen Hund sieht man hier."),
    ],
)
def test_an_object_of_a_german_opening_becomes_the_subject(caption: str, expected: str) -> None:
    assert alt_texts({"a": caption}, language="de")["a"].text == expected


def test_long_texts_of_other_languages_are_cut_at_commas_or_words() -> None:
    text = "Zwei Frauen in roten Mänteln, die vor einem großen Gebäude mit vielen Fenstern stehen und warten"
    assert alt_texts({"a": text}, 60, language="de")["a"].text == "Zwei Frauen in roten Mänteln"
    plain = text.replace(",", "")
    made = alt_texts({"a": plain}, 60, language="de")["a"]
    assert plain.startswith(f"{made.text} ") and made.doubts[0][1].startswith("cut after a word")


def test_a_sidecar_of_another_program_is_named(cli: Cli, folder: Path, tmp_path: Path) -> None:
    """darktable reads ``x.jpg.xmp`` alone; a text of its own there stays."""
    other = xmp.with_languages("", {}, "").encode()
    (folder / "03.jpg.xmp").write_bytes(other)
    done = cli("alt-text", folder, "--model", "scenes", "-o", tmp_path / "alt.jsonl", "--embed")
    assert done.status == 0 and "1 pictures also have a sidecar written by another program" in done.err, done.err
    assert "03.jpg.xmp" in done.err and (folder / "03.jpg.xmp").read_bytes() == other and (folder / "03.xmp").is_file()


def test_sidecars_that_cannot_be_written_are_told_before_any_work(cli: Cli, folder: Path, tmp_path: Path) -> None:
    (folder / "00.xmp").mkdir()
    typed = ("alt-text", folder, "--model", "scenes", "-o", tmp_path / "alt.jsonl", "--embed")
    line = cli(*typed).line
    assert line == f"cannot write .xmp files in {folder}/00.xmp (a folder); make the folder writable, or remove --embed"
    assert not (tmp_path / "alt.jsonl").exists()


def test_a_language_is_written_in_the_usual_spelling_of_its_code(cli: Cli, folder: Path, tmp_path: Path) -> None:
    (tmp_path / "c.jsonl").write_text("".join(f'{{"id": "{n:02}.jpg", "caption": "Ein Hund."}}\n' for n in range(12)))
    for code in ("DE_at", "de-AT"):
        done = cli(
            "alt-text", folder, "--captions", tmp_path / "c.jsonl", "--language", code, "-o", tmp_path / "a.jsonl"
        )
        assert done.status == 0, done.err
    assert {row["language"] for row in records(tmp_path / "a.jsonl")} == {"de-AT"}


def test_a_sidecar_keeps_its_mode(cli: Cli, folder: Path, tmp_path: Path) -> None:
    sidecar = folder / "00.xmp"
    sidecar.write_text(LIGHTROOM_EMPTY.format(""), encoding="utf-8")
    sidecar.chmod(0o600)
    typed = ("alt-text", folder, "--model", "scenes", "--decoding", "beams=1", "-o", tmp_path / "alt.jsonl", "--embed")
    done = cli(*typed)
    assert done.status == 0, done.err
    assert alt_of(sidecar.read_text(encoding="utf-8")) == records(tmp_path / "alt.jsonl")[0]["caption"]
    assert stat.S_IMODE(sidecar.stat().st_mode) == 0o600


@pytest.mark.parametrize("declaration", ["", '<?xml version="1.0" encoding="UTF-16"?>'])
def test_a_sidecar_in_utf_16_is_read(tmp_path: Path, declaration: str) -> None:
    Image.new("RGB", (8, 8)).save(tmp_path / "a.jpg")
    (tmp_path / "a.xmp").write_text(declaration + LIGHTROOM_EMPTY.format("<dc:title>ß</dc:title>"), encoding="utf-16")
    made = alt_texts({"a.jpg": "a größerer dog"})
    assert embed(list(open_data(str(tmp_path))), made, OwnFiles(), EmbedSettings()).sidecars == 1
    written = (tmp_path / "a.xmp").read_text(encoding="utf-8")
    assert alt_of(written) == "a größerer dog" and "<dc:title>ß</dc:title>" in written and "<!-- before -->" in written


def test_copies_keep_their_mode_and_are_made_again(cli: Cli, folder: Path, tmp_path: Path) -> None:
    """What a picture is, its content says: a WebP that is called .jpg gets a sidecar."""
    (folder / "00.jpg").chmod(0o600)
    Image.new("RGB", (32, 32)).save(folder / "01.jpg", "WEBP")
    before, copies = pictures_of(folder), tmp_path / "copies"
    typed = ("alt-text", folder, "--model", "scenes", "--decoding", "beams=1", "-o", tmp_path / "alt.jsonl")
    for _ in range(3):
        done = cli(*typed, "--copies", copies)
        assert done.status == 0, done.err
        texts = {row["id"]: row["caption"] for row in records(tmp_path / "alt.jsonl")}
        assert sorted(pictures_of(copies)) == sorted([*texts, "01.xmp"]) and len(texts) == 12
        assert stat.S_IMODE((copies / "00.jpg").stat().st_mode) == 0o600
        assert (copies / "01.jpg").read_bytes() == before["01.jpg"][0]
        assert alt_of((copies / "01.xmp").read_text(encoding="utf-8")) == texts["01.jpg"]
        assert alt_of(xmp_files.packet_in((copies / "02.jpg").read_bytes())) == texts["02.jpg"]
    (copies / "02.jpg").write_bytes(b"what a person made of it")
    done = cli(*typed, "--copies", copies)
    assert (
        done.status == 2
        and "02.jpg already exists" in done.err
        and "already exists, and was not written by tellapart or has been" in done.err
    )
    assert cli(*typed, "--copies", copies, "--overwrite").status == 0 and pictures_of(folder) == before


def test_a_list_of_file_names_needs_names_that_are_text(cli: Cli, tiny_captioner: Path, folder: Path) -> None:
    (folder / "00.jpg").rename(folder / "\udcff.jpg")
    before = sorted(folder.iterdir())
    for typed in (
        ["lora", folder, "--model", tiny_captioner, "--trigger", "tok"],
        ["caption", tiny_captioner, folder, "-o", folder / "metadata.jsonl"],
    ):
        assert "the file name is not valid UTF-8, as metadata.jsonl requires" in cli(*typed).line
    assert sorted(folder.iterdir()) == before


def test_a_text_that_a_person_changed_stays_and_is_embedded(cli: Cli, folder: Path, tmp_path: Path) -> None:
    out = tmp_path / "alt.jsonl"
    typed = ("alt-text", folder, "--model", "scenes", "--decoding", "beams=1", "-o", out)
    assert cli(*typed, "--embed").status == 0
    rows = records(out)
    rows[2]["caption"] = "what a person sees"
    out.write_text("".join(json.dumps(row) + "\n" for row in rows))
    for _ in range(2):  # and once more
        done = cli(*typed, "--characters", 30, "--embed")
        assert done.status == 0, done.err
        assert (
            "were edited by hand and were kept; pass --replace-edited to" in done.err
            and records(out)[2]["caption"] == "what a person sees"
        )
    alt = {row["id"]: alt_of((folder / row["id"]).with_suffix(".xmp").read_text(encoding="utf-8")) for row in rows}
    assert alt == {row["id"]: row["caption"] for row in records(out)} and alt[rows[2]["id"]] == "what a person sees"
    out.write_text("no JSON\n")
    assert "alt.jsonl has a line that this command cannot parse" in cli(*typed).err
    assert "alt.jsonl has a line that this command cannot parse" in cli(*typed, "--overwrite").err
    done = cli(*typed, "--replace-edited")
    assert done.status == 0 and records(out)[2]["caption"] != "what a person sees"
    assert "no JSON" in records(tmp_path / "alt.jsonl.replaced.jsonl")[0]["text"]
    (tmp_path / "foreign.csv").write_text("id,caption\n")
    done = cli(*typed[:-1], tmp_path / "foreign.csv")
    assert done.status == 2 and "foreign.csv was not written by this command" in done.err


@pytest.mark.parametrize("suffix", ["jsonl", "csv"])
def test_texts_that_were_reviewed_stay_and_are_embedded(cli: Cli, folder: Path, tmp_path: Path, suffix: str) -> None:
    """The review shows the doubts; what a person accepts, edits or marks as decorative is no longer doubtful."""
    out = tmp_path / f"alt.{suffix}"
    typed = ("alt-text", folder, "--model", "scenes", "--decoding", "beams=1", "--characters", 20, "-o", out)
    done = cli(*typed)
    assert done.status == 0 and "11 of 12 alt texts need checking" in done.err, done.err
    review = open_session(str(folder), out)
    rows = review.state()["rows"]
    doubtful = [row for row in rows if row.get("doubts")]
    assert len(doubtful) == 11 and all(row["by"] == "scenes" for row in doubtful)
    assert all(("candidates" in row) or "shortened" not in str(row["doubts"]) for row in doubtful), "the whole caption"
    assert {line.partition(":")[0] for row in doubtful for line in row["doubts"]} == {"shared", "shortened"}
    edits = [{"text": "a person's & <b>text</b>"}, {"accepted": True}, {"text": "", "decorative": True}]
    for number, fields in enumerate(edits):
        saved = review.write({number: {**fields, "version": rows[number]["version"]}}, "edit")
        assert not saved["conflicts"] and "doubts" not in review.row(number)
    done = cli(*typed[:-3], 60, *typed[-2:], "--embed")
    assert done.status == 0 and "were edited by hand and were kept; pass --replace-edited to" in done.err, done.err
    after = {one.id: one for one in CaptionStore.open(folder, out).captions().values()}
    assert after["00.jpg"].text == "a person's & <b>text</b>" and after["01.jpg"].text == rows[1]["text"]
    assert after["02.jpg"].text == "" and not any(after[f"{n:02}.jpg"].doubts for n in (0, 1, 2))
    assert all(after[f"{n:02}.jpg"].text.startswith(rows[n]["text"]) for n in range(3, 12)), "made anew"
    for name, one in after.items():
        packet = xmp_files.read_sidecar((folder / name).with_suffix(".xmp"))
        assert (alt_of(packet) if packet else "") == one.text
    done = cli("captions", "undo", folder, "--captions", out)  # one change: texts and doubts
    assert done.status == 0
    undone = review.store.captions()
    assert [one.text for one in undone.values()][3:] == [row["text"] for row in rows[3:]]
    assert [bool(one.doubts) for one in undone.values()][3:] == [bool(row.get("doubts")) for row in rows[3:]]
    assert undone["01.jpg"].accepted and undone["00.jpg"].text == "a person's & <b>text</b>"


def test_one_picture_is_printed(cli: Cli, tiny_captioner: Path, folder: Path) -> None:
    done = cli("alt-text", folder / "00.jpg", "--model", tiny_captioner, "--decoding", "max_tokens=12")
    assert done.status == 0 and json.loads(done.out)["id"] == "00.jpg"
    assert {path.suffix for path in folder.iterdir()} == {".jpg"}


def test_a_folder_for_an_image_generator(cli: Cli, folder: Path) -> None:
    typed = ("lora", folder, "--model", "scenes", "--decoding", "beams=1", "--trigger", "ohwx thing")
    done = cli(*typed, "--dry-run")
    assert (
        done.status == 0
        and "stays" in done.out
        and "no text files were written; run the command again without --dry-run" in done.err
    ), done.err
    assert not list(folder.glob("*.txt")) and not (folder / "metadata.jsonl").exists()
    (folder / "03.txt").write_text("a person wrote this\n")
    done = cli(*typed)
    assert done.status == 0 and "0 captions written, 12 already done" in done.err
    assert "1 .txt files were written or edited by hand and were kept" in done.err
    assert "1 of these do not contain the trigger 'ohwx thing', so the" in done.err
    rows = {row["file_name"]: row["text"] for row in records(folder / "metadata.jsonl")}
    assert rows["03.jpg"] == "a person wrote this" and len(rows) >= 10
    for name, text in rows.items():
        assert (folder / name).with_suffix(".txt").read_text() == text + "\n"
        assert text.startswith("ohwx thing") or name == "03.jpg"
    read = {item.id: item.references for item in open_data(str(folder))}
    assert all(read[name] == (text,) for name, text in rows.items())
    # Another trigger replaces what this command wrote, and nothing that a person changed.
    (folder / "04.txt").write_text("edited\n")
    done = cli(*typed[:-1], "zwx", "--suffix", "on film")
    again = {row["file_name"]: row["text"] for row in records(folder / "metadata.jsonl")}
    assert again["03.jpg"] == rows["03.jpg"] and again["04.jpg"] == "edited"
    others = again.keys() - {"03.jpg", "04.jpg"}
    assert all(again[name].startswith("zwx") and again[name].endswith(" on film") for name in others)
    (folder / "metadata.jsonl").write_text('{"file_name": "03.jpg", "text": "by hand"}\n')
    done = cli(*typed)
    assert done.status == 2 and "metadata.jsonl was not written by this command, or has" in done.err


def test_several_captions_words_to_include_and_files_of_both_kinds(cli: Cli, folder: Path, tmp_path: Path) -> None:
    before = {path.name: path.read_bytes() for path in folder.glob("*.jpg")}
    (folder / "00.txt").write_text("tag one, tag two\n")
    typed = ("lora", folder, "--model", "scenes", "--decoding", "samples=3", "--trigger", "ohwx")
    done = cli(*typed, "--extension", "caption", "--include", "tiny, film grain", "--common", 1)
    assert done.status == 0, done.err
    assert (folder / "00.txt").read_text() == "tag one, tag two\n", "another file of the same name stays"
    rows = {row["file_name"]: row["text"] for row in records(folder / "metadata.jsonl")}
    counts = set()
    for name, text in rows.items():
        lines = (folder / name).with_suffix(".caption").read_text().splitlines()
        assert lines == (text if isinstance(text, list) else [text]) and len(set(lines)) == len(lines)
        assert all(line.startswith("ohwx") and re.search(r"\btiny\b", line) for line in lines)
        assert all(line.endswith(", film grain") for line in lines)
        counts.add(len(lines))
    assert len(rows) == 12 and max(counts) > 1
    read = {item.id: item.references for item in open_data(str(folder)) if item.id != "00.jpg"}
    assert all(list(read[name]) == (text if isinstance(text, list) else [text]) for name, text in rows.items()
               if name in read)  # fmt: skip
    # The same with the pictures inside, for programs that read Parquet and WebDataset.
    for out in (tmp_path / "lora.parquet", tmp_path / "lora.tar"):
        done = cli(*typed, "--common", 1, "-o", out)
        assert done.status == 0, done.err
        items = list(open_data(str(out)))  # a tar's ids are its own
        packed = dict(zip(sorted(before), items, strict=True))
        assert all(item.picture.read().data == before[name] for name, item in packed.items())  # type: ignore[attr-defined]
        texts = {len(item.references) for item in packed.values()}
        assert max(texts) == 3 and all(item.references[0].startswith("ohwx") for item in packed.values())
        assert cli(*typed, "-o", out).status == 0, "its own file is replaced"
        with out.open("ab") as file:
            file.write(b"of a person")
        done = cli(*typed, "-o", out)
        assert done.status == 2 and "was not written by tellapart or has been edited since; pass --overw" in done.err
        assert out.read_bytes().endswith(b"of a person")
        assert cli(*typed, "-o", out, "--overwrite").status == 0
        assert len(list(open_data(str(out)))) == len(items)
    rows = datasets.load_dataset(
        "parquet", data_files=str(tmp_path / "lora.parquet"), split="train", cache_dir=str(tmp_path / "hf")
    )
    assert rows[0]["image"].size == Image.open(folder / "00.jpg").size and rows[0]["text"][0].startswith("ohwx")
    assert {path.name: path.read_bytes() for path in folder.glob("*.jpg")} == before


@pytest.mark.parametrize(
    ("typed", "message"),
    [
        ("lora", "Missing option '--trigger'; see: tellapart lora --help"),
        ("lora --trigger @", "--trigger is empty; expected the word that the generator should learn"),
        ("lora --trigger x --embed", "No such option: --embed"),
        ("alt-text", "missing output file for the alt texts; use -o alt.jsonl, or"),
        ("alt-text -o alt.txt", "expected a .jsonl or .csv file"),
        ("alt-text -o a.jsonl --captions a.csv", "--captions and --model cannot be combined; remove one of them"),
        ("lora --trigger x --length-mix 0.5,0.2", "expected three fractions that add up to 1, such as 0.2,0.5,0.3"),
        ("lora --trigger x --keep a@hat", "expected single words"),
        ("lora --trigger x --seed 1", "--seed requires --length-mix"),
        (
            "lora --trigger x --include a@hat --avoid hat",
            "--avoid hat: --include keeps this word; remove it from one",
        ),
        ("lora --trigger x --keep hat --avoid hat", "--avoid hat: --keep keeps this word; remove it from one"),
        ("lora --trigger x --extension .jpg", "expected .txt or .caption"),
        ("lora --trigger x --extension .txt -o a.tar", "--extension applies to text files beside the pictures and"),
        (
            "lora --trigger x --decoding samples=3 -o a.csv",
            "a CSV file stores one text per picture, but some pictures have",
        ),
        ("lora --trigger x --decoding samples=1", "--decoding samples: expected at least 2"),
        ("lora --trigger x --decoding paragraphs=keep", "--decoding paragraphs has no effect, because each text is"),
        ("alt-text -o b.csv --decoding paragraphs=keep", "--decoding paragraphs has no effect, because each text is"),
        ("alt-text -o b.csv --decoding scorer_weight=0.1,consensus=3", "scorer_weight requires a scorer that chooses"),
        ("lora --trigger x --decoding sample=3", "unknown setting 'sample'; did you mean 'samples'?"),
        ("alt-text -o - --doubtful", "--doubtful requires a local captioner and an output file"),
    ],
)
def test_options_without_effect_are_refused(
    cli: Cli, tiny_captioner: Path, folder: Path, monkeypatch: pytest.MonkeyPatch, typed: str, message: str
) -> None:
    monkeypatch.chdir(folder.parent)
    Path("a.csv").write_text("id,caption\n00.jpg,a\n")
    verb, *options = (word.replace("@", " ") for word in typed.split())
    if "-o" in options and options[-1] == "a.csv":
        Path("a.csv").unlink()
    done = cli(verb, folder, "--model", tiny_captioner, *options)
    assert done.status == 2 and message in done.err, done.err


def test_captions_that_are_there_need_no_model(cli: Cli, folder: Path, tmp_path: Path) -> None:
    """Of text files that `caption` wrote or a person, and of a file by its names; texts of our own are no captions."""
    assert cli("caption", "scenes", folder, "--format", "txt", "--beams", 1).status == 0
    (folder / "03.txt").write_text("a red circle by a person\n")
    (folder / "04.txt").unlink()
    captions = {path.stem: path.read_text().strip() for path in folder.glob("*.txt")}
    done = cli("alt-text", folder, "-o", tmp_path / "alt.jsonl")
    assert done.status == 0 and "1 pictures have no caption: 04.jpg" in done.err, done.err
    assert {row["id"].removesuffix(".jpg"): row["caption"] for row in records(tmp_path / "alt.jsonl")} == captions
    lora = ("lora", folder, "--trigger", "ohwx", "--common", 1)
    for trigger in ("ohwx", "zwx"):
        done = cli(*lora[:3], trigger, *lora[4:])
        assert done.status == 0 and "1 .txt files were written or edited by hand and were kept" in done.err, done.err
        texts = {path.stem: path.read_text().strip() for path in folder.glob("*.txt")}
        assert texts.pop("03") == captions["03"]
        assert texts == {key: f"{trigger}, {text}" for key, text in captions.items() if key != "03"}
    # Captions that are written again are read again, and a person's are made into texts where that is asked for.
    (folder / "05.txt").unlink()
    assert cli("caption", "scenes", folder, "--format", "txt", "--overwrite", "--samples", "2").status == 2
    assert cli("caption", "scenes", folder, "--format", "txt", "--max-tokens", 3, "--overwrite").status == 0
    again = (folder / "05.txt").read_text().strip()
    done = cli(*lora, "--replace-edited")
    assert done.status == 0 and (folder / "03.txt").read_text() == f"ohwx, {captions['03']}\n", done.err
    assert (folder / "05.txt").read_text() == f"ohwx, {again}\n"
    assert any("a red circle by a person" in str(one.before) for one in CaptionStore.open(folder).history("03.jpg"))
    done = cli("captions", "undo", folder)
    assert done.status == 0 and "metadata.jsonl was not changed; to undo its last change as well, run: " in done.err
    assert (folder / "03.txt").read_text() == f"{captions['03']}\n"
    assert cli(*lora, "--replace-edited").status == 0
    assert cli(*lora).status == 0 and (folder / "03.txt").read_text() == f"ohwx, {captions['03']}\n"
    (tmp_path / "mine.csv").write_text("file,caption\nphotos/01.jpg,the first\nother.jpg,of another\n")
    done = cli("alt-text", folder, "--captions", tmp_path / "mine.csv", "-o", tmp_path / "few.jsonl")
    assert done.status == 0 and "1 captions do not belong to any picture in" in done.err, done.err
    assert records(tmp_path / "few.jsonl") == [{"id": "01.jpg", "caption": "the first"}]
    (tmp_path / "bare").mkdir()
    Image.new("RGB", (8, 8)).save(tmp_path / "bare" / "a.png")
    line = cli("lora", tmp_path / "bare", "--trigger", "ohwx").line
    assert "the pictures have no captions; pass --captions FILE, or" in line
    assert "--prompt requires --model" in cli(*lora, "--prompt", "x").line


@pytest.mark.parametrize("suffix", [".jsonl", ".csv"])
def test_a_caption_of_several_paragraphs_is_one_text(cli: Cli, folder: Path, tmp_path: Path, suffix: str) -> None:
    """A line break would make two texts of it, and the next run could not read the alt texts or took them for empty."""
    source, alt = tmp_path / "captions.jsonl", tmp_path / f"alt{suffix}"
    rows = [{"id": f"{n:02}.jpg", "caption": f"A dog on a lawn\n\n\tnumber {n}"} for n in range(12)]
    source.write_text("".join(map("{}\n".format, map(json.dumps, rows))))
    for _ in range(2):
        done = cli("alt-text", folder, "--captions", source, "-o", alt, "--language", "en")
        assert done.status == 0 and "edited by hand" not in done.err, done.err
        written = records(alt) if suffix == ".jsonl" else list(csv.DictReader(io.StringIO(alt.read_text())))
        assert [row["caption"] for row in written] == [f"A dog on a lawn number {n}" for n in range(12)]
    out = tmp_path / "lora.jsonl"
    assert cli("lora", folder, "--captions", source, "--trigger", "ohwx", "--common", 1, "-o", out).status == 0
    assert [row["caption"] for row in records(out)] == [f"ohwx, a dog on a lawn number {n}" for n in range(12)]


def test_undo_says_that_sidecars_stay_and_what_updates_them(cli: Cli, folder: Path, tmp_path: Path) -> None:
    """The printed command restores the texts in the sidecars."""
    alt, source = tmp_path / "alt.jsonl", tmp_path / "captions.jsonl"
    for text in ("a dog on a lawn", "a dog in the snow"):
        source.write_text(
            "".join(json.dumps({"id": f"{n:02}.jpg", "caption": f"{text} {n}"}) + "\n" for n in range(12))
        )
        assert cli("alt-text", folder, "--captions", source, "-o", alt, "--embed").status == 0
    done = cli("captions", "undo", folder, "--captions", alt)
    assert records(alt)[3]["caption"] == "a dog on a lawn 3"
    assert alt_of((folder / "03.xmp").read_text(encoding="utf-8")) == "a dog in the snow 3"
    command = re.search(r"\.xmp files beside the pictures were not changed; .* run: tellapart (.*)", done.err)
    assert command is not None, done.err
    assert cli(*shlex.split(command[1])).status == 0
    assert alt_of((folder / "03.xmp").read_text(encoding="utf-8")) == "a dog on a lawn 3"
