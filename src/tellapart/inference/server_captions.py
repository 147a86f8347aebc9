"""Builds the request stages for captioning with a server, and processes the answers."""

from __future__ import annotations

import json
import math
import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from pathlib import Path

from tellapart.boost.answer_checks import unusable
from tellapart.boost.cost_estimate import Load, estimate_line
from tellapart.boost.types import Answer, Backend, BackendError, Boosted, Message, Request, Stage, most_choices
from tellapart.captioners.consensus import consensus
from tellapart.captions.picture_record import PictureRecord
from tellapart.captions.written import Written
from tellapart.data.pictures import BytesPicture
from tellapart.inference.best_of import BestOf
from tellapart.inference.prompts import Prompts
from tellapart.inference.sampled_claims import Sample, Tokens, claim_confidences
from tellapart.inference.structured import AnswerSchema, caption_in
from tellapart.language.condensing import without_repeats
from tellapart.language.markdown import tidy_lines, without_markdown
from tellapart.language.soften import soften
from tellapart.language.token_spans import spelled_spans
from tellapart.language.token_words import word_of_span
from tellapart.language.words import Word, content_words
from tellapart.models.decoding import EVIDENCE, Decoding
from tellapart.types import Item, Picture

RETRY_TEMPERATURE = 0.7  # at temperature 0, a repeated request returns the same answer
GREY_SIDE = 336  # width and height of the blank picture in pixels


@cache
def grey_picture() -> Picture:
    """Returns a blank grey picture."""
    return BytesPicture.plain("grey", GREY_SIDE)


