"""Reads the captions that texts are made from: from a file, from the folder itself, or from a captioner.

A folder may contain captions in text files next to its pictures or in ``metadata.jsonl``. `tellapart lora` replaces
these text files with its own texts, so the original captions are kept in the hidden log, from which the next run reads
them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tellapart import __version__
from tellapart.captioners.captioner import Captioner
from tellapart.captions.authors import UNKNOWN, Author
from tellapart.captions.log_row import text_fields
from tellapart.captions.logged_captions import logged_captions
from tellapart.captions.own_files import OwnFiles
from tellapart.captions.picture_record import PictureRecord
from tellapart.captions.provenance import Provenance, log_of
from tellapart.captions.text_hash import text_hash
from tellapart.data import Dataset
from tellapart.data.caption_files import read_caption_file
from tellapart.data.caption_matching import KnownIds, match_captions
from tellapart.data.pictures import FilePicture
from tellapart.errors import UsageError
from tellapart.inference.decoding_options import DECODING, key_values
from tellapart.inference.options import CaptionOptions
from tellapart.inference.plan import plan_captions
from tellapart.inference.run_plan import caption_folder
from tellapart.purposes.options import SourceOptions
from tellapart.types import Item
from tellapart.utils.listed_names import few
from tellapart.utils.messages import say


@dataclass(frozen=True)
class SourceCaptions:
    """One or more captions for each picture, by id.

    ``captioner`` loads the model that generated the captions (None if unknown); ``author`` is who wrote them.
    """

    by_id: Mapping[str, Sequence[str]]
    captioner: Callable[[], Captioner] | None = None
    author: Author = UNKNOWN

    @property
    def agent(self) -> str:
        """Returns the captioner's name (if known) and this program's version."""
        name = self.author.model.partition("?")[0]
        name = name.rstrip("/").rpartition("/")[2] if Path(name).exists() else name
        return f"tellapart {__version__}" if self.author == UNKNOWN else f"{name}, tellapart {__version__}"

    @property
    def first(self) -> dict[str, str]:
        """Returns the first caption of each picture."""
        return {id_: texts[0] for id_, texts in self.by_id.items() if texts}

    @property
    def flat(self) -> dict[str, str]:
        """Returns all captions, each under its own key.

        The key is the picture's id, followed by a line break and a number for all but the first caption.
        """
        return {f"{id_}\n{n}" if n else id_: text for id_, texts in self.by_id.items() for n, text in enumerate(texts)}


def read_source(
    options: SourceOptions, dataset: Dataset, out: Path, own: OwnFiles, device: str, precision: str
) -> SourceCaptions:
    """Returns a data set's captions from the source that the options specify.

    Args:
        out: the output file, whose hidden log may also contain captions.

    Raises:
        UsageError: if the options are inconsistent, or if no picture has a caption.
    """
    if options.model is not None:
        if options.captions is not None:
            raise UsageError("--captions and --model cannot be combined; remove one of them")
        typed = caption_options(options)
        captioner = caption_folder(plan_captions(options.model, typed), dataset, typed, device, precision, log=out)
        return SourceCaptions(logged_captions(out, list(dataset)), captioner, author_of(log_of(out)))
    alone = {"--prompt": options.prompt, "--decoding": options.decoding, "--fields": options.fields}
    alone |= {
        "--device": None if device == "auto" else device,
        "--precision": None if precision == "auto" else precision,
    }
    for option, value in alone.items():
        if value:
            raise UsageError(
                f"{option} requires --model; pass --model NAME to caption the pictures, or remove {option}"
            )
    items = list(dataset)
    path = options.captions
    captions = _of_folder(items, out, own) if path is None else _of_file(path, dataset)
    if not captions:
        raise UsageError(
            f"{dataset.spec}: the pictures have no captions; pass --captions FILE, or --model NAME to caption them"
        )
    if missing := [item.id for item in items if item.id not in captions]:
        say(f"{len(missing):,} pictures have no caption: {few(missing)}")
    return SourceCaptions(captions, author=author_of(log_of(out) if path is None else path))


def author_of(captions: Path) -> Author:
    """Returns the captioner that generated a caption file according to the log, or `UNKNOWN` if none is recorded."""
    settings = Provenance.open(captions).settings
    return Author.from_settings(settings) if settings and settings.get("captioner") else UNKNOWN


_WHOLE: tuple[Callable[[str], Any], str] = (int, "an integer")
OPTIONS = dict.fromkeys(("beams", "max_tokens", "samples", "consensus"), _WHOLE)
_WITHOUT_EFFECT = {
    "paragraphs": "has no effect, because each text is a single line; remove paragraphs",
    "scorer_weight": (
        "requires a scorer that chooses among captions, which this command does not use; remove scorer_weight, or run "
        "tellapart caption with --consensus and --scorer first and pass --captions FILE instead of --model"
    ),
}  # settings of ``caption`` that texts made from captions cannot use


def caption_options(options: SourceOptions) -> CaptionOptions:
    """Translates ``--prompt`` and ``--decoding`` into the options of ``caption``. Raises `UsageError`."""
    values = key_values("--decoding", options.decoding, OPTIONS | DECODING)
    for name, why in _WITHOUT_EFFECT.items():
        if name in values:
            raise UsageError(f"--decoding {name} {why}")
    for name, least in (("beams", 1), ("max_tokens", 1), ("samples", 2), ("consensus", 3)):
        if values.get(name, least) < least:
            raise UsageError(f"--decoding {name}: expected at least {least}, got {values[name]}")
    rare = [f"{name}={values[name]}" for name in DECODING if name in values]
    chosen = {name: values[name] for name in OPTIONS if name in values}
    return CaptionOptions(
        prompt=options.prompt,
        fields=options.fields,
        decoding=rare,
        overwrite=options.overwrite,
        replace_edited=options.replace_edited,
        **chosen,
    )


def _of_file(path: Path, dataset: Dataset) -> dict[str, list[str]]:
    """Returns the captions in a file by picture id. Raises `UsageError` if no caption belongs to a picture."""
    items = list(dataset)
    known = KnownIds.of(dataset.spec, items)
    matched = match_captions(read_caption_file(path), known, str(path))
    if matched.how:
        say(matched.how)
    ids = set(known.ids)
    if others := sum(key not in ids for key in matched.texts):
        say(f"{path}: {others:,} captions do not belong to any picture in {dataset.spec}")
    return {item.id: matched.texts[item.id] for item in items if item.id in matched.texts}


def _of_folder(items: Sequence[Item], out: Path, own: OwnFiles) -> dict[str, Sequence[str]]:
    """Returns the captions in a folder.

    Prefers captions that tellapart wrote, then those in the log, then those that people wrote. Texts that this command
    itself wrote do not count as captions.
    """
    made, logged = Provenance.open(out).rows, logged_captions(out, items)
    captions: dict[str, Sequence[str]] = {}
    for item in items:
        hashes = made[item.id].hashes if item.id in made else ()
        texts = [text for text in item.references if text.strip()]
        ours = isinstance(item.picture, FilePicture) and own.are_own(item.picture.path, item.references)
        is_made = ours and any(text_hash(text) in hashes for text in ("\n".join(item.references), *item.references))
        if texts and ours and not is_made:
            captions[item.id] = texts
        elif item.id in logged:
            captions[item.id] = logged[item.id]
        elif texts and not is_made:
            captions[item.id] = texts
    return captions


def log_captions(items: Sequence[Item], out: Path, captions: Mapping[str, Sequence[str]]) -> None:
    """Stores captions in the hidden log of ``out`` before texts replace them."""
    logged = logged_captions(out, items)
    rows = {
        item.id: text_fields(None, PictureRecord.of(item.picture), captions[item.id])
        for item in items
        if item.id in captions and list(captions[item.id]) != logged.get(item.id)
    }
    if rows:
        Provenance.open(log_of(out)).record(rows)
