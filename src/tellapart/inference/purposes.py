"""Captions for a purpose: alt text, and captions that fine-tune an image generator on a folder of pictures.

Both are made of the captions that a captioner wrote, which stay in the log (`tellapart.captions.writers.LogWriter`):
other settings make other texts of the same captions. Texts that a person wrote or edited stay. Words are left out by
rules of English grammar (`tellapart.language.phrases`); nothing is added but the trigger, the prefix and the suffix.
"""

from __future__ import annotations

import contextlib
import csv
import io
import json
import os
import re
import shutil
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence, Set
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from tellapart.boost.stages import unusable
from tellapart.captions.lines import bytes_of, end_tar, name_in, write_sample
from tellapart.captions.provenance import OwnFiles, Provenance, TextRow, back_up, renamed_ids
from tellapart.captions.writers import (
    SHOWN,
    Replace,
    check_beside,
    files_beside,
    log_of,
    text_of_person,
    write_own,
)
from tellapart.data import xmp
from tellapart.data.caption_files import METADATA_FILES
from tellapart.data.open import expanded
from tellapart.data.pictures import FilePicture
from tellapart.data.specification import parse
from tellapart.data.text_files import decode_text, read_text
from tellapart.errors import MissingExtra, UsageError
from tellapart.language.answers import without_opening
from tellapart.language.english import FUNCTION_WORDS
from tellapart.language.phrases import phrase_ends, without_words, word_key
from tellapart.language.words import content_words, sentences
from tellapart.types import Item
from tellapart.utils.files import (
    check_output,
    input_folder,
    replace_file,
    replace_text,
    sha256,
    writable_file,
    write_errors,
    write_output,
)
from tellapart.utils.messages import json_text, parse_json, say
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
            if not _has(text, phrase):
                text = f"{text.rstrip('. ')}, {phrase}"
        if self.suffix:
            text = text.rstrip(". ") + ("" if re.match(r"[^\w\s]", self.suffix) else " ") + self.suffix
        return Edited(text)


# Files.


def several(edited: Mapping[str, Edited]) -> dict[str, Edited]:
    """Returns one text of each picture, its different ones a line each; for keys see `LoraCaptions.edited`."""
    found: dict[str, Edited] = {}
    for key, one in edited.items():
        first = found.setdefault(key.partition("\n")[0], one)
        texts = dict.fromkeys(text for text in (*first.text.split("\n"), one.text) if text)
        doubts = () if texts and not first.text else first.doubts
        found[key.partition("\n")[0]] = replace(first, text="\n".join(texts), doubts=doubts)
    return found


def check_files(
    items: Sequence[Item],
    out: Path,
    own: OwnFiles,
    replaces: Replace,
    beside: str | None,
    mixed: bool,
    copies: Sequence[Path | None],
) -> None:
    """Raises one `UsageError` that names all files that cannot be read or written.

    Args:
        beside: the suffix of text files beside the pictures.
        mixed: whether ``out`` may have rows of a person.
        copies: the folders of `embed`.
    """
    problems: list[str] = []

    def attempt(check: Callable[[], object]) -> None:
        try:
            check()
        except UsageError as error:
            problems.append(str(error))

    def rows_of_pictures() -> None:
        if other := sorted(people_rows(out, items).keys() - {item.id for item in items}):
            raise UsageError(
                f"{out}: has {len(other):,} texts of a person, and they are not of these pictures, such as "
                f"'{other[0]}'; name another file with -o"
            )

    if beside is not None:
        attempt(lambda: check_beside(items, beside))
    for folder in copies:
        attempt(lambda folder=folder: check_embed(items, folder))  # type: ignore[misc]
    for item in items:
        if isinstance(item.picture, FilePicture):
            path = item.picture.path
            if beside is not None:
                attempt(lambda path=path: _text_of(path.with_suffix(beside)))  # type: ignore[misc]
        if out.name in METADATA_FILES:
            attempt(lambda item=item: name_in(item, out.parent))  # type: ignore[misc]
    attempt(lambda: writable_file(out))
    if out.is_file() and not (mixed and replaces.edited):
        attempt(rows_of_pictures if mixed else lambda: refuse_foreign(out, own, replaces))
    if problems:
        more = f"; and {len(problems) - SHOWN:,} more" if len(problems) > SHOWN else ""
        raise UsageError("; ".join(problems[:SHOWN]) + more)


