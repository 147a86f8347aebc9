"""Captions for a purpose: alt text, and captions that fine-tune an image generator on a folder of pictures.

Both are made of the captions that a captioner wrote, which stay in a file of their own (`written_file`): other settings
make other texts of the same captions. Words are left out by rules of English grammar (`tellapart.language.phrases`);
nothing is added but the trigger, the prefix and the suffix.
"""

from __future__ import annotations

import base64
import contextlib
import csv
import hashlib
import io
import json
import os
import re
import shutil
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence, Set
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from PIL import Image

from tellapart.boost.stages import unusable
from tellapart.data import xmp
from tellapart.data.caption_files import METADATA_FILES
from tellapart.data.pictures import FilePicture
from tellapart.errors import MissingExtra, PictureError, TellapartError, UsageError
from tellapart.inference.caption import bytes_of, end_tar, files_beside, name_in, write_sample
from tellapart.language.answers import without_opening
from tellapart.language.english import FUNCTION_WORDS
from tellapart.language.phrases import phrase_ends, without_words, word_key
from tellapart.language.words import content_words, sentences
from tellapart.types import Item
from tellapart.utils.files import check_output, input_folder, write_output
from tellapart.utils.io import json_text, parse_json, replace_file, replace_text, write_errors
from tellapart.utils.rng import RandomStream

CHARACTERS = 125  # of an alt text: what screen readers say in one go, by common advice
COMMON = 0.5  # a word that more than this share of the captions says holds for the set
LEAST = 5  # captions: fewer are no evidence of what a set has in common
LENGTHS = (1 / 3, 2 / 3, 1.0)  # of short, medium and long captions, as parts of the whole


@dataclass(frozen=True)
class Edited:
    """The text that was made of a caption; empty where none could be. ``doubts``: (kind, detail) of what was done.

    ``long``: the second, longer text; empty where there is none.
    """

    text: str
    doubts: tuple[tuple[str, str], ...] = ()
    long: str = ""
    accepted: bool = False  # by a person, as it is


def without_openings(text: str) -> tuple[str, str]:
    """Returns the text whose sentences do not open with "The image shows" or the like, and the first such opening."""
    removed, kept = "", ""
    for sentence in (part for whole in sentences(text) for part in re.split(r"(?<=[。！？])", whole) if part):
        part, opening = without_opening(sentence)
        while opening:
            removed = removed or opening
            shorter, opening = without_opening(part)
            part = shorter
        if part:  # not "Sure!" alone
            part = part[:1].upper() + part[1:] if part != sentence and sentence[:1].isupper() else part
            kept += part if not kept or kept[-1] in "。！？" else f" {part}"
    return kept or text, removed if kept else ""


def shortened(text: str, most: int, *, whole_phrases: bool = False) -> tuple[str, str]:
    """Returns the text in at most ``most`` characters, and how it was cut: "", "sentence", "phrase" or "word".

    Whole sentences where one fits, else the longest beginning of the first that ends with a phrase, else with a word
    that may stand last. ``whole_phrases``: never within a phrase, so that the first one may be longer than ``most``.
    """
    if len(text) <= most:
        return text, ""
    kept, parts = "", sentences(text)
    for part in parts:
        if len(longer := f"{kept} {part}".strip()) > most:
            break
        kept = longer
    if kept:
        return kept, "sentence"
    ends = phrase_ends(parts[0])[:-1]
    if fitting := [end for end in ends if end <= most]:
        return parts[0][: fitting[-1]], "phrase"
    if whole_phrases:
        return parts[0][: ends[0]] if ends else parts[0], "phrase"
    words = parts[0][: most + 1].split()[:-1]
    while len(words) > 1 and words[-1].lower().strip(",;:-") in FUNCTION_WORDS:
        words.pop()
    return " ".join(words).rstrip(",;:- ") or parts[0][:most], "word"


