"""Damage in captions and their pictures: what each caption and picture shows by itself, and what models add.

`check_captions` finds, without a model: captions that are empty, cut, refusals, loops, templates, of another language,
of damaged encoding; captions that several pictures share, or nearly; references that are given out as captions;
pictures that cannot be read, or that programs read differently. A scorer adds captions that do not fit their pictures,
a captioner words that fit any picture as well. Every `Kind` has a level: the share of captions (or pictures) that clean
data may have, set above what people's captions of Flickr8k have. Beyond it the kind is an alarm.
"""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import rich
import rich.console
import rich.table
import rich.text
import torch
from rich import box

from tellapart.captioners import Captioner
from tellapart.data import Dataset
from tellapart.data.caption_matching import CaptionFile, KnownIds, match_captions
from tellapart.errors import UsageError
from tellapart.evaluation.damage import (
    CheckedCaption,
    Finding,
    check_pictures,
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
from tellapart.features.store import FeatureStore
from tellapart.features.views import make_view
from tellapart.language.words import content_words, words_of_tokens
from tellapart.rewards.speaker import Speaker, mutual_information, word_log_probs
from tellapart.scorers import Scorer
from tellapart.types import Batch, Item, Rollout
from tellapart.utils.messages import json_value, say, track

CAPTION, PICTURE = "caption", "picture"
RARE = 0.001  # what clean data are as good as free of


@dataclass(frozen=True)
class Kind:
    """A kind of damage: what it is of, what the table calls it, and the share that clean data may have."""

    name: str
    help: str
    of: str = CAPTION
    level: float = RARE
    needs: str = ""  # what has to be given for it: "references", "scorer", "captioner"


KINDS = {
    kind.name: kind
    for kind in (
        Kind("empty", "says nothing"),
        Kind("cut", "ends in the middle of a sentence", level=0.008),
        Kind("refusal", "refuses, or speaks of itself as a model"),
        Kind("loop", "says words again and again"),
        Kind(
            "template", "opens as captions of a model do (“The image shows”), or as every fifth one here", level=0.005
        ),
        Kind("language", "is of another language or script"),
        Kind("encoding", "has characters that a wrong encoding, HTML or an escape left"),
        Kind("repeated", "is written twice for one picture", level=0.005),
        Kind("shared", "is the caption of several pictures", level=0.015),
        Kind("near", "differs by one word from another picture's", level=0.015),
        Kind("neighbour", "is hardly other than the row before: a stale cache, or frames of one scene", level=0.004),
        Kind("leaked", "is one of its picture's references", level=0.005, needs="references"),
        Kind(
            "mispaired",
            "shares less with its picture's references than with most other pictures'",
            level=0.05,
            needs="references",
        ),
        Kind("no caption", "has no caption", of=PICTURE),
        Kind("no picture", "is of no picture"),
        Kind("unreadable", "cannot be read", of=PICTURE),
        Kind("same picture", "is there several times, byte for byte", of=PICTURE),
        Kind("blank", "is of one colour", of=PICTURE),
        Kind("rotated", "is turned by EXIF: some programs show it lying", of=PICTURE),
        Kind("cmyk", "has CMYK colours: some programs show it inverted", of=PICTURE),
        Kind("16-bit", "has more than 8 bits a channel: some programs show it white", of=PICTURE),
        Kind("transparent", "has transparency: white here, black in some programs", of=PICTURE),
        Kind("suffix", "is of another format than its name says", of=PICTURE),
        Kind("misfit", "fits more than half of the other pictures better than its own", level=0.01, needs="scorer"),
        Kind(
            "shifted",
            "fits its own picture badly, and that of the row before or after best of all",
            level=0.005,
            needs="scorer",
        ),
        Kind("doubtful", "has words that fit any picture as well as this one", level=0.1, needs="captioner"),
    )
}


@dataclass
class Check:
    """Holds what was found, by kind, and how much there was to look at. ``skipped``: kinds that need what was not
    given.
    """

    captions: int
    pictures: int
    found: dict[str, list[Finding]]
    facts: dict[str, float] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)
    skipped: tuple[str, ...] = ()

    def count(self, kind: str) -> int:
        """Returns how many captions or pictures have it."""
        return len({(one.id, one.text) for one in self.found.get(kind, ())})

    def rate(self, kind: str) -> float:
        """Returns the share of captions (or pictures) that have it; 0 where there are none."""
        whole = self.captions if KINDS[kind].of == CAPTION else self.pictures
        return self.count(kind) / whole if whole else 0.0

    def alarms(self, levels: Mapping[str, float | None] | None = None) -> list[str]:
        """Returns the kinds that are above their level.

        levels: the kinds that count, by default all, each with the share that is an alarm when it is passed. None: the
        kind's own level. Where clean data are not free of a kind, more of it than that has to be found than chance
        explains (p < 0.05): one short caption among sixty is no alarm.
        """
        chosen = dict.fromkeys(KINDS) if levels is None else levels
        return [name for name, level in chosen.items() if name not in self.skipped and self._is_alarm(name, level)]

    def _is_alarm(self, name: str, level: float | None) -> bool:
        if level is not None:
            return self.rate(name) > level
        own = KINDS[name].level
        whole = self.captions if KINDS[name].of == CAPTION else self.pictures
        return self.rate(name) > own and (own <= RARE or _more_than_chance(self.count(name), whole * own))

    def worst(self, most: int = 50) -> list[tuple[str, list[Finding]]]:
        """Returns the ids with the most kinds that are alarms, each with its findings; then those of other kinds.

        Of the ids with as many, those of the rarest kinds come first, and kinds take turns.
        """
        loud = set(self.alarms())
        count_of = {kind: self.count(kind) for kind in self.found}
        by_id: dict[str, list[Finding]] = defaultdict(list)
        for own in self.found.values():
            for one in own:
                by_id[one.id].append(one)
        turn: Counter[str] = Counter()
        order = []
        for key, own in sorted(by_id.items()):
            rarest = min(own, key=lambda one: (one.kind not in loud, count_of[one.kind]))
            kinds = {one.kind for one in own}
            order.append((-len(kinds & loud), turn[rarest.kind], count_of[rarest.kind], key))
            turn[rarest.kind] += 1
        return [(key, by_id[key]) for *_, key in sorted(order)[:most]]

    def to_json(self) -> dict[str, Any]:
        """Returns everything as JSON's types: counts, rates and levels by kind, each finding, facts and notes."""
        alarms = self.alarms()
        return {
            "captions": self.captions,
            "pictures": self.pictures,
            "kinds": {
                name: {
                    "count": self.count(name),
                    "rate": self.rate(name),
                    "level": kind.level,
                    "alarm": name in alarms,
                    "of": kind.of,
                }
                for name, kind in KINDS.items()
                if name not in self.skipped
            },
            "facts": json_value(self.facts),
            "findings": [
                {"kind": one.kind, "id": one.id} | ({"caption": one.text} if one.text else {}) | {"detail": one.detail}
                for own in self.found.values()
                for one in own
            ],
            "skipped": list(self.skipped),
            "notes": self.notes,
        }

    def rows(self) -> list[tuple[Kind, int, float, bool, str]]:
        """Returns (kind, count, rate, alarm, an example) of what was looked for: alarms first, then what was found."""
        alarms = self.alarms()
        names = sorted(
            (name for name in KINDS if name not in self.skipped),
            key=lambda name: (name not in alarms, not self.count(name)),
        )
        return [(KINDS[name], self.count(name), self.rate(name), name in alarms, self._example(name)) for name in names]

    def _example(self, kind: str) -> str:
        found = self.found.get(kind, [])
        if not found:
            return ""
        one = found[0]
        return f"{one.id}: {one.detail or one.text}"

    def headline(self) -> str:
        """Returns the result in one sentence."""
        alarms = self.alarms()
        of = f"{self.captions:,} captions of {self.pictures:,} pictures"
        if not alarms:
            return f"{of}: no kind of damage is above its level"
        kinds = "kind of damage is" if len(alarms) == 1 else "kinds of damage are"
        some = ", ".join(alarms[:4]) + (f" and {len(alarms) - 4} more" if len(alarms) > 4 else "")
        return f"{of}: {len(alarms)} {kinds} above {'its' if len(alarms) == 1 else 'their'} level: {some}"

    def table(self) -> rich.console.Group:
        """Returns the kinds for the terminal, alarms first."""
        table = rich.table.Table(box=box.SIMPLE_HEAD, title=self.headline(), title_justify="left")
        for name, justify in (("", "left"), ("kind", "left"), ("count", "right"), ("%", "right"), ("level", "right")):
            table.add_column(name, justify=justify)  # type: ignore[arg-type]
        table.add_column("such as", overflow="ellipsis", no_wrap=True, max_width=70)
        for kind, count, rate, alarm, example in self.rows():
            level = f"{100 * kind.level:g}"
            cells = ("!" if alarm else "", kind.name, f"{count:,}", f"{100 * rate:.2f}", level, rich.text.Text(example))
            table.add_row(*cells, style="bold" if alarm else "" if count else "dim")
        facts = [f"{name}: {value:,.3g}" for name, value in self.facts.items()]
        return rich.console.Group(
            table,
            *map(rich.text.Text, facts),
            *(rich.text.Text(f"note: {note}", style="yellow") for note in self.notes),
        )