def _text_of(path: Path) -> str:
    """The text of a file; "" if there is none. Raises `UsageError`, see `read_text`."""
    return read_text(path) if path.exists() else ""


def refuse_foreign(out: Path, own: OwnFiles, replaces: Replace) -> None:
    """Raises `UsageError` if the file ``out`` is a person's, or has pictures and is there already."""
    if out.suffix.lower() in PACKED:
        if not own.is_own(out, sha256(out)):
            raise UsageError(f"{out}: was not written by this command, or changed since; move it away")
        if not replaces.own:
            raise UsageError(f"{out}: is there already; type --overwrite, or name another file")
    elif text_of_person(out, own) is not None and not replaces.edited:
        raise UsageError(
            f"{out}: was not written by this command, or changed since; move it away, or type --replace-edited (a "
            "backup is kept)"
        )


def people_rows(out: Path, items: Sequence[Item]) -> dict[str, Edited]:
    """Returns the texts in ``out`` that a person wrote, changed or accepted, by the ids of the items.

    An empty text is a picture's that needs none, such as an ornament. Raises `UsageError` for a file that no earlier
    run wrote, and for lines that cannot be read.
    """
    known, found = Provenance.open(out), dict[str, Edited]()
    if not out.exists():
        return found
    if not known.rows:
        raise UsageError(
            f"{out}: was not written by this command; move it away, or type --replace-edited (a backup is kept)"
        )
    renamed = renamed_ids(items, Provenance.open(log_of(out)).rows)
    try:
        text = decode_text(out.read_bytes())
        if out.suffix.lower() == ".csv":
            rows: list[dict[str, Any]] = list(csv.DictReader(io.StringIO(text, newline="")))
        else:
            rows = [parse_json(line) for line in text.split("\n") if line.strip()]
        for row in rows:
            key, said = str(row["id"]), " ".join(str(row["caption"] or "").split())
            accepted = row.get("accepted") in (True, "True")
            if accepted or not known.wrote(key, said):
                long = " ".join(str(row.get("long") or "").split())
                found[renamed.get(key, key)] = Edited(said, long=long, accepted=accepted or not said)
    except (ValueError, KeyError, TypeError, csv.Error) as error:
        raise UsageError(
            f"{out}: a line is not as this command writes it ({error}); mend it, or type --replace-edited (a backup is "
            "kept)"
        ) from None
    return found


def with_edits(
    out: Path, edited: Mapping[str, Edited], replaces: Replace, items: Sequence[Item]
) -> tuple[dict[str, Edited], set[str]]:
    """Returns the texts with those that a person changed in ``out`` since, and the ids of these.

    With ``replaces.edited`` the whole file is backed up, and none of them stays.
    """
    if replaces.edited:
        if out.exists():
            backup = back_up(out, {"": out.read_bytes().decode("utf-8", "surrogateescape")})
            say(f"{out} is written anew; a backup is in {backup}")
        return dict(edited), set()
    people = people_rows(out, items)
    changed = {key for key, one in people.items() if one.accepted or key not in edited or one.text != edited[key].text}
    return {**edited, **{key: people[key] for key in changed}}, changed