@dataclass(frozen=True)
class AltText:
    """One short text of a picture, of at most ``characters``; ``long`` keeps the whole caption where it says more."""

    characters: int = CHARACTERS
    long: bool = False

    def edited(self, captions: Mapping[str, str]) -> dict[str, Edited]:
        """Returns the alt text of each caption, with what a person should look at."""
        return {key: self._edited(caption) for key, caption in captions.items()}

    def _edited(self, caption: str) -> Edited:
        if why := unusable(caption):
            return Edited("", (("no text", why),))
        whole, opening = without_openings(caption)
        doubts = [("opening", f"“{opening}” was left out")] if opening else []
        text, cut = shortened(whole, self.characters)
        if cut in ("phrase", "word"):
            doubts.append(("shortened", f"after a {cut}, before “{whole[len(text) :].strip()}”"))
        return Edited(text, tuple(doubts), whole if self.long and text != whole else "")


@dataclass(frozen=True)
class WordShare:
    """In how many captions a word stands, in its most frequent form, and what share of all they are.

    ``key``: what its forms are counted by (`word_key`).
    """

    key: str
    word: str
    count: int
    share: float
    left_out: bool


@dataclass(frozen=True)
class LoraCaptions:
    """Captions for a generator that learns ``trigger`` for what the pictures of a set have in common.

    Words of more than the share ``common`` of the captions are left out, the trigger stands in front. ``keep`` and
    ``avoid``: words that always stay, and never; ``include``: words and phrases that stay, and are added at the end of
    captions that lack them. ``prefix`` and ``suffix`` stand around all. ``lengths``: the shares of
    short, medium and long captions (a third, two thirds and the whole, to the end of a phrase), drawn by ``seed`` and
    the picture's id; None: all whole.
    """

    trigger: str
    common: float = COMMON
    keep: frozenset[str] = frozenset()
    avoid: frozenset[str] = frozenset()
    prefix: str = ""
    suffix: str = ""
    lengths: tuple[float, float, float] | None = None
    seed: int = 0
    include: tuple[str, ...] = ()

    @property
    def kept(self) -> frozenset[str]:
        """Returns the words that are never left out."""
        return self.keep | {word for phrase in self.include for word in phrase.lower().split()}

    def evidence(self, captions: Mapping[str, str]) -> list[WordShare]:
        """Returns the content words of the captions, the most frequent first, and which of them are left out."""
        usable = [without_openings(text)[0] for text in captions.values() if not unusable(text)]
        count, forms = Counter[str](), Counter[tuple[str, str]]()
        for text in usable:
            found = [word for word in content_words(text) if word.kind != "relation"]
            count.update({word_key(text, word) for word in found})
            forms.update((word_key(text, word), text[word.start : word.end].lower()) for word in found)
        pictures = len({key.partition("\n")[0] for key, text in captions.items() if not unusable(text)})
        form: dict[str, str] = {}
        for (key, word), _ in forms.most_common():
            form.setdefault(key, word)
        return [
            WordShare(
                key,
                form[key],
                times,
                times / len(usable),
                self._is_left_out({key, form[key]}, times, len(usable), pictures),
            )
            for key, times in sorted(count.items(), key=lambda pair: (-pair[1], pair[0]))
        ]

    def _is_left_out(self, names: set[str], times: int, captions: int, pictures: int) -> bool:
        if names & self.kept:
            return False
        return bool(names & self.avoid) or (pictures >= LEAST and times > self.common * captions)

    def edited(self, captions: Mapping[str, str]) -> dict[str, Edited]:
        """Returns the text of each caption, by what all captions have in common.

        Of several captions of a picture, the second and further keys are the first, a line break and a number.
        """
        out = {one.key for one in self.evidence(captions) if one.left_out}
        return {key: self._edited(key, caption, out) for key, caption in captions.items()}

    def _edited(self, key: str, caption: str, out: set[str]) -> Edited:
        if why := unusable(caption):
            return Edited("", (("no text", why),))
        text = without_words(without_openings(caption)[0], out, self.trigger)
        if self.lengths is not None:
            part = RandomStream("length-mix", self.seed, key).weighted_choice(LENGTHS, self.lengths)
            text = shortened(text, int(part * len(text)), whole_phrases=True)[0]
        if not re.match(rf"{re.escape(self.trigger)}(?!\w)", text):
            first, _, rest = text.partition(" ")
            text = f"{first.lower() if first.lower() in FUNCTION_WORDS else first} {rest}".strip()
            text = f"{self.trigger}, {text}" if text else self.trigger
        text = f"{self.prefix} {text}".strip()
        for phrase in self.include:
            if not re.search(rf"(?<!\w){re.escape(phrase)}(?!\w)", text, re.IGNORECASE):
                text = f"{text.rstrip('. ')}, {phrase}"
        if self.suffix:
            text = text.rstrip(". ") + ("" if re.match(r"[^\w\s]", self.suffix) else " ") + self.suffix
        return Edited(text)


