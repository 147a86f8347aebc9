"""Extracts objects, attributes and relations from any English caption, using rules over part-of-speech tags.

A noun phrase is a run of content words: its last noun is the object, and the words before the noun are attributes.
Words between two phrases (a preposition, a verb, or both) form a relation. A verb without an object is an action of its
subject. "The dog" refers to an earlier dog unless an attribute contradicts that. The only built-in vocabulary is
English function words. Names, negation and pronouns that refer to another sentence are handled poorly (see
`docs/howto/long-captions.md`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache

from tellapart.language.english_words import number_of, word_set
from tellapart.language.noun_phrases import RELATIVE, complex_preposition, content_run, phrase_end, split_head
from tellapart.language.tagged_words import TaggedWord, sentences

# A caption's claims: objects, attributes of objects, and relations between objects.


@dataclass(frozen=True, slots=True)
class Attribute:
    """An object's attribute: "red", or "jump left" for "jumps left". ``action``: whether the attribute comes from a
    verb.
    """

    text: str
    lemma: str
    spans: tuple[tuple[int, int], ...]
    action: bool = False


@dataclass(slots=True)
class ObjectMention:
    """An object that the caption mentions. ``count`` is the value of its numeral (2 for "two dogs")."""

    text: str
    lemma: str
    spans: list[tuple[int, int]]
    attributes: list[Attribute] = field(default_factory=list)
    count: int = 1
    count_span: tuple[int, int] | None = None

    def add(self, attribute: Attribute) -> None:
        """Adds an attribute. If the object already has it, only adds the new positions."""
        for number, own in enumerate(self.attributes):
            if own.lemma == attribute.lemma:
                self.attributes[number] = Attribute(own.text, own.lemma, own.spans + attribute.spans, own.action)
                return
        self.attributes.append(attribute)


@dataclass(frozen=True, slots=True)
class Relation:
    """A relation between mentions, which are given by index. "between" has two objects.

    ``text`` is the wording in the caption; ``lemma`` leaves out auxiliaries.
    """

    text: str
    lemma: str
    subject: int
    objects: tuple[int, ...]
    span: tuple[int, int]


@dataclass(frozen=True, slots=True)
class Extraction:
    """A caption's claims. ``loose`` contains the attributes without an object."""

    mentions: tuple[ObjectMention, ...]
    relations: tuple[Relation, ...]
    loose: tuple[Attribute, ...] = ()


# "A photo of a dog" and "the image shows a dog" are about a dog.
_ABOUT = word_set("""
    image picture photo photograph scene view shot close-up closeup illustration drawing painting clip video footage
    graphic icon rendering depiction snapshot
""")
_GROUPS = word_set("group bunch couple pair number lot set collection row variety type kind piece part")
_PLACES = word_set("background foreground")
_NUMBERS = {
    word: number
    for number, word in enumerate(["one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten"], 1)
}
_NO_ACTION = word_set("be have do show depict feature see appear seem contain include find look capture")


@lru_cache(maxsize=65536)
def extract(caption: str) -> Extraction:
    """Extracts a caption's claims. A text without nouns makes no claims. Never raises. Do not modify the result."""
    parser = _ClaimParser()
    for words in sentences(caption):
        parser.sentence(words)
    return Extraction(tuple(parser.mentions), tuple(parser.relations), tuple(parser.loose))


