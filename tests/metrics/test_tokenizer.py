"""The PTB tokenizer: known answers, what its cache must not change, and the tool itself on real and hostile text."""

from __future__ import annotations

import json
import random
from collections.abc import Iterator
from typing import Any

import pytest
from coco_tools import needs_tools, tokenize
from hostile import FREE, SENTENCE
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from real_data import DATA

from tellapart.metrics import ptb_tokenize
from tellapart.metrics.ptb import SPECIAL_WORDS

KNOWN = {
    "A man riding a motor-cycle, on a dirt road.": "a man riding a motor-cycle on a dirt road",
    "": "",
    "  \t ": "",
    ". , ; : ! ? -- - ... \" ' `": "",
    "!!! ?! a!": "!!! ?! a",
    "It's the dog's; they don't, can't, I'd've": "it 's the dog 's they do n't ca n't i 'd 've",
    "it’s n’t": "it 's n't",
    "gonna gotta cannot Wanna gonna's": "gon na got ta can not wan na gonna 's",
    "'tis the '90s rock 'n' roll o'clock O'Brien": "'t is the '90s rock 'n' roll o'clock o'brien",
    "a (small) [dog] {here}": "a -lrb- small -rrb- -lsb- dog -rsb- -lcb- here -rcb-",
    "Mr. X of Inc. at St. Y, Jan. 5": "mr. x of inc. at st. y jan. 5",
    "Mass. is mass. Ore. is ore.": "mass. is mass ore. is ore",
    "No. 5 but no. We": "no. 5 but no we",
    "the U.S. Army e.g. at 10 a.m. today.": "the u.s. army e.g. at 10 a.m. today",
    "Plan B. The end of plan B. the": "plan b the end of plan b. the",
    "1,000.50 1/2 12:30pm 3-2-2001 5% $5 -5": "1,000.50 1/2 12:30 pm 3-2-2001 5 % $ 5 -5",
    "1 1/2 cups": "1\u00a01/2 cups",
    "call (800) 555-1234": "call -lrb-800-rrb-\u00a0555-1234",
    "½ £5 5¢ €5": "1/2 # 5 5 cents $ 5",
    "#hash @user a@b.com http://x.com/a?b=c www.foo.com": "#hash @user a@b.com http://x.com/a?b=c www.foo.com",
    "stop.Then go.There!Now": "stop.then go.there!now",
    "table.,chair": "table. chair",
    "AT&T at&t A&amp;M": "at&t at & t a&m",
    ":) :-( <3 <b>x</b>": ":-rrb- :--lrb- < 3 <b> x </b>",
    "a😀b 👍 日本語。Привет": "a b 日本語 。 привет",
    "w/o and/or a\\/b a/b/c/d": "w/o and/or a\\/b a/b/c / d",
    "cat,dog and cat,dog-fish": "cat dog and cat,dog-fish",
    "Cat,dog-fish's 3,dog-4a. cat,dog--x cat,-dog": "cat,dog-fish 's 3,dog-4a cat dog x cat,-dog",
    "café,dog-fish o'clock,dog-fish don't,dog-fish": "café dog-fish o'clock dog-fish do n't dog-fish",
    "black-and-white/red-and-blue-and-green a-b-c-d/e": "black-and-white/red-and-blue and-green a-b-c-d / e",
    "(^_^) <_< x_- (--) x.x :*) :3 ;3": "-lrb-^_^-rrb- <_< x_- -lrb----rrb- x.x :*-rrb- :3 3",
    "foo.JPG 1.C": "foo.jpg 1.c",
    "“quoted” ‘text’ a–b a—b": "quoted text a b a b",
    "ﬁne soft\u00adhyphen naïve": "ﬁne softhyphen naïve",
    "a ph.d. PH.D. Ph.D., ed.d. Bancorp. and ph.d.s here": "a ph.d. ph.d. ph.d. ed.d. bancorp. and ph.d. s here",
    "MFG. MTG. PTE. PTY. mfg. Mtg. Pte. ptyS. x": "mfg mtg pte pty mfg. mtg. pte. ptys. x",
    "of inc.s and ltd.s here": "of inc. s and ltd. s here",
    "<a href=foo> <b c='d e'>": "< a href = foo > <b\u00a0c='d\u00a0e'>",
    "plan B. <b> The plan B. <b>x": "plan b <b> the plan b. <b> x",
    "x" * 500: "x" * 500,
}


@pytest.mark.parametrize("text", KNOWN)
def test_known_answers(text: str) -> None:
    assert ptb_tokenize([text]) == [KNOWN[text]]


@pytest.mark.parametrize("end", ["\n", "\r", "\r\n", "\x0b", "\x0c", "\u2028", "\u2029"])
def test_a_line_end_inside_a_text_is_a_blank(end: str) -> None:
    assert ptb_tokenize([f"a{end}b {end} c{end}", "e"]) == ["a b c", "e"]
    assert ptb_tokenize([f"a <b> c{end}d", "e"]) == ["a <b> c d", "e"]  # by the slow path


