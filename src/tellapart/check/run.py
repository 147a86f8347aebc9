"""Checks a caption file for all kinds of defects that can be found with the given pictures and models."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from tellapart.check.captions import (
    CheckedCaption,
    cut,
    empty,
    encoding,
    language,
    leaked,
    loop,
    mispaired,
    near,
    neighbour,
    pictures_of,
    refusal,
    repeated,
    rows_of,
    shared,
    template,
)
from tellapart.check.kinds import DEFECTS, PICTURE, Finding, Found
from tellapart.check.pictures import check_pictures
from tellapart.check.result import Check
from tellapart.data import Dataset
from tellapart.data.caption_matching import CaptionFile, KnownIds, match_captions
from tellapart.errors import UsageError
from tellapart.types import Item
from tellapart.utils.messages import say

if TYPE_CHECKING:
    from tellapart.captioners import Captioner
    from tellapart.scorers import Scorer


def check_captions(
    file: CaptionFile,
    dataset: Dataset | None,
    *,
    references: CaptionFile | None = None,
    language_name: str = "en",
    scorer: Scorer | None = None,
    captioner: Captioner | None = None,
) -> Check:
    """Checks for all kinds of defects that can be found with the given inputs.

    dataset: the pictures; None checks only the captions.
    references: required by ``leaked`` and ``mispaired``.
    language_name: a key of `LANGUAGES`, or another language, which is only checked for Latin script.

    Raises `UsageError` if captions and pictures have no ids in common.
    """
    if dataset is None and (scorer or captioner):
        raise UsageError("a scorer or captioner requires pictures; run: tellapart check CAPTIONS PICTURES")
    found: dict[str, list[Finding]] = {name: [] for name in DEFECTS}

    def add(findings: Iterator[Finding] | list[Finding]) -> None:
        for one in findings:
            found[one.kind].append(one)

    texts, notes, items = dict(file.texts), list[str](), list[Item]()
    if dataset is not None:
        texts, notes = _matched(file, dataset)
        items = list(dataset)
        add([Finding("unreadable", key, detail=why) for key, why in dataset.missing])
        known = {item.id for item in items} | {part for key, _ in dataset.missing for part in (key, Path(key).name)}
        add([Finding("no picture", key, own[0] if own else "") for key, own in texts.items() if key not in known])
        add([Finding("no caption", item.id) for item in items if not texts.get(item.id)])
        add(check_pictures(items))
    rows = rows_of(texts)
    each: dict[str, Callable[[CheckedCaption], str]] = {
        "empty": empty,
        "refusal": refusal,
        "loop": loop,
        "encoding": encoding,
        "language": lambda row: language(row, language_name),
    }
    for name, why in each.items():
        add([Finding(name, row.id, row.text, reason) for row in rows if (reason := why(row))])
    pictures = pictures_of(rows)
    for whole in (cut(rows), template(rows), repeated(rows), shared(rows, pictures), near(rows, pictures)):
        add(whole)
    add(neighbour(rows))
    if references is not None:
        if dataset is None:
            captioned = KnownIds(file.name, list(texts), file.files, file.numbered)
            matched = match_captions(references, captioned, "references")
            own = matched.texts
            notes += [matched.how] if matched.how else []
        else:
            own = _matched(references, dataset)[0]
        add(leaked(rows, own))
        add(mispaired(rows, own))
    said = [len(pictures[row.plain]) for row in rows if row.words]
    facts = {"mean number of other pictures with the same caption": float(np.mean(said)) - 1 if said else float("nan")}
    unreadable = {one.id for one in found["unreadable"]}
    readable = [item for item in items if item.id not in unreadable and texts.get(item.id)]
    for one in _ask_models(rows, readable, scorer, captioner):
        add(one.findings)
        facts |= one.facts
    given = {"references": references, "scorer": scorer, "captioner": captioner}
    skipped = [kind.name for kind in DEFECTS.values() if kind.needs and given[kind.needs] is None]
    if dataset is None:
        skipped += [kind.name for kind in DEFECTS.values() if kind.of == PICTURE or kind.name == "no picture"]
    total = len(items) + (len(dataset.missing) if dataset is not None else 0)
    return Check(len(rows), total, found, facts, notes, tuple(skipped))


def _ask_models(
    rows: Sequence[CheckedCaption], items: Sequence[Item], scorer: Scorer | None, captioner: Captioner | None
) -> Iterator[Found]:
    """Yields what the models find. Imports them only here, because torch loads slower than the other checks run."""
    if scorer is not None and _enough(items, "scorer"):
        from tellapart.check.scorer import ask_scorer

        yield ask_scorer(rows, items, scorer)
    if captioner is not None and _enough(items, "captioner"):
        from tellapart.check.captioner import ask_captioner

        yield ask_captioner(rows, items, captioner)


def _enough(items: Sequence[Item], who: str) -> bool:
    if len(items) < 2:
        say(f"skipping the {who}: it requires at least two readable pictures with captions")
    return len(items) >= 2


def _matched(file: CaptionFile, dataset: Dataset) -> tuple[dict[str, list[str]], list[str]]:
    ids = [item.id for item in dataset]
    files = {item.id: item.picture.name for item in dataset}
    matched = match_captions(file, KnownIds(dataset.spec, ids, files), file.name)
    if not set(ids) & set(matched.texts) and ids:
        raise UsageError(f"{file.name} and {dataset.spec} have no ids in common; are they about the same pictures?")
    return matched.texts, [matched.how] if matched.how else []