@dataclass
class ServerCaptions:
    """Builds the request stages for captioning with a server, and processes the answers.

    Each picture needs one request per sample, each with its own seed. ``drop_guesses`` adds two requests, which score
    the chosen caption given the picture and given a grey picture. ``chooser`` is required for ``best_of``, and for a
    consensus with ``scorer_weight``.
    """

    backend: Backend
    prompt: str
    decoding: Decoding
    best_of: int | None = None
    drop_guesses: bool = False
    prompts: Prompts | None = None
    chooser: BestOf | None = None
    schema: AnswerSchema | None = None
    claims: bool = False
    lost: int = 0  # number of invalid samples for pictures that have a caption
    unspelled: int = 0
    _chosen: dict[str, Written] = field(default_factory=dict)  # by item id, until the caption is written
    _tokens: dict[tuple[str, str], Tokens] = field(default_factory=dict)  # by item id and stage, if ``claims`` is set
    _pictures: dict[str, PictureRecord | None] = field(default_factory=dict)  # recorded before the request is sent
    _lock: threading.Lock = field(default_factory=threading.Lock)  # only one thread at a time uses the scorer

    def __post_init__(self) -> None:
        samples = self.best_of or self.decoding.drawn.samples
        self.samples = [self._sample(number, samples) for number in range(samples)]
        scores = [self._score(name, blank) for name, blank in (("own", False), ("grey", True)) if self.drop_guesses]
        self.stages = [*self.samples, *scores]

    @property
    def chooses(self) -> bool:
        """Returns whether one caption is chosen from several samples."""
        return self.best_of is not None or self.decoding.kind == "consensus"

    def trouble(self, done: Boosted) -> str | None:
        """Returns why a picture has no caption, or None if it has one. A caption can be chosen if at least one sample
        is valid.
        """
        good = [stage for stage in self.samples if stage.name in done.texts]
        if not done.bad or (self.chooses and good and not done.unanswered):
            return None
        self._chosen.pop(done.item.id, None)
        reasons = sorted(done.bad.values(), key=lambda why: not why.startswith("no answer: "))
        return reasons[0]

    def written(self, done: Boosted) -> Written:
        """Returns the chosen caption after all edits have been applied."""
        self.lost += sum(stage.name in done.bad for stage in self.samples)
        found = self._choose(done.item, done.texts)
        self._chosen.pop(done.item.id, None)
        if (picture := self._pictures.pop(done.item.id, None)) is not None:
            found = replace(found, picture=picture.if_unchanged(done.item.picture))
        found = self._without_guesses(found, done) if self.drop_guesses else found
        if not self.claims:
            return found
        samples = [
            Sample(self._caption(done.texts[name]), self._tokens.pop((done.item.id, name), ()))
            for name in (stage.name for stage in self.samples)
            if name in done.texts
        ]
        return replace(found, claims=claim_confidences(samples, found.texts))

    def _without_guesses(self, found: Written, done: Boosted) -> Written:
        own, grey = json.loads(done.texts["own"]), json.loads(done.texts["grey"])
        if own is None or grey is None:
            self.unspelled += 1
            return found
        text = soften(found.caption, [a - b < EVIDENCE for a, b in zip(own, grey, strict=True)])
        return replace(found, caption=text, candidates=(), samples=(text,))

    def load(self, pictures: Sequence[Item]) -> tuple[Load, Load, Load]:
        """Returns three estimates of the server's load: the minimum, the load with one choice per request, and the
        maximum.
        """
        first = self.samples[0].build_request(pictures[0], {})
        scores = Load()
        if self.drop_guesses:  # the length of the scored caption is not known yet
            scores = Load.of([self._scoring(pictures[0], "", False)]) + Load(0, first.max_tokens, 0)
        each, together = len(self.samples), min(len(self.samples), most_choices(self.backend))
        fewest = Load.of([first]) * -(-each // together)
        fewest = Load(fewest.requests, fewest.tokens_in, first.max_tokens * each)
        singly = Load.of([first]) * each
        found = fewest + scores * 2, singly + scores * 2, singly * 2 + scores * 2
        few, one_each, most = (load * len(pictures) for load in found)
        return few, one_each, most

    def announcement(self, todo: Sequence[Item], ledger: Path) -> str:
        """Returns the expected and maximum number of requests, and their cost."""
        few, one_each, most = self.load(todo)
        several = few.requests != one_each.requests
        note = f" ({one_each.requests:,} if the server returns only one choice per request)" if several else ""
        line = f"{self.backend.name}: {estimate_line(few, most, self.backend, note)}"
        return f"{line}; answers in {ledger} are not requested again" if ledger.is_file() else line

    def _asked(self, item: Item) -> str:
        prompt = self.prompt if self.prompts is None else self.prompts.by_id[item.id]
        return prompt if self.schema is None else self.schema.prompt(prompt)

    def _caption(self, answer: str) -> str:
        """Returns the caption in an answer, without Markdown: one line, or with ``paragraphs=keep``, one line per
        paragraph.
        """
        return tidy_lines(without_markdown(answer), self.decoding.paragraphs)

    def _check(self, text: str) -> str | None:
        return unusable(self._caption(text)) if self.schema is None else self.schema.trouble(text)

    def _sample(self, number: int, samples: int) -> Stage:
        """Returns the stage that requests one sample."""
        sampled = self.best_of is not None or self.decoding.kind != "greedy"

        def request(item: Item, temperature: float | None, seed: int | None) -> Request:
            if item.id not in self._pictures:
                self._pictures[item.id] = PictureRecord.of(item.picture)
            messages, most = (Message("user", self._asked(item)),), self.decoding.max_tokens
            return Request(
                messages, item.picture, temperature, most, seed=seed, truth=item.truth,
                logprobs=self.decoding.confidence > 0 or self.claims,
                item=item.id,
                lenient=not self.decoding.confidence,
                schema="" if self.schema is None else self.schema.text,
            )  # fmt: skip

        temperature, seed = (self.decoding.temperature, number) if sampled else (None, None)
        name = f"caption.{number}" if number else "caption"

        def edit(item: Item, _: Mapping[str, str], answer: Answer, text: str) -> str:
            if self.claims:
                self._tokens[item.id, name] = answer.tokens
            return self._confident(answer, text) if self.decoding.confidence else text

        return Stage(
            name,
            self.backend,
            self.prompt,
            lambda item, _: request(item, temperature, seed),
            lambda item, answers, text: self._check(text),
            lambda item, _, bad: request(item, max(RETRY_TEMPERATURE, temperature or 0.0), samples + number),
            edit,
            group="caption" if sampled else "",
        )

    def _confident(self, answer: Answer, text: str) -> str:
        """Removes nouns whose probability is below ``confidence``, and repetitions."""
        text = " ".join(text.split())
        words = content_words(text)
        log_probs = word_log_probs(text, words, answer.tokens)
        if log_probs is None:
            with self._lock:
                self.unspelled += 1
            return text
        least = math.log(self.decoding.confidence)
        doubted = [word.kind == "head" and value < least for word, value in zip(words, log_probs, strict=True)]
        return without_repeats(soften(text, doubted))

    def _score(self, name: str, blank: bool) -> Stage:
        """Returns the stage that scores the chosen caption. The stage's text is JSON: the words' log-probabilities, or
        null.
        """

        def request(item: Item, texts: Mapping[str, str]) -> Request:
            return self._scoring(item, self._choose(item, texts).caption, blank)

        def log_probs(item: Item, texts: Mapping[str, str], answer: Answer, _: str) -> str:
            caption = self._choose(item, texts).caption
            return json.dumps(word_log_probs(caption, content_words(caption), answer.tokens))

        return Stage(
            name, self.backend, self.prompt, request, lambda item, texts, text: None,
            lambda item, texts, bad: request(item, texts), log_probs,
        )  # fmt: skip

    def _scoring(self, item: Item, caption: str, blank: bool) -> Request:
        messages = Message("user", self._asked(item)), Message("assistant", caption)
        return Request(messages, grey_picture() if blank else item.picture, max_tokens=1, scored=True)

    def _choose(self, item: Item, texts: Mapping[str, str]) -> Written:
        """Chooses a picture's caption from its samples. Raises `BackendError` if it has no samples."""

        with self._lock:
            if item.id in self._chosen:
                return self._chosen[item.id]
            captions = tuple(self._caption(texts[one.name]) for one in self.samples if one.name in texts)
            if not captions:
                raise BackendError("no caption to score")
            if self.best_of is not None:
                assert self.chooser is not None
                (ranked,) = self.chooser.rank([item], [captions])
                found = Written(item, ranked[0][0], ranked)
            elif self.decoding.kind == "consensus":
                if self.chooser is not None:
                    (text,) = self.chooser.consensus([item], [captions], self.decoding.scorer_weight)
                else:
                    text = consensus(captions)
                found = Written(item, text)
            elif self.schema is not None:
                value = self.schema.value(texts[self.samples[0].name])
                found = Written(item, caption_in(value), structured=value)
            else:
                found = Written(item, captions[0], samples=captions)
            self._chosen[item.id] = found
            return found


def word_log_probs(text: str, words: Sequence[Word], tokens: Sequence[tuple[str, float]]) -> list[float] | None:
    """Returns each word's log-probability, summed over its tokens, or None if the tokens do not spell the text."""
    spans = spelled_spans(text, [piece.encode("utf-8", "surrogateescape") for piece, _ in tokens])
    if spans is None:
        return None
    found = [0.0] * len(words)
    for span, (_, log_p) in zip(spans, tokens, strict=True):
        if (number := word_of_span(span, words)) >= 0:
            found[number] += log_p
    return found