def _more_than_chance(count: int, expected: float) -> bool:
    """Says whether a Poisson variable reaches ``count`` in fewer than one case of twenty."""
    if expected > 100:
        return count > expected + 1.645 * math.sqrt(expected)
    below = sum(math.exp(n * math.log(expected) - expected - math.lgamma(n + 1)) for n in range(count))
    return 1 - below < 0.05


# With models.

BLOCK = 1024


def by_scorer(
    rows: Sequence[CheckedCaption], row_of: Mapping[str, int], image_ND: np.ndarray, text_MD: np.ndarray
) -> Found:
    """Finds captions that fit other pictures better, by a scorer's features.

    row_of: the place of each picture's features. Facts: the median rank of the own picture, R@1 among all pictures, and
    the share of captions that were shuffled (a caption of a random picture is beyond the middle every second time).
    """
    keys = list(row_of)
    own_M = np.array([row_of[row.id] for row in rows])
    rank_M, best_M = np.zeros(len(rows), int), np.zeros(len(rows), int)
    for start in range(0, len(rows), BLOCK):
        score_MN = text_MD[start : start + BLOCK] @ image_ND.T
        own = own_M[start : start + BLOCK]
        mine_M = score_MN[np.arange(len(own)), own]
        rank_M[start : start + BLOCK] = (score_MN > mine_M[:, None]).sum(1)
        best_M[start : start + BLOCK] = score_MN.argmax(1)
    others = max(len(image_ND) - 1, 1)
    findings = []
    for row, own, rank, best in zip(rows, own_M.tolist(), rank_M.tolist(), best_M.tolist(), strict=True):
        if rank > others / 2:
            findings.append(Finding("misfit", row.id, row.text, f"{rank:,} of {others:,} pictures fit better"))
        if rank > others / 10 and abs(best - own) == 1:
            findings.append(Finding("shifted", row.id, row.text, f"fits {keys[best]} best"))
    facts = {
        "median rank of the own picture": float(np.median(rank_M) + 1),
        "own picture first, %": 100 * float((rank_M == 0).mean()),
        "shuffled pairs, about %": min(100.0, 200 * float((rank_M > others / 2).mean())),
    }
    return Found(findings, facts)