def write_lines(
    out: Path, items: Sequence[Item], edited: Mapping[str, Edited], own: OwnFiles, changed: Set[str] = frozenset()
) -> int:
    """Writes the texts into one file, in the order of the items; returns how many.

    ``.jsonl`` or ``.csv``; ``.parquet`` with the pictures, as Hugging Face has them; ``.tar``, a WebDataset.

    A file that is called as Hugging Face's lists are has ``file_name`` and ``text``. Pictures without a text have no
    line. ``changed``: ids of texts that are a person's.
    """
    rows = _with_text(items, edited)
    if (packed := PACKED.get(out.suffix.lower())) is not None:

        def write(path: Path) -> None:
            packed(path, rows)
            own.record({out: sha256(path)})

        with write_errors(out, "name another file with -o", "free some space and run the same command again"):
            out.parent.mkdir(parents=True, exist_ok=True)
            replace_file(out, write)
        return len(rows)
    text = (
        _table(out, rows)
        if out.suffix.lower() == ".csv"
        else "".join(json.dumps(text_record(out, item, one), ensure_ascii=False) + "\n" for item, one in rows)
    )
    with write_errors(out, "name another file with -o", "free some space and run the same command again"):
        if out.name in METADATA_FILES and (before := text_of_person(out, own)) not in (None, text):
            for backup in own.back_up({out: str(before)}):
                say(f"{out} is written anew; a backup is in {backup}")
        own.record({out: text})
        Provenance.open(out).record({item.id: TextRow.new(one.text) for item, one in rows if item.id not in changed})
        replace_text(out, text)
    return len(rows)


def _with_text(items: Sequence[Item], edited: Mapping[str, Edited]) -> list[tuple[Item, Edited]]:
    """The items with a line in the result: those with a text, and those that a person gave an empty one."""
    found = ((item, edited.get(item.id, Edited(""))) for item in items)
    return [(item, one) for item, one in found if one.text or one.accepted]


def json_lines(items: Sequence[Item], edited: Mapping[str, Edited]) -> str:
    """Returns the texts as lines of JSON."""
    return "".join(json_text(text_record(Path(), item, one)) + "\n" for item, one in _with_text(items, edited))


def text_record(out: Path, item: Item, one: Edited) -> dict[str, Any]:
    """Returns the record of a picture's text in the file ``out``."""
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
    records = [text_record(out, item, one) for item, one in rows]
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


def refuse_scattered(items: Sequence[Item], typed: Sequence[str]) -> None:
    """Raises `UsageError` if the pictures lie in several folders, and the one above them was not typed."""
    root = common_folder(items).resolve()
    folders = dict.fromkeys(
        item.picture.path.resolve().parent for item in items if isinstance(item.picture, FilePicture)
    )
    named = [path.resolve() for path in (parse(spec)[1] for spec in expanded(typed)) if path.is_dir()]
    if len(folders) > 1 and not any(path == root or path in root.parents for path in named):
        raise UsageError(
            f"the pictures lie in {len(folders):,} folders ({', '.join(str(each) for each in list(folders)[:3])}), and "
            f"metadata.jsonl belongs in one; name {root}, type the command once for each folder, or name a file with -o"
        )


def write_beside(
    items: Sequence[Item], edited: Mapping[str, Edited], own: OwnFiles, replaces: Replace, suffix: str, trigger: str
) -> tuple[dict[str, Edited], list[str]]:
    """Writes a text file beside each picture that has a text; returns the texts that are there now, and what is to be
    said of those of people.

    A file that this command did not write, or that a person changed since, stays unless ``replaces.edited``, and its
    text is the picture's.
    """
    targets = files_beside(items, suffix)
    stay = write_own({targets[key]: one.text + "\n" for key, one in edited.items() if one.text}, own, replaces.edited)
    there, several, bare = dict(edited), list[str](), list[str]()
    for key, path in targets.items() if not replaces.edited else ():
        if path in stay or ((key not in edited or not edited[key].text) and text_of_person(path, own) is not None):
            lines = [" ".join(line.split()) for line in _text_of(path).splitlines() if line.strip()]
            listed = key in edited and "\n" in edited[key].text
            text = "\n".join(lines) if listed else _joined_lines(lines)
            there[key] = Edited(text, accepted=True)
            several += [path.name] if len(lines) > 1 and not listed else []
            bare += [path.name] if text and not _has(text, trigger) else []
    people = [key for key, one in there.items() if one.accepted]
    said = []
    if people:
        said.append(f"{len(people):,} {suffix} files were written or edited by a person: they stay, and their text is "
                    "in the list; --replace-edited replaces them")  # fmt: skip
    if bare:
        said.append(f"{len(bare):,} of these do not have the trigger '{trigger}', so the generator does not learn it "
                    f"from them: {_some(bare)}; add it there")  # fmt: skip
    if several:
        said.append(f"{len(several):,} of these have several lines, of which kohya's scripts read the first: "
                    f"{_some(several)}; join the lines there")  # fmt: skip
    return there, said