# Files.


def written_file(out: Path) -> Path:
    """Beside the texts for a purpose: the captions that they were made of."""
    return out.with_name(out.name + ".written.jsonl")


def read_written(path: Path) -> dict[str, list[str]]:
    """Returns the captions that a captioner wrote by id; raises `UsageError` for any other file."""
    try:
        values = [parse_json(line) for line in path.read_text(encoding="utf-8").splitlines()]
        return {
            str(value["id"]): [str(text) for text in value.get("captions") or [value["caption"]]] for value in values
        }
    except FileNotFoundError:
        return {}
    except (OSError, ValueError, KeyError, TypeError):
        raise UsageError(f"{path}: not captions as this command writes them; type --overwrite") from None


def several(edited: Mapping[str, Edited]) -> dict[str, Edited]:
    """Returns one text of each picture, its different ones a line each; for keys see `LoraCaptions.edited`."""
    found: dict[str, Edited] = {}
    for key, one in edited.items():
        first = found.setdefault(key.partition("\n")[0], one)
        texts = dict.fromkeys(text for text in (*first.text.split("\n"), one.text) if text)
        doubts = () if texts and not first.text else first.doubts
        found[key.partition("\n")[0]] = replace(first, text="\n".join(texts), doubts=doubts)
    return found


@dataclass
class OwnFiles:
    """The files that earlier runs wrote, by the hashes of their texts: a file that a person changed is not replaced."""

    path: Path
    hashes: dict[str, list[str]] = field(default_factory=dict)

    @classmethod
    def open(cls, out: Path) -> OwnFiles:
        """Returns those of earlier runs into ``out``."""
        path = out.with_name(out.name + ".files.json")
        try:
            found = parse_json(path.read_text(encoding="utf-8"))
            return cls(path, {str(key): [str(one) for one in value] for key, value in found.items()})
        except FileNotFoundError:
            return cls(path)
        except OSError as error:
            raise TellapartError(f"{path}: cannot be read ({error.strerror or error}), and it says which texts "
                                 "are this command's; make it readable") from None  # fmt: skip
        except (ValueError, AttributeError, TypeError):
            raise UsageError(f"{path}: is damaged, and it says which texts are this command's; restore it, or move it "
                             "away and type --overwrite to replace texts of any origin") from None  # fmt: skip

    def is_own(self, path: Path, text: str) -> bool:
        """Returns whether an earlier run wrote this text there."""
        return _digest(text) in self.hashes.get(self._name(path), ())

    def wrote_row(self, key: str, text: str) -> bool:
        """Returns whether an earlier run wrote this text of a picture into the file of all texts."""
        return _digest(text) in self.hashes.get(f"#{key}", ())

    def record(self, texts: Mapping[Path, str], rows: Mapping[str, str] | None = None) -> None:
        """Writes down what is to be written, before it is: after a kill the files are still known.

        rows: by a picture's id what the file of all texts says of it.
        """
        named = {self._name(path): text for path, text in texts.items()}
        for name, text in (named | {f"#{key}": text for key, text in (rows or {}).items()}).items():
            known = self.hashes.get(name, [])
            self.hashes[name] = [*[one for one in known[-1:] if one != _digest(text)], _digest(text)]
        replace_text(self.path, json.dumps(self.hashes, indent=1, sort_keys=True) + "\n")

    def _name(self, path: Path) -> str:
        return Path(os.path.relpath(path, self.path.parent)).as_posix()


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:24]


