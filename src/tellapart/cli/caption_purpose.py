"""``tellapart caption --for PURPOSE``: alt text, and captions for fine-tuning an image generator."""

from __future__ import annotations

import contextlib
import json
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from tellapart.cli.output import show
from tellapart.errors import UsageError, nearest
from tellapart.utils.files import check_output, write_output
from tellapart.utils.messages import say, stdout_errors

if TYPE_CHECKING:
    from tellapart.captioners import Captioner
    from tellapart.captions.provenance import OwnFiles
    from tellapart.captions.writers import Replace
    from tellapart.data import Dataset
    from tellapart.inference.purposes import AltText, Edited, LoraCaptions, WordShare
    from tellapart.types import Item


PANEL = "For a purpose"
ALT_TEXT, LORA = "alt-text", "lora"
OF = {
    ALT_TEXT: ("characters", "long", "review", "embed", "copies"),
    LORA: (
        "trigger",
        "extension",
        "common",
        "keep",
        "avoid",
        "include",
        "prefix",
        "suffix",
        "length_mix",
        "seed",
        "dry_run",
    ),
}
OF_SETS = {"near", "neighbour", "repeated", "template"}  # kinds of damage that say nothing of one alt text
SHOWN = 20  # words of the table, examples below it, and pictures by name


@dataclass(frozen=True)
class PurposeOptions:
    """The options that make texts for a purpose of captions."""

    purpose: Annotated[
        str | None,
        typer.Option("--for", metavar="PURPOSE", help="alt-text, or lora: a folder for an image generator.",
                     rich_help_panel=PANEL),
    ] = None  # fmt: skip
    characters: Annotated[
        int | None, typer.Option(min=20, help="Longest alt text. Default: 125.", rich_help_panel=PANEL)
    ] = None
    long: Annotated[
        bool, typer.Option("--long", help="Also the whole caption, where it says more.", rich_help_panel=PANEL)
    ] = False
    review: Annotated[
        Path | None,
        typer.Option(help="List alt texts to look at, with the doubts: .jsonl, or a page to edit them on: .html.",
                     dir_okay=False, rich_help_panel=PANEL),
    ] = None  # fmt: skip
    embed: Annotated[
        bool,
        typer.Option("--embed", help="Write alt texts into PICTURE.xmp beside each (IPTC).", rich_help_panel=PANEL),
    ] = False
    copies: Annotated[
        Path | None,
        typer.Option(help="Write copies of the pictures, alt texts inside, to this folder.", file_okay=False,
                     rich_help_panel=PANEL),
    ] = None  # fmt: skip
    trigger: Annotated[
        str | None, typer.Option(help="What the generator is to call what is common.", rich_help_panel=PANEL)
    ] = None
    common: Annotated[
        float | None,
        typer.Option(min=0.1, max=1.0, help="Leave out words of more than this share of captions. Default: 0.5.",
                     rich_help_panel=PANEL),
    ] = None  # fmt: skip
    keep: Annotated[
        str | None, typer.Option(metavar="WORDS", help="Never leave these out: hat,red.", rich_help_panel=PANEL)
    ] = None
    avoid: Annotated[
        str | None, typer.Option(metavar="WORDS", help="Always leave these out.", rich_help_panel=PANEL)
    ] = None
    include: Annotated[
        str | None, typer.Option(metavar="WORDS", help="Add these where they are missing.", rich_help_panel=PANEL)
    ] = None
    extension: Annotated[
        str | None, typer.Option(help="Of the text files: .caption. Default: .txt.", rich_help_panel=PANEL)
    ] = None
    prefix: Annotated[str | None, typer.Option(help="Before the trigger.", rich_help_panel=PANEL)] = None
    suffix: Annotated[str | None, typer.Option(help="After each caption.", rich_help_panel=PANEL)] = None
    length_mix: Annotated[
        str | None,
        typer.Option(metavar="SHARES", help="Of short, medium and long captions: 0.2,0.5,0.3.", rich_help_panel=PANEL),
    ] = None
    seed: Annotated[int | None, typer.Option(min=0, help="Of --length-mix. Default: 0.", rich_help_panel=PANEL)] = None
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Show what would be left out; write no text.", rich_help_panel=PANEL)
    ] = False

    @contextlib.contextmanager
    def texts(
        self, dataset: Dataset, typed: Sequence[str], out: str | None, format: str | None, replaces: Replace,
        samples: int | None = None,
    ) -> Iterator[Texts | None]:  # fmt: skip
        """Yields where captions are to be written, and makes texts of them afterwards; None without a purpose.

        No other process makes texts in the same place until the block ends. Raises `UsageError` for options of another
        purpose, and for all files that cannot be written.
        """
        from tellapart.inference import purposes

        maker = self.maker()
        if maker is None:
            yield None
            return
        from tellapart.captions.provenance import OwnFiles
        from tellapart.utils.files import locked

        items = list(dataset)
        alone = self.purpose == LORA and out is None
        if out is None and self.purpose == ALT_TEXT and len(items) == 1:
            out = "-"
        if out == "-" and self.purpose == LORA:
            raise UsageError("--for lora looks at all captions; leave out -o -, or type --dry-run to see examples")
        if format is not None:
            raise UsageError(f"--for {self.purpose} has formats of its own; leave out --format")
        if out is None and not alone:
            raise UsageError("no file to write alt texts to; type -o alt.jsonl, or -o - to print them")
        with contextlib.ExitStack() as stack:
            if out == "-":
                path = Path(stack.enter_context(tempfile.TemporaryDirectory())) / "alt.jsonl"
            else:
                path = purposes.common_folder(items) / "metadata.jsonl" if out is None else Path(out)
            if alone:
                purposes.refuse_scattered(items, typed)
            packed = sorted(purposes.PACKED) if self.purpose == LORA else []
            if (suffix := path.suffix.lower()) not in (".jsonl", ".csv", *packed):
                raise UsageError(
                    f"{path}: texts go to a .jsonl or .csv file" + "".join(f", or {one}" for one in packed)
                )
            if self.extension is not None and not alone:
                raise UsageError(f"--extension is for text files beside the pictures, and -o {out} is one file; leave "
                                 "it out")  # fmt: skip
            if suffix == ".csv" and samples is not None:
                raise UsageError(
                    f"{path}: has one text of each picture, and {samples} are asked for; type -o texts.jsonl"
                )
            if self.review is not None and self.review.suffix.lower() == ".html" and suffix != ".jsonl":
                raise UsageError(f"{path}: the page of --review writes lines of JSON; type -o alt.jsonl")
            texts = Texts(self, maker, items, path, replaces, OwnFiles(), alone, out == "-")
            if self.review is not None:
                check_output(self.review)
            texts.check()
            stack.enter_context(locked(path.parent, wait=False, name=f".{path.name}.lock"))
            if self.embed:
                folder = purposes.common_folder(items)
                stack.enter_context(locked(folder, wait=False, name=".xmp.lock"))
            yield texts
            texts.write(dataset)

    def maker(self) -> AltText | LoraCaptions | None:
        """Returns what makes texts of captions; None without a purpose. Raises `UsageError`."""
        from tellapart.inference import purposes

        if self.purpose is not None and self.purpose not in OF:
            raise UsageError(f"--for {self.purpose}: expected {' or '.join(OF)}{nearest(self.purpose, OF)}")
        for each in fields(self):
            other = next((name for name, names in OF.items() if each.name in names and name != self.purpose), None)
            if other is not None and getattr(self, each.name) not in (None, False):
                option = f"--{each.name.replace('_', '-')}"
                raise UsageError(f"{option} is of --for {other}; type that too, or leave it out")
        if self.purpose is None:
            return None

        if self.purpose == ALT_TEXT:
            return purposes.AltText(self.characters or purposes.CHARACTERS, self.long)
        if not (self.trigger or "").strip():
            raise UsageError("--for lora needs the word that the generator is to learn; type --trigger NAME")
        if self.seed is not None and self.length_mix is None:
            raise UsageError("--seed is of --length-mix; leave it out")
        if self.extension is not None and f".{self.extension.lstrip('.')}" not in (".txt", ".caption"):
            raise UsageError(f"--extension {self.extension}: expected .txt or .caption")
        keep, avoid = _words(self.keep, "--keep"), _words(self.avoid, "--avoid")
        include = tuple(dict.fromkeys(" ".join(one.split()) for one in (self.include or "").split(",") if one.strip()))
        made = purposes.LoraCaptions(
            " ".join((self.trigger or "").split()),
            purposes.COMMON if self.common is None else self.common,
            keep,
            avoid,
            " ".join((self.prefix or "").split()),
            (self.suffix or "").strip(),
            _shares(self.length_mix),
            self.seed or 0,
            include,
        )
        if both := sorted(made.kept & avoid):
            raise UsageError(f"'{both[0]}' is to stay, and --avoid leaves it out; leave it out of one of them")
        return made