@needs_tools
@pytest.mark.oracle
def test_a_line_end_inside_a_caption_shifts_the_tools_lines_and_not_ours() -> None:
    """pycocoevalcap takes out line feeds only; after any other line end each caption gets its neighbour's words."""
    from pycocoevalcap.tokenizer.ptbtokenizer import PTBTokenizer

    captions = {0: [{"caption": "a man\r\nand a dog"}], 1: [{"caption": "a cat"}], 2: [{"caption": "a bird"}]}
    assert PTBTokenizer().tokenize(captions) == {0: ["a man"], 1: ["and a dog"], 2: ["a cat"]}
    assert ptb_tokenize([found[0]["caption"] for found in captions.values()]) == ["a man and a dog", "a cat", "a bird"]


@needs_tools
@pytest.mark.oracle
def test_every_abbreviation_is_as_the_tool_has_it() -> None:
    texts = []
    for word in sorted(SPECIAL_WORDS):
        for form in dict.fromkeys((word, word.upper(), word.capitalize(), word[:-1] + word[-1].upper())):
            texts += [f"x {form}. y", f"x {form}.s y", f"{form}.-x y", f"x {form}.' y", f"x {form}.5 y", f"{form}.x"]
    for tag in ("<b>", "</b>", "<br/>", "<a href='x y'>", "<a x=5>", "<b"):
        texts += [
            f"x {initial}.{gap}{tag}{end}"
            for initial in ("B", "b", "AB")
            for gap in ("", " ")
            for end in ("", " The", "x")
        ]
        texts += ["a B.", f"{tag} x", "a b. ", f" {tag} x"]
    _same(texts)


def test_an_initial_at_the_end_looks_at_the_next_text() -> None:
    assert ptb_tokenize(["a Wii U.", "A man"]) == ["a wii u", "a man"]
    assert ptb_tokenize(["a Wii U.", "a man"]) == ["a wii u.", "a man"]
    assert ptb_tokenize(["a Wii U."]) == ["a wii u."]
    assert ptb_tokenize(["the no.", "5 of it"]) == ["the no.", "5 of it"]
    assert ptb_tokenize(["the no.", "of it"]) == ["the no", "of it"]


def test_asking_twice_gives_the_same() -> None:
    texts = [*KNOWN, "Dr. No. 1 1/2 gonna", "no. x"]
    assert ptb_tokenize(texts) == ptb_tokenize(texts)
    shuffled = random.Random(0).sample(list(KNOWN), len(KNOWN))
    assert dict(zip(shuffled, ptb_tokenize(shuffled), strict=True)) == KNOWN


def _same(texts: list[str]) -> None:
    wanted = tokenize(texts)
    wrong = [
        (text, want, got) for text, want, got in zip(texts, wanted, ptb_tokenize(texts), strict=True) if want != got
    ]
    assert not wrong, f"{len(wrong)} of {len(texts)}: {wrong[:5]}"


@needs_tools
@pytest.mark.oracle
def test_the_known_answers_are_the_tools() -> None:
    texts = [text for text in KNOWN if "\n" not in text]
    assert tokenize(texts) == [KNOWN[text] for text in texts]


@needs_tools
@pytest.mark.oracle
@pytest.mark.data
def test_every_caption_of_the_real_data_is_as_the_tool_has_it() -> None:
    texts = [" ".join(text.split("\n")).replace("\r", " ") for text in dict.fromkeys(real_texts())]
    assert len(texts) > 85_000
    _same(texts)


def real_texts() -> Iterator[str]:
    """Captions of COCO, Flickr8k and Flickr30k, of published systems, of ImageCoDe, MSVD and MSR-VTT."""
    for name in ("annotations/coco_karpathy_test.json", "coco280/captions.json"):
        yield from (found["caption"] for found in json.loads((DATA / name).read_text())["annotations"])
    for line in (DATA / "flickr8k/Flickr8k.token.txt").read_text().splitlines():
        yield line.split("\t", 1)[1]
    for path in sorted((DATA / "published").glob("*.txt")):
        for line in path.read_text().split("\n"):
            yield from line.split("\t")
    for name in ("published/capenrich_coco.json", "annotations/captions_val2014_fakecap_results.json"):
        yield from (found["caption"] for found in json.loads((DATA / name).read_text()))
    yield from _strings(json.loads((DATA / "annotations/imagecode_valid.json").read_text()))
    yield from _strings(json.loads((DATA / "clips/references.json").read_text()))


def _strings(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, (list, dict)):
        for inner in value.values() if isinstance(value, dict) else value:
            yield from _strings(inner)


@needs_tools
@pytest.mark.oracle
@settings(
    max_examples=10, deadline=None, derandomize=True, phases=[Phase.generate], suppress_health_check=list(HealthCheck)
)
@given(st.lists(SENTENCE | FREE, min_size=100, max_size=200))
def test_hostile_text_is_as_the_tool_has_it(texts: list[str]) -> None:
    _same(texts)