def refuse_foreign(out: Path, own: OwnFiles, overwrite: bool) -> None:
    """Raises `UsageError` where ``out`` exists and is not of this command; one with pictures is not looked at."""
    if out.suffix.lower() in PACKED and out.exists() and not overwrite:
        raise UsageError(f"{out}: is there already; type --overwrite, or name another file")
    if out.exists() and not overwrite and not own.is_own(out, out.read_bytes().decode("utf-8", "replace")):
        raise UsageError(f"{out}: was not written by this command, or changed since; type --overwrite, or move it away")


def with_edits(out: Path, edited: Mapping[str, Edited], own: OwnFiles) -> tuple[dict[str, Edited], set[str]]:
    """Returns the texts with those that a person changed in ``out`` since, and the ids of these.

    Raises `UsageError` for a file that no earlier run wrote, and for lines that cannot be read.
    """
    if not out.exists():
        return dict(edited), set()
    if not own.hashes:
        raise UsageError(f"{out}: was not written by this command; type --overwrite, or move it away")
    text, there, changed = out.read_bytes().decode("utf-8-sig", "replace"), dict(edited), set[str]()
    try:
        if out.suffix.lower() == ".csv":
            rows: list[dict[str, Any]] = list(csv.DictReader(io.StringIO(text, newline="")))
        else:
            rows = [parse_json(line) for line in text.split("\n") if line.strip()]
        for row in rows:
            key, said = str(row["id"]), " ".join(str(row["caption"]).split())
            accepted = row.get("accepted") in (True, "True")
            if accepted or (key in edited and (said != edited[key].text and not own.wrote_row(key, said))):
                long = " ".join(str(row.get("long") or "").split())
                there[key] = Edited(said, long=long, accepted=accepted)
                changed.add(key)
    except (ValueError, KeyError, TypeError, csv.Error) as error:
        raise UsageError(
            f"{out}: a line is not as this command writes it ({error}); mend it, or type --overwrite"
        ) from None
    return there, changed


def write_lines(
    out: Path, items: Sequence[Item], edited: Mapping[str, Edited], own: OwnFiles, changed: Set[str] = frozenset()
) -> int:
    """Writes the texts into one file, in the order of the items; returns how many.

    ``.jsonl`` or ``.csv``; ``.parquet`` with the pictures, as Hugging Face has them; ``.tar``, a WebDataset.

    A file that is called as Hugging Face's lists are has ``file_name`` and ``text``. Pictures without a text have no
    line. ``changed``: ids of texts that are a person's.
    """
    rows = [(item, edited[item.id]) for item in items if item.id in edited and edited[item.id].text]
    if (packed := PACKED.get(out.suffix.lower())) is not None:
        with write_errors(out, "name another file with -o", "free some space and run the same command again"):
            out.parent.mkdir(parents=True, exist_ok=True)
            replace_file(out, lambda path: packed(path, rows))
        return len(rows)
    text = (
        _table(out, rows)
        if out.suffix.lower() == ".csv"
        else "".join(json.dumps(_record(out, item, one), ensure_ascii=False) + "\n" for item, one in rows)
    )
    own.record({out: text}, {item.id: one.text for item, one in rows if item.id not in changed})
    with write_errors(out, "name another file with -o", "free some space and run the same command again"):
        replace_text(out, text)
    return len(rows)


def json_lines(items: Sequence[Item], edited: Mapping[str, Edited]) -> str:
    """Returns the texts as lines of JSON."""
    rows = [(item, edited[item.id]) for item in items if item.id in edited and edited[item.id].text]
    return "".join(json_text(_record(Path(), item, one)) + "\n" for item, one in rows)


def _record(out: Path, item: Item, one: Edited) -> dict[str, Any]:
    texts = one.text.split("\n")
    if out.name in METADATA_FILES:  # of several texts diffusers takes one at random
        return {"file_name": name_in(item, out.parent), "text": texts[0] if len(texts) == 1 else texts}
    said: dict[str, Any] = {"caption": texts[0]} if len(texts) == 1 else {"captions": texts}
    more = {"long": one.long} if one.long else {}
    return {"id": item.id, **said, **more} | ({"accepted": True} if one.accepted else {})