def _some(names: Sequence[str]) -> str:
    return ", ".join(names[:SHOWN]) + (", …" if len(names) > SHOWN else "")


def _joined_lines(lines: Sequence[str]) -> str:
    """Lines as one text: a line that ends without a mark gets a stop."""
    ended = [line if line[-1:] in ".!?,;:…" else f"{line}." for line in lines[:-1]]
    return " ".join([*ended, *lines[-1:]])


def _has(text: str, phrase: str) -> bool:
    return re.search(rf"(?<!\w){re.escape(phrase)}(?!\w)", text, re.IGNORECASE) is not None


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
    items: Sequence[Item], edited: Mapping[str, Edited], own: OwnFiles, replace_edited: bool, folder: Path | None = None
) -> Embedded:
    """Writes the texts as IPTC's alt text: into ``PICTURE.xmp`` beside each picture, or into copies in ``folder``.

    A copy of a JPEG or PNG has them inside, one of another format has a sidecar. All else that a sidecar or a picture
    says stays; so does an alt text in either, in any language, that this command did not write, unless
    ``replace_edited`` is set; it is backed up then. An empty text that a person accepted empties the alt text. Pictures
    themselves are never changed. Raises `UsageError`, see `check_embed`.
    """
    todo: list[tuple[Path, Path, str]] = []
    stayed: list[str] = []
    texts, replaced = dict[Path, str](), dict[Path, str]()
    check_embed(items, folder)
    root = common_folder(items)
    for item in items:
        one = edited.get(item.id, Edited(""))
        if not (one.text or one.accepted) or not isinstance(item.picture, FilePicture):
            continue
        picture = item.picture.path
        target, (inside, beside) = _target(picture, root, folder), _packets(picture)
        packet = beside if target.suffix == ".xmp" else inside
        said = xmp.texts_of(beside, str(picture)) | xmp.texts_of(inside, str(picture))
        ours = {name: text for name, text in ((xmp.ALT, one.text), (xmp.LONG, one.long)) if text or one.accepted}
        theirs = {name: text for name, text in said.items()
                  if not own.is_own(_of(name, picture.with_suffix(".xmp")), text)}  # fmt: skip
        if replace_edited:
            replaced |= {_of(name, picture.with_suffix(".xmp")): text for name, text in theirs.items()
                         if name in ours and text != ours[name]}  # fmt: skip
            theirs = {name: text for name, text in theirs.items() if name not in ours}
        if not one.text and not said and folder is None:
            continue
        if theirs.get(xmp.ALT, one.text) != one.text:
            stayed.append(item.id)
            if folder is None:
                continue
            ours = {}
        there = xmp.texts_of(packet, str(target))
        new = {name: text for name, text in (ours | theirs).items() if there.get(name, "") != text}
        packet = xmp.with_texts(packet, new, str(target)) if new or not packet else packet
        if target.suffix != ".xmp" and len(packet.encode()) > xmp.MOST:
            raise UsageError(f"{picture}: has no room for its text in XMP ({xmp.MOST:,} bytes); leave the picture out")
        texts |= {_of(name, target): text for name, text in ours.items() if name not in theirs}
        todo.append((picture, target, packet))
    if folder is None:
        own.back_up(replaced)
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