@dataclass(frozen=True)
class Found:
    """Findings, and numbers of the whole set."""

    findings: list[Finding]
    facts: dict[str, float]


DOUBT = 0.0  # nats by which a word has to be likelier for its own picture than for the average one
DOUBTFUL_PICTURES = 32


def by_captioner(rows: Sequence[CheckedCaption], row_of: Mapping[str, int], captioner: Captioner, visual: Any) -> Found:
    """Finds content words that a captioner holds for no likelier at their own picture than at others.

    A word's number is its pointwise mutual information with the picture (`tellapart.rewards.speaker`), against
    others of a batch of `DOUBTFUL_PICTURES`. visual: the captioner's view of all pictures, N×….
    """

    speaker = Speaker(captioner)
    captioner.model.eval()
    findings, words, doubted = [], 0, 0
    for start in track(range(0, len(rows), DOUBTFUL_PICTURES), label="reading captions"):
        block = list(rows[start : start + DOUBTFUL_PICTURES])
        if len(block) == 1:
            block = [*rows[max(start - 1, 0) : start], *block]
        places = np.array([row_of[row.id] for row in block])
        tokens_RT, valid_RT = (
            x.to(captioner.device) for x in captioner.pad(captioner.tokenize([r.text for r in block]))
        )
        rollout = Rollout(tokens_RT, valid_RT, [row.text for row in block])
        seen = captioner.inputs(torch.as_tensor(np.ascontiguousarray(visual[places])))
        with torch.no_grad():
            log_p_ORT = speaker.log_probs(rollout, Batch([], torch.from_numpy(places), seen))
        found, word_RT = words_of_tokens(rollout, captioner.tokenizer, content_words)
        most = max((len(own) for own in found), default=0)
        if not most:
            continue
        gain_RW = mutual_information(word_log_probs(log_p_ORT, word_RT.to(log_p_ORT.device), most)).tolist()
        written = [set(own) for own in word_RT.tolist()]
        for r, row in enumerate(block):
            here = [(w, word) for w, word in enumerate(found[r]) if w in written[r]]
            bad = [word for w, word in here if gain_RW[r][w] < DOUBT]
            words, doubted = words + len(here), doubted + len(bad)
            if bad:
                spans = tuple((word.start, word.end) for word in bad)
                text = ", ".join(row.text[start:end] for start, end in spans)
                findings.append(Finding("doubtful", row.id, row.text, text, spans))
    return Found(findings, {"doubtful words, %": 100 * doubted / words if words else float("nan")})