def _table(out: Path, rows: Iterable[tuple[Item, Edited]]) -> str:
    text, names = io.StringIO(), ("file_name", "text") if out.name in METADATA_FILES else ("id", "caption", "long")
    if any(one.accepted for _, one in rows):
        names = (*names, "accepted")
    records = [_record(out, item, one) for item, one in rows]
    writer = csv.writer(text, lineterminator="\n")
    writer.writerows([names, *([record.get(name, "") for name in names] for record in records)])
    return text.getvalue()


def _tar(path: Path, rows: Sequence[tuple[Item, Edited]]) -> None:
    with path.open("wb") as file:
        for number, (item, one) in enumerate(rows):
            write_sample(file, number, item, one.text.split("\n"))
        end_tar(file)


def _parquet(path: Path, rows: Sequence[tuple[Item, Edited]]) -> None:
    try:
        import pyarrow
        import pyarrow.parquet
    except ModuleNotFoundError:
        raise MissingExtra("parquet", "writing Parquet") from None
    lists = any("\n" in one.text for _, one in rows)
    text, feature = pyarrow.string(), {"dtype": "string", "_type": "Value"}
    image = pyarrow.struct([("bytes", pyarrow.binary()), ("path", pyarrow.string())])
    texts_of = {"feature": feature, "_type": "List"} if lists else feature
    features = {"id": feature, "image": {"_type": "Image"}, "text": texts_of}
    schema = pyarrow.schema(
        [("id", text), ("image", image), ("text", pyarrow.list_(text) if lists else text)],
        {"huggingface": json.dumps({"info": {"features": features}})},
    )
    with pyarrow.parquet.ParquetWriter(path, schema) as writer:
        for start in range(0, len(rows), PARQUET_ROWS):
            some = rows[start : start + PARQUET_ROWS]
            images = [{"bytes": bytes_of(item)[0], "path": item.id} for item, _ in some]
            texts = [one.text.split("\n") if lists else one.text for _, one in some]
            writer.write_table(
                pyarrow.table({"id": [item.id for item, _ in some], "image": images, "text": texts}, schema)
            )


PARQUET_ROWS = 64  # pictures in memory at once
PACKED: Mapping[str, Callable[[Path, Sequence[tuple[Item, Edited]]], None]] = {".parquet": _parquet, ".tar": _tar}


def common_folder(items: Sequence[Item]) -> Path:
    """Returns the folder in or below which all pictures lie. Raises `UsageError` for pictures that are not files."""
    paths = [item.picture.path.absolute() for item in items if isinstance(item.picture, FilePicture)]
    if len(paths) < len(items) or not paths:
        name = next((item.picture.name for item in items if not isinstance(item.picture, FilePicture)), "nothing")
        raise UsageError(f"{name} is not a file, so no .txt can lie beside it; type -o captions.jsonl")
    return Path(os.path.commonpath([path.parent for path in paths]))


def write_beside(
    items: Sequence[Item], edited: Mapping[str, Edited], own: OwnFiles, overwrite: bool, suffix: str = ".txt"
) -> tuple[dict[str, Edited], int]:
    """Writes a text file beside each picture that has a text; returns the texts that are there now, and how many
    stayed.

    A file that this command did not write, or that a person changed since, stays unless ``overwrite`` is set, and its
    text is the picture's.
    """
    there, todo, stayed = dict(edited), dict[Path, str](), 0
    for key, path in files_beside(items, suffix).items():
        if key not in edited or not edited[key].text:
            continue
        text = edited[key].text + "\n"
        if path.exists() and not overwrite:
            now = path.read_bytes().decode("utf-8", "replace")
            if now != text and not own.is_own(path, now):
                lines = now.split("\n") if "\n" in edited[key].text else [now]
                said = "\n".join(" ".join(line.split()) for line in lines if line.strip())
                there[key], stayed = replace(edited[key], text=said), stayed + 1
                continue
        todo[path] = text
    own.record(todo)
    for path, text in todo.items():
        with write_errors(path, "make the folder writable", "free some space and run the same command again"):
            replace_text(path, text, sync=False)
    return there, stayed


@dataclass(frozen=True)
class Embedded:
    """Counts how many XMP sidecars and copies were written; ``stayed``: pictures whose own alt text was not
    replaced.
    """

    sidecars: int = 0
    copies: int = 0
    stayed: tuple[str, ...] = ()


