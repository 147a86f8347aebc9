"""``tellapart lora``: removes words that most captions share, and writes training captions."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Sequence
from pathlib import Path

from tellapart.captions.journal import new_change
from tellapart.captions.own_files import OwnFiles
from tellapart.captions.paths_beside import common_folder
from tellapart.captions.replacement import Replace
from tellapart.data import Dataset
from tellapart.data.open import expanded
from tellapart.data.pictures import FilePicture
from tellapart.data.specification import parse
from tellapart.errors import UsageError
from tellapart.purposes.edited import MAX_LISTED, several, without_text
from tellapart.purposes.findings import findings
from tellapart.purposes.generic_words import words_that_fit_all
from tellapart.purposes.list_file import write_lines
from tellapart.purposes.lora import LEAST, LoraCaptions, WordShare
from tellapart.purposes.options import LoraOptions
from tellapart.purposes.output_checks import check_files
from tellapart.purposes.packed import PACKED
from tellapart.purposes.source import log_captions, read_source
from tellapart.purposes.training_text_files import write_beside
from tellapart.review.fit_finder import FitFinder
from tellapart.types import Item
from tellapart.utils.comma_lists import comma_list
from tellapart.utils.locks import locked
from tellapart.utils.messages import say


def write_lora(
    dataset: Dataset,
    pictures: Sequence[str],
    options: LoraOptions,
    device: str,
    precision: str,
    show: Callable[[Sequence[WordShare], int], None],
) -> None:
    """Writes a training caption for each picture. A lock prevents other processes from writing to the same files.

    Args:
        pictures: the data, as typed by the user.
        show: prints words with their shares, given the number of captions.

    Raises:
        UsageError: if any file cannot be read or written; raised before anything is captioned.
    """
    maker, items = lora_captions(options), list(dataset)
    out, suffix = destination(options, items, pictures)
    replaces, own = Replace(options.overwrite, options.replace_edited), OwnFiles()
    check_files(items, out, own, replaces, beside=suffix, mixed=False, copies=())
    with contextlib.ExitStack() as stack:
        stack.enter_context(locked(out.parent, wait=False, name=f".{out.name}.lock"))
        source = read_source(options, dataset, out, own, device, precision)
        if out.suffix.lower() == ".csv" and any(len(texts) > 1 for texts in source.by_id.values()):
            raise UsageError(
                f"-o {out}: a CSV file stores one text per picture, but some pictures have "
                "several captions; use -o texts.jsonl"
            )
        captions = source.flat
        single = maker.edited(captions)
        edited = several(single)
        for line in without_text(edited):
            say(line)
        shares = maker.evidence(captions)
        show([one for n, one in enumerate(shares) if one.left_out or n < MAX_LISTED], len(captions))
        if options.scorer is not None:
            finder = FitFinder.open(options.scorer, device, dataset)
            for line in words_that_fit_all(shares, captions, finder, options.scorer):
                say(line)
        if len(edited) < LEAST:
            say(
                f"{len(edited)} captions are too few to determine what the set has in common; only words in --avoid "
                "are removed"
            )
        pairs = [(captions[key], one.text) for key, one in single.items() if one.text]
        for before, after in pairs[: MAX_LISTED if options.dry_run else 3]:
            say(f"{before} → {after}")
        if options.dry_run:
            for line in findings(items, {key: one.text for key, one in edited.items()}, suffix):
                say(line)
            say("no text files were written; run the command again without --dry-run to write them")
            return
        lines: list[str] = []
        if suffix is not None:
            log_captions(items, out, source.by_id)
            edited, lines = write_beside(items, edited, own, replaces, suffix, maker.trigger, source.author)
        count = write_lines(out, items, edited, own, new_change("lora", source.author))
        also = f" and to a {suffix} file beside each picture" if suffix is not None else ""
        say(f"wrote {count:,} texts to {out}{also}")
        for line in (*lines, *findings(items, {key: one.text for key, one in edited.items()}, suffix)):
            say(line)


def destination(options: LoraOptions, items: Sequence[Item], pictures: Sequence[str]) -> tuple[Path, str | None]:
    """Returns the file to write, and the suffix of text files next to the pictures (None: no text files).

    Raises `UsageError` if the file cannot store the texts.
    """
    if options.out == "-":
        raise UsageError(
            "-o -: lora processes all captions together and cannot stream them; remove -o -, or "
            "pass --dry-run to see examples"
        )
    if options.out is None:
        refuse_scattered(items, pictures)
        return common_folder(items) / "metadata.jsonl", f".{(options.extension or 'txt').lstrip('.')}"
    path, packed = Path(options.out), sorted(PACKED)
    if path.suffix.lower() not in (".jsonl", ".csv", *packed):
        raise UsageError(f"-o {path}: expected a .jsonl or .csv file" + "".join(f", or {one}" for one in packed))
    if options.extension is not None:
        raise UsageError(
            f"--extension applies to text files beside the pictures and cannot be combined with -o {path}; remove it"
        )
    return path, None


def lora_captions(options: LoraOptions) -> LoraCaptions:
    """Returns the `LoraCaptions` for the options. Raises `UsageError` for invalid values."""
    if not options.trigger.strip():
        raise UsageError("--trigger is empty; expected the word that the generator should learn")
    if options.seed is not None and options.length_mix is None:
        raise UsageError("--seed requires --length-mix; add it, or remove --seed")
    if options.extension is not None and f".{options.extension.lstrip('.')}" not in (".txt", ".caption"):
        raise UsageError(f"--extension {options.extension}: expected .txt or .caption")
    avoid = _words(options.avoid, "--avoid")
    phrases = (" ".join(phrase.split()) for phrase in comma_list(options.include or ""))
    maker = LoraCaptions(
        " ".join(options.trigger.split()),
        options.common,
        _words(options.keep, "--keep"),
        avoid,
        " ".join((options.prefix or "").split()),
        (options.suffix or "").strip(),
        _shares(options.length_mix),
        options.seed or 0,
        tuple(dict.fromkeys(phrases)),
    )
    if both := sorted(maker.kept & avoid):
        option = "--keep" if both[0] in maker.keep else "--include"
        raise UsageError(f"--avoid {both[0]}: {option} keeps this word; remove it from one of the two")
    return maker


def _words(typed: str | None, option: str) -> frozenset[str]:
    words = frozenset(map(str.lower, comma_list(typed or "")))
    if wrong := next((word for word in sorted(words) if " " in word), None):
        raise UsageError(f"{option} {wrong!r}: expected single words separated by commas, such as hat,red")
    return words


def _shares(typed: str | None) -> tuple[float, float, float] | None:
    if typed is None:
        return None
    try:
        short, medium, long = (float(part) for part in typed.split(","))
    except ValueError:
        short = medium = long = -1.0
    if min(short, medium, long) < 0 or not 0.99 <= short + medium + long <= 1.01:
        raise UsageError(f"--length-mix {typed}: expected three fractions that add up to 1, such as 0.2,0.5,0.3")
    return short, medium, long


def refuse_scattered(items: Sequence[Item], typed: Sequence[str]) -> None:
    """Raises `UsageError` if the pictures are in several folders and the command does not name their common parent."""
    root = common_folder(items).resolve()
    folders = dict.fromkeys(
        item.picture.path.resolve().parent for item in items if isinstance(item.picture, FilePicture)
    )
    named = [path.resolve() for path in (parse(spec)[1] for spec in expanded(typed)) if path.is_dir()]
    if len(folders) > 1 and not any(path == root or path in root.parents for path in named):
        raise UsageError(
            f"the pictures are in {len(folders):,} folders ({', '.join(str(each) for each in list(folders)[:3])}), "
            f"but metadata.jsonl has to be in a single folder; pass {root}, run the command once "
            "per folder, or specify a file with -o"
        )