def _words(typed: str | None, option: str) -> frozenset[str]:
    words = frozenset(word.strip().lower() for word in (typed or "").split(",") if word.strip())
    if wrong := next((word for word in sorted(words) if " " in word), None):
        raise UsageError(f"{option} {wrong!r}: expected single words with commas between, such as hat,red")
    return words


def _shares(typed: str | None) -> tuple[float, float, float] | None:
    if typed is None:
        return None
    try:
        short, medium, long = (float(part) for part in typed.split(","))
    except ValueError:
        short = medium = long = -1.0
    if min(short, medium, long) < 0 or not 0.99 <= short + medium + long <= 1.01:
        raise UsageError(f"--length-mix {typed}: expected three shares that add up to 1, such as 0.2,0.5,0.3")
    return short, medium, long


@dataclass
class Texts:
    """The texts for a purpose and where they go. The captions that they are made of are in the log beside ``out``.

    ``captioner``: loads the captioner for a second look; None for one behind a server.
    """

    options: PurposeOptions
    maker: AltText | LoraCaptions
    items: Sequence[Item]
    out: Path
    replaces: Replace
    own: OwnFiles
    beside: bool  # a .txt beside each picture, too
    printed: bool
    captioner: Callable[[], Captioner] | None = None

    @property
    def suffix(self) -> str:
        """Returns how files beside the pictures end."""
        return f".{(self.options.extension or 'txt').lstrip('.')}"

    def check(self) -> None:
        """Raises one `UsageError` for all files that cannot be read or written, before anything is captioned."""
        from tellapart.inference import purposes

        purposes.check_files(
            self.items, self.out, self.own, self.replaces,
            beside=self.suffix if self.beside else None, mixed=self.options.purpose == ALT_TEXT,
            copies=([None] if self.options.embed else []) + ([self.options.copies] if self.options.copies else []),
        )  # fmt: skip

    def write(self, dataset: Dataset) -> None:
        """Makes the texts and writes them."""
        from tellapart.captions.writers import logged_captions
        from tellapart.inference import purposes

        written = logged_captions(self.out, self.items)
        captions = {
            f"{item.id}\n{n}" if n else item.id: text
            for item in self.items
            for n, text in enumerate(written.get(item.id, ()))
        }
        single = self.maker.edited(captions)
        edited = purposes.several(single)
        for line in _without_text(edited):
            say(line)
        if self.options.purpose == LORA:
            self._show_evidence(captions, single, len(edited))
        if self.options.dry_run:
            say("no text is written yet; the same command without --dry-run goes on with these captions")
            return
        changed: set[str] = set()
        if self.options.purpose == ALT_TEXT:
            edited, changed = purposes.with_edits(self.out, edited, self.replaces, self.items)
            if changed:
                say(f"{len(changed):,} texts were changed in {self.out} since: they stay; --replace-edited replaces "
                    "them")  # fmt: skip
        if self.printed:
            with stdout_errors():
                sys.stdout.write(purposes.json_lines(self.items, edited))
        else:
            lines: list[str] = []
            if self.beside:
                trigger = " ".join((self.options.trigger or "").split())
                edited, lines = purposes.write_beside(self.items, edited, self.own, self.replaces, self.suffix, trigger)
            count = purposes.write_lines(self.out, self.items, edited, self.own, changed)
            say(
                f"{count:,} texts in {self.out}"
                + (f" and in a {self.suffix} beside each picture" if self.beside else "")
            )
            for line in lines:
                say(line)
        if self.options.embed or self.options.copies is not None:
            self._embed(edited)
        if self.options.review is not None:
            self._review(dataset, captions, edited, self.options.review)

    def _embed(self, edited: dict[str, Edited]) -> None:

        from tellapart.inference import purposes

        places = [None] if self.options.embed else []
        for folder in [*places, *([self.options.copies] if self.options.copies is not None else [])]:
            done = purposes.embed(self.items, edited, self.own, self.replaces.edited, folder)
            where = "beside the pictures" if folder is None else f"in {folder}"
            copies = f"{done.copies:,} copies of pictures and " if folder is not None else ""
            say(f"{copies}{done.sidecars:,} .xmp files {where}")
            if done.stayed:
                say(f"{len(done.stayed):,} pictures have an alt text of another origin, which stays: "
                    f"{', '.join(done.stayed[:3])}; --replace-edited replaces it")  # fmt: skip

    def _show_evidence(self, captions: dict[str, str], edited: dict[str, Edited], pictures: int) -> None:

        from tellapart.inference import purposes

        assert isinstance(self.maker, purposes.LoraCaptions)
        shares = self.maker.evidence(captions)
        shown = [one for n, one in enumerate(shares) if one.left_out or n < SHOWN]
        pairs = [(captions[key], one.text) for key, one in edited.items() if one.text]
        show(None, lambda: _evidence_table(shown, len(captions)), False)
        if pictures < purposes.LEAST:
            say(f"{pictures} captions are no evidence of what a set has in common; only --avoid leaves words out")
        for before, after in pairs[: SHOWN if self.options.dry_run else 3]:
            say(f"{before} → {after}")

    def _review(self, dataset: Dataset, captions: dict[str, str], edited: dict[str, Edited], path: Path) -> None:
        from tellapart.data.caption_matching import CaptionFile
        from tellapart.evaluation.check import CAPTION, KINDS, check_captions
        from tellapart.inference import purposes
        from tellapart.inference.review import review_lines, write_review_page

        texts = {key: [one.text] for key, one in edited.items() if one.text}
        found: dict[str, list[tuple[str, str]]] = {}
        if texts:
            captioner = self.captioner() if self.captioner is not None and len(texts) > 1 else None
            checked = check_captions(CaptionFile(self.out.name, texts), dataset, captioner=captioner)
            for kind, findings in checked.found.items():
                if KINDS[kind].of == CAPTION and kind not in OF_SETS:
                    for one in findings:
                        found.setdefault(one.id, []).append((kind, one.detail))
        lines = review_lines(self.items, captions, edited, found)
        if path.suffix.lower() == ".html":
            write_review_page(path, self.out, self.items, edited, lines, self.options.characters or purposes.CHARACTERS)
        else:
            write_output(path, "".join(json.dumps(line, ensure_ascii=False) + "\n" for line in lines))
        say(f"{len(lines):,} of {len(self.items):,} pictures are to be looked at: {path}")


def _without_text(edited: dict[str, Edited]) -> Iterator[str]:
    bad = [(key, one.doubts[0][1]) for key, one in edited.items() if not one.text]
    yield from (f"no text for {key}: its caption is {why}" for key, why in bad[:SHOWN])
    if len(bad) > SHOWN:
        yield f"no text for {len(bad) - SHOWN:,} more"


def _evidence_table(shares: Sequence[WordShare], captions: int) -> Any:
    from rich import box
    from rich.table import Table

    title = f"words of {captions:,} captions"
    table = Table(box=box.SIMPLE_HEAD, title=title, title_justify="left")
    table.add_column("word")
    table.add_column("captions", justify="right")
    table.add_column("%", justify="right")
    table.add_column("")
    for one in shares:
        style = "bold" if one.left_out else ""
        table.add_row(one.word, f"{one.count:,}", f"{100 * one.share:.0f}", "left out" if one.left_out else "stays",
                      style=style)  # fmt: skip
    return table