def _packets(picture: Path) -> tuple[str, str]:
    """Returns the XMP inside a picture, and that of its sidecar. Raises `UsageError` for what is no XMP."""
    inside = xmp.packet_in(picture.read_bytes(), str(picture))
    sidecars = [picture.with_suffix(".xmp"), picture.with_name(f"{picture.name}.xmp")]
    found = [text for path in sidecars if xmp.texts_of(text := xmp.read_sidecar(path), str(path))]
    xmp.texts_of(inside, str(picture))
    return inside, found[0] if found else xmp.read_sidecar(sidecars[0])


def _takes_packet(picture: Path) -> bool:
    with picture.open("rb") as file:
        return xmp.takes_packet(file.read(8))


def _of(name: str, target: Path) -> Path:
    """Returns the name under which `OwnFiles` knows a text of a file."""
    return target if name == xmp.ALT else target.with_name(f"{target.name}#long")


def _target(picture: Path, root: Path, folder: Path | None) -> Path:
    """Returns the file that an alt text goes into: a copy of the picture below ``folder``, else a sidecar."""
    place = picture if folder is None else folder / os.path.relpath(picture.absolute(), root)
    return place if folder is not None and _takes_packet(picture) else place.with_suffix(".xmp")


def check_embed(items: Sequence[Item], folder: Path | None) -> None:
    """Raises `UsageError` for what `embed` could not write, and for XMP that it could not read; before slow work.

    ``folder``: of copies. None of them may be a picture of these, or be read as one by the next run, or take the place
    of a file that this program did not write.
    """
    files_beside(items, ".xmp")
    root = common_folder(items)
    files = (item.picture.path for item in items if isinstance(item.picture, FilePicture))
    pictures = [path for path in files if path.exists()]
    sources = {(status.st_dev, status.st_ino): path for path in pictures if (status := path.stat())}
    for picture in pictures:
        with contextlib.suppress(PermissionError):  # it is not captioned, either
            _packets(picture)
            place = None if folder is None else folder / os.path.relpath(picture.absolute(), root)
            for target in {place, _target(picture, root, folder)} if place is not None else ():
                _check_copy(target, sources)


def _check_copy(target: Path, sources: Mapping[tuple[int, int], Path]) -> None:
    """Raises `UsageError` for a copy that must not be written. ``sources``: pictures by device and inode."""
    if target.exists() and (source := sources.get((target.stat().st_dev, target.stat().st_ino))) is not None:
        raise UsageError(f"{target}: is the picture {source}, which stays as it is; name another folder with --copies")
    if (typed := input_folder(target.parent)) is not None:
        raise UsageError(f"--copies {target.parent}: lies in {typed}, so the next run would take the copies for "
                         "pictures; name a folder elsewhere")  # fmt: skip
    check_output(target)


def embed(
    items: Sequence[Item], edited: Mapping[str, Edited], own: OwnFiles, overwrite: bool, folder: Path | None = None
) -> Embedded:
    """Writes the texts as IPTC's alt text: into ``PICTURE.xmp`` beside each picture, or into copies in ``folder``.

    A copy of a JPEG or PNG has them inside, one of another format has a sidecar. All else that a sidecar or a picture
    says stays; so does an alt text in either, in any language, that this command did not write, unless ``overwrite``
    is set. Pictures themselves are never changed. Raises `UsageError`, see `check_embed`.
    """
    todo: list[tuple[Path, Path, str]] = []
    stayed: list[str] = []
    texts: dict[Path, str] = {}
    check_embed(items, folder)
    root = common_folder(items)
    for item in items:
        one = edited.get(item.id, Edited(""))
        if not one.text or not isinstance(item.picture, FilePicture):
            continue
        picture = item.picture.path
        target, (inside, beside) = _target(picture, root, folder), _packets(picture)
        packet = beside if target.suffix == ".xmp" else inside
        said = xmp.texts_of(beside, str(picture)) | xmp.texts_of(inside, str(picture))
        theirs = {name: text for name, text in said.items()
                  if not (overwrite or own.is_own(_of(name, picture.with_suffix(".xmp")), text))}  # fmt: skip
        ours = {name: text for name, text in ((xmp.ALT, one.text), (xmp.LONG, one.long)) if text}
        if theirs.get(xmp.ALT, one.text) != one.text:
            stayed.append(item.id)
            if folder is None:
                continue
            ours = {}
        there = xmp.texts_of(packet, str(target))
        new = {name: text for name, text in (ours | theirs).items() if there.get(name) != text}
        packet = xmp.with_texts(packet, new, str(target)) if new or not packet else packet
        if target.suffix != ".xmp" and len(packet.encode()) > xmp.MOST:
            raise UsageError(f"{picture}: has no room for its text in XMP ({xmp.MOST:,} bytes); leave the picture out")
        texts |= {_of(name, target): text for name, text in ours.items() if name not in theirs}
        todo.append((picture, target, packet))
    own.record(texts)
    for picture, target, packet in todo:
        _embed(picture, target, packet, folder)
    sidecars = sum(target.suffix == ".xmp" for _, target, _ in todo)
    return Embedded(sidecars, len(todo) if folder is not None else 0, tuple(stayed))