class _ClaimParser:
    def __init__(self) -> None:
        self.mentions: list[ObjectMention] = []
        self.relations: list[Relation] = []
        self.loose: list[Attribute] = []
        self.start_sentence()

    def start_sentence(self) -> None:
        self.current = -1  # the mention that a relation starts from
        self.clause = -1  # the clause's subject
        self.subject = -1  # the last relation's subject: in "a on b and under c", a is the subject of both relations
        self.link: list[TaggedWord] = []  # words since the last mention, which may relate it to the next mention
        self.joined = False  # whether the link contains "and"
        self.copula = False
        self.between: list[int] = []
        self.between_text: list[TaggedWord] = []

    def sentence(self, words: Sequence[TaggedWord]) -> None:
        self.start_sentence()
        at = 0
        while at < len(words):
            if length := complex_preposition(words, at):
                self.link += [replace(word, tag="PRP") for word in words[at : at + length]]
                at += length
            elif at and words[at - 1].text in RELATIVE and words[at].is_a("NN2"):
                self.function_word(replace(words[at], tag="VVZ"))  # the tagger gets "that floats" wrong
                at += 1
            elif end := phrase_end(words, at):
                at = self.phrase(words, at, end)
            else:
                self.function_word(words[at])
                at += 1
        self.close()

    def function_word(self, word: TaggedWord) -> None:
        if word.text in ("and", "or", "&") or (word.after_break and word.is_a("CJ")):
            if self.link or not self.between:
                self.finish_action()
            self.joined = True
        elif word.is_a("VB"):
            self.finite()
            self.copula = True
        elif word.text in RELATIVE or word.is_a("DTQ", "PNQ"):
            self.finish_action()
            self.joined = self.copula = False
            self.clause = self.current
        elif word.is_a("VV", "PRP", "PRF", "AVP", "AV0", "CJS", "POS", "ORD") or word.text in ("to", "'s"):
            if word.after_break and self.link:
                self.finish_action()
            if word.is_a("VVZ", "VVB", "VVD"):
                self.finite()
            self.link.append(word)
        elif word.is_a("PNP", "EX0"):
            self.finish_action()
            self.joined = False
            if word.is_a("PNP") and self.current < 0 and self.mentions:
                self.current = 0

    def finite(self) -> None:
        """Assigns a finite verb to the clause's subject: in "a boy in a red shirt is riding", the boy is riding."""
        if self.clause >= 0 and not self.link and not self.between and not self.joined:
            self.current = self.clause

    def phrase(self, words: Sequence[TaggedWord], start: int, end: int) -> int:
        """Reads the noun phrase words[start:end] and returns its end."""
        lead = start
        count, count_word, definite = 1, None, False
        while lead < end and words[lead].is_a("AT", "DT", "DPS", "CRD"):
            word = words[lead]
            definite = definite or word.text == "the"
            if word.is_a("CRD"):
                number = _NUMBERS.get(word.text, number_of(word.text))
                count, count_word = 1 if number is None else number, word
            lead += 1
        run, end, verb = content_run(words, lead, end)
        if not run:
            return max(end, start + 1)
        head, before = split_head(run, article=lead > start and words[lead - 1].is_a("AT"))
        if head is None:
            self.predicate(run, leading=lead > start)
            return end
        if head.lemma in _ABOUT and self.is_about(words, end):
            self.link, self.copula = [], False
            return end
        if head.lemma in _GROUPS and end < len(words) and words[end].is_a("PRF"):
            return end + 1  # the object of "a group of people" is the people
        if head.lemma in _PLACES:
            self.link = []
            return end
        mention = self.mention(head, before, 1 if count > 20 else count, count_word, definite)
        self.relate(mention)
        if verb is not None:
            self.function_word(replace(verb, tag="VVZ"))
            return end + 1
        return end

    def is_about(self, words: Sequence[TaggedWord], end: int) -> bool:
        """Returns whether a noun such as "image" introduces what follows, because "of" or a verb comes next."""
        following = words[end] if end < len(words) else None
        return following is not None and (following.is_a("PRF", "VV", "VH") or following.lemma in _NO_ACTION)

    def mention(
        self, head: TaggedWord, before: Sequence[TaggedWord], count: int, count_word: TaggedWord | None, definite: bool
    ) -> int:
        attributes = [Attribute(w.text, w.lemma, ((w.start, w.end),)) for w in before]
        at = self.earlier(head, attributes) if definite else -1
        if at < 0:
            span = (count_word.start, count_word.end) if count_word is not None else None
            self.mentions.append(ObjectMention(head.text, head.lemma, [], [], count, span))
            at = len(self.mentions) - 1
        self.mentions[at].spans.append((head.start, head.end))
        for attribute in attributes:
            self.mentions[at].add(attribute)
        return at

    def earlier(self, head: TaggedWord, attributes: Sequence[Attribute]) -> int:
        """Returns the last mention that "the red dog" can refer to, or -1. The noun must be the same and the mention
        must have all of these attributes, if any are given.
        """
        wanted = {attribute.lemma for attribute in attributes}
        for at in range(len(self.mentions) - 1, -1, -1):
            old = self.mentions[at]
            if old.lemma == head.lemma and (not wanted or wanted <= {own.lemma for own in old.attributes}):
                return at
        return -1

    def predicate(self, run: Sequence[TaggedWord], leading: bool) -> None:
        """Assigns adjectives without a noun to the subject if they follow "is", otherwise to no object."""
        for word in run:
            attribute = Attribute(word.text, word.lemma, ((word.start, word.end),))
            if self.copula and self.current >= 0 and not self.link and not leading:
                self.mentions[self.current].add(attribute)
            else:
                self.loose.append(attribute)

    def relate(self, mention: int) -> None:
        """Uses the words between the subject and a new mention to relate the two, and makes the new mention the current
        mention.
        """
        link, self.link = self.link, []
        text = [word for word in link if not word.is_a("AV0") or word.text in _AMONG]
        if self.between:
            self.close_between(mention, link)
        elif text and self.current >= 0:
            subject = self.subject if self.joined and self.subject >= 0 else self.current
            if any(word.text in ("between", "amid") or word.text == "flanked" for word in text):
                self.between, self.between_text, self.subject = [subject, mention], link, subject
            else:
                self.add_relation(link, subject, mention)
        elif self.copula and self.current >= 0 and not self.joined:
            # In "the animal is a dog", both nouns name the same object.
            self.subject = self.current
        else:
            self.subject = self.clause = mention
        if self.clause < 0 or (self.clause == self.current and any(word.is_a("POS") for word in link)):
            self.clause = mention  # in "the dog's collar is red", the collar is the subject
        self.current, self.joined, self.copula = mention, False, False

    def close_between(self, mention: int, link: Sequence[TaggedWord]) -> None:
        """Completes "between" with its second object, or ends it if something else follows."""
        subject, first = self.between
        words, self.between = self.between_text, []
        if link or not self.joined:
            self.add_relation(words, subject, first)
            if link:
                self.add_relation(link, first, mention)
            return
        span = (words[0].start, words[-1].end)
        self.relations.append(Relation("between", "between", subject, (first, mention), span))

    def add_relation(self, link: Sequence[TaggedWord], subject: int, mention: int) -> None:
        if subject == mention:
            return
        if any(word.is_a("POS") or word.text == "'s" for word in link):
            self.relations.append(_relation("have", [*link], subject, (mention,)))
            return
        verbs = [word for word in link if word.is_a("VV")]
        places = [word for word in link if not word.is_a("VV")]
        by = bool(places) and places[-1].text in ("by", "with", "than") and verbs and verbs[-1].is_a("VVN", "VVD")
        if verbs and any(word.is_a("PRP", "PRF", "CJS") or word.text == "to" for word in places) and not by:
            # "sits on" states both an action and a position.
            self.act(subject, [word for word in verbs if word.lemma not in _NO_ACTION])
            link = places
        lemma = " ".join(word.text if not word.is_a("VV") else word.lemma for word in link)
        self.relations.append(_relation(lemma, link, subject, (mention,)))
        self.subject = subject

    def act(self, subject: int, verbs: Sequence[TaggedWord]) -> None:
        if verbs and subject >= 0:
            text, lemma = (" ".join(getattr(word, name) for word in verbs) for name in ("text", "lemma"))
            spans = tuple((word.start, word.end) for word in verbs)
            self.mentions[subject].add(Attribute(text, lemma, spans, action=True))

    def finish_action(self) -> None:
        """Attaches a verb without an object to its subject: "a star that slides left"."""
        link, self.link = self.link, []
        if self.between:
            subject, first = self.between
            words, self.between = self.between_text, []
            self.add_relation(words, subject, first)
        verbs = [number for number, word in enumerate(link) if word.is_a("VV") and word.lemma not in _NO_ACTION]
        if verbs and self.current >= 0:
            self.act(self.current, link[verbs[0] :])

    def close(self) -> None:
        self.joined = False
        self.finish_action()


_AMONG = word_set("underneath below above behind beneath inside outside beside alongside atop nearby")


def _relation(lemma: str, link: Sequence[TaggedWord], subject: int, objects: tuple[int, ...]) -> Relation:
    text = " ".join(word.text for word in link)
    return Relation(text, lemma, subject, objects, (link[0].start, link[-1].end))