# Everything.


def check_captions(
    file: CaptionFile,
    dataset: Dataset | None,
    *,
    references: CaptionFile | None = None,
    language_name: str = "en",
    scorer: Scorer | None = None,
    captioner: Captioner | None = None,
) -> Check:
    """Looks for every kind of damage that the inputs allow.

    dataset: None looks at the captions alone. references: for ``leaked`` and ``mispaired``. language_name: a key
    of `LANGUAGES`, or another language, of which only the script of one in Latin letters is known. Raises `UsageError`
    where captions and pictures have nothing in common.
    """
    if dataset is None and (scorer or captioner):
        raise UsageError("a scorer and a captioner need pictures; type: tellapart check CAPTIONS PICTURES")
    found: dict[str, list[Finding]] = {name: [] for name in KINDS}

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
    facts = {"other pictures with the same caption, mean": float(np.mean(said)) - 1 if said else float("nan")}
    unreadable = {one.id for one in found["unreadable"]}
    readable = [item for item in items if item.id not in unreadable and texts.get(item.id)]
    models: list[Found] = []
    if scorer is not None and _enough(readable, "scorer"):
        models.append(_ask_scorer(rows, readable, scorer))
    if captioner is not None and _enough(readable, "captioner"):
        models.append(_ask_captioner(rows, readable, captioner))
    for one in models:
        add(one.findings)
        facts |= one.facts
    given = {"references": references, "scorer": scorer, "captioner": captioner}
    skipped = [kind.name for kind in KINDS.values() if kind.needs and given[kind.needs] is None]
    if dataset is None:
        skipped += [kind.name for kind in KINDS.values() if kind.of == PICTURE or kind.name == "no picture"]
    total = len(items) + (len(dataset.missing) if dataset is not None else 0)
    return Check(len(rows), total, found, facts, notes, tuple(skipped))


def _enough(items: Sequence[Item], who: str) -> bool:
    if len(items) < 2:
        say(f"the {who} is left out: fewer than two pictures can be read and have captions")
    return len(items) >= 2


def _matched(file: CaptionFile, dataset: Dataset) -> tuple[dict[str, list[str]], list[str]]:
    ids = [item.id for item in dataset]
    files = {item.id: item.picture.name for item in dataset}
    matched = match_captions(file, KnownIds(dataset.spec, ids, files), file.name)
    if not set(ids) & set(matched.texts) and ids:
        raise UsageError(f"{file.name} and {dataset.spec} have no id in common; are they about the same pictures?")
    return matched.texts, [matched.how] if matched.how else []


def _ask_scorer(rows: Sequence[CheckedCaption], items: Sequence[Item], scorer: Scorer) -> Found:
    row_of = {item.id: row for row, item in enumerate(items)}
    own = [row for row in rows if row.id in row_of and row.words]
    image_ND = np.asarray(FeatureStore().features(items, scorer.encoder), dtype=np.float32)
    text_MD = scorer.text_features([row.text for row in own]).float().cpu().numpy()
    return by_scorer(own, row_of, image_ND, text_MD)


def _ask_captioner(rows: Sequence[CheckedCaption], items: Sequence[Item], captioner: Captioner) -> Found:
    row_of = {item.id: row for row, item in enumerate(items)}
    view = make_view(captioner, FeatureStore())
    return by_captioner([row for row in rows if row.id in row_of and row.words], row_of, captioner, view.rows(items))