def _embed(picture: Path, target: Path, packet: str, folder: Path | None) -> None:
    if folder is None:
        write_output(target, packet, own=True)
        return
    if target.suffix == ".xmp":
        write_output(target, packet)
        write_output(target.with_suffix(picture.suffix), lambda new: shutil.copy(picture, new))
        return
    data = xmp.with_packet(picture.read_bytes(), packet, str(picture))

    def write(new: Path) -> None:
        new.write_bytes(data)
        shutil.copymode(picture, new)

    write_output(target, write)


def review_lines(
    items: Sequence[Item],
    written: Mapping[str, str],
    edited: Mapping[str, Edited],
    found: Mapping[str, Sequence[tuple[str, str]]],
) -> list[dict[str, Any]]:
    """Returns a record of each picture that a person should look at, those with the most doubts first.

    found: by id what was found beside `Edited.doubts`, as (kind, detail).
    """
    records = []
    for item in items:
        one = edited.get(item.id, Edited("", (("no text", "no caption"),)))
        doubts = [*one.doubts, *found.get(item.id, ())]
        if doubts and not one.accepted:
            records.append(
                {"id": item.id, "caption": one.text, "written": written.get(item.id, "")}
                | {"doubts": [{"kind": kind, "detail": detail} for kind, detail in doubts]}
            )
    return sorted(records, key=lambda record: -len(record["doubts"]))


def write_review_page(
    path: Path,
    out: Path,
    items: Sequence[Item],
    edited: Mapping[str, Edited],
    records: Sequence[Mapping[str, Any]],
    characters: int,
) -> None:
    """Writes one HTML page on which a person accepts or edits texts by keyboard, and which saves ``out`` anew.

    records: of `review_lines`. Pictures are in the page, with sides of at most `PAGE_SIDE` pixels.
    """
    from tellapart.report.page import template

    asked = {str(record["id"]) for record in records}
    rows = [
        _record(Path(), item, one) if one.text else {"id": item.id, "caption": ""}
        for item in items
        if (one := edited.get(item.id, Edited(""))).text or item.id in asked
    ]
    shown = {item.id: _thumbnail(item) for item in items if item.id in asked}
    content = {"file": out.name, "characters": characters, "rows": rows, "doubtful": records, "pictures": shown}
    here = Path(__file__).parent
    script = (here / "alt_text.js").read_text(encoding="utf-8")
    page = template(here / "alt_text.html").render(
        content=json.dumps(content).replace("<", "\\u003c"),
        script=script,
        script_hash=base64.b64encode(hashlib.sha256(script.encode()).digest()).decode(),
        count=len(records),
        file=out.name,
    )
    write_output(path, page)


PAGE_SIDE = 640


def _thumbnail(item: Item) -> str:
    """The address of a picture inside the page; empty where it cannot be read."""
    buffer = io.BytesIO()
    try:
        image = item.picture.image()
    except PictureError:
        return ""
    image.thumbnail((PAGE_SIDE, PAGE_SIDE), Image.Resampling.LANCZOS)
    image.save(buffer, "JPEG", quality=80)
    return f"data:image/jpeg;base64,{base64.b64encode(buffer.getvalue()).decode()}"
