"""BLEU and ROUGE-L: by hand, against their definitions word by word, and against the reference tool."""

from __future__ import annotations

import math
import subprocess
import sys
from functools import partial
from pathlib import Path

import hostile
import numpy as np
import plain_metrics as plain
import pytest
from coco_tools import needs_tools, scores
from hypothesis import HealthCheck, Phase, assume, given, settings
from hypothesis import strategies as st
from real_data import DATA

from tellapart.errors import UsageError
from tellapart.evaluation.evaluate import evaluate
from tellapart.metrics import bleu, cider_d, ptb_tokenize, rouge_l
from tellapart.metrics.bleu_score import bleu_of, bleu_stats, bleus
from tellapart.metrics.corpus_scores import Sums

WORDS = st.sampled_from(["a", "dog", "cat", "on", "the", "mat", "runs", "red"])
SENTENCE = st.lists(WORDS, max_size=9).map(" ".join)
PAIRS = st.lists(st.tuples(SENTENCE, st.lists(SENTENCE, min_size=1, max_size=4)), min_size=1, max_size=6)

# (captions, references) that hurt: nothing said, nothing told, one word, only punctuation, long, not English.
HURTING: list[tuple[list[str], list[list[str]]]] = [
    ([""], [["a dog"]]),
    (["a dog", "x"], [[""], ["x"]]),
    (["", "a dog"], [["", "a"], ["a dog", ""]]),
    (["dog", "cat cat cat cat"], [["dog"], ["cat cat"]]),
    ([".", "!!!", "a (dog) [here]"], [["..."], ["! ?"], ["a (dog)"]]),
    (["word " * 300, "a b"], [["word " * 7, "x"], ["a b c d"]]),
    (["a 😀 dog", "日本語 の 猫"], [["a dog"], ["日本語 猫", "cat"]]),
    (['it\'s http://a.b/c "so" 1 1/2', "don't"], [["it is 1 1/2 so"], ["do not", "don't"]]),
    (["the same", "the same"], [["the same"], ["the same"]]),
]


def test_bleu_by_hand() -> None:
    # "the the the": one of three matches; the closest reference has three words.
    corpus, (value,) = bleu(["the the the"], [["the dog runs", "a b c d e f"]], n=1)
    assert corpus == pytest.approx(1 / 3) and value == pytest.approx(1 / 3)
    # Two words against four: brevity exp(1 - 4/2), all of one bigram.
    assert bleu(["a dog"], [["a dog runs fast"]], n=2)[0] == pytest.approx(math.exp(-1), rel=1e-6)
    # Of references of 2 and 4 words, three words have the shorter one as their closest: no penalty.
    assert bleu(["a dog runs"], [["a dog", "a dog runs fast"]], n=3)[0] == pytest.approx(1)


def test_the_corpus_number_is_not_the_mean() -> None:
    corpus, values = bleu(["a b c d", "x"], [["a b c d"], ["y z"]], n=1)
    assert corpus == pytest.approx(4 / 5 * math.exp(1 - 6 / 5), rel=1e-6)
    assert values == pytest.approx([1, 0], abs=1e-6)


def test_rouge_by_hand() -> None:
    # "a c" of "a b c": precision 2/3, recall 2/2 of the reference "a c".
    p, r = 2 / 3, 1.0
    assert rouge_l(["a b c"], [["a c"]])[0] == pytest.approx((1 + 1.44) * p * r / (r + 1.44 * p))
    assert rouge_l(["a b c"], [["c b a"]])[0] == pytest.approx(1 / 3)


@settings(max_examples=60, deadline=None)
@given(PAIRS)
def test_the_fast_paths_are_the_plain_ones(pairs: list[tuple[str, list[str]]]) -> None:
    captions, references = [caption for caption, _ in pairs], [held for _, held in pairs]
    counts = [plain.bleu_counts(c.split(), [r.split() for r in held]) for c, held in pairs]
    corpus, values = bleus(captions, references)
    summed = (
        sum(c[0] for c in counts),
        sum(c[1] for c in counts),
        [sum(column) for column in zip(*(c[2] for c in counts), strict=True)],
        [sum(column) for column in zip(*(c[3] for c in counts), strict=True)],
    )
    for n in range(1, 5):
        assert corpus[n - 1] == pytest.approx(plain.bleu(summed, n), abs=1e-12)
        assert values[n - 1] == pytest.approx([plain.bleu(c, n) for c in counts], abs=1e-12)
        assert (bleu(captions, references, n)[1] == values[n - 1]).all()
    wanted = [plain.rouge_l(c.split(" "), [r.split(" ") for r in held]) for c, held in pairs]
    assert rouge_l(captions, references)[1] == pytest.approx(wanted, abs=1e-12)


def test_the_statistic_is_bleu_of_the_captions_as_often_as_they_weigh() -> None:
    captions = ["a dog runs", "the cat", "a red mat on the mat"]
    references = [["a dog runs fast", "dogs run"], ["the cat sits"], ["a mat on the red mat"]]
    often = [2, 0, 3]
    repeated = [number for number, times in enumerate(often) for _ in range(times)]
    for n in (1, 4):
        statistic = Sums(bleu_stats(captions, references), partial(bleu_of, n=n))
        whole = bleu([captions[i] for i in repeated], [references[i] for i in repeated], n)[0]
        assert statistic(np.array(often, float)) == pytest.approx(whole)
        assert statistic(np.ones(3)) == bleu(captions, references, n)[0]


def test_results_do_not_hang_on_what_was_asked_before() -> None:
    captions, references = ["a dog"], [["a dog", "a cat"]]
    first = bleu(captions, references, 1)[0]
    captions[0] = "x y"
    assert bleu(captions, references, 1)[0] != first
    references[0].append("x y")
    assert bleu(captions, references, 1)[0] == pytest.approx(1)


@pytest.mark.parametrize("function", [bleu, rouge_l, cider_d])
def test_what_does_not_fit_is_said(function) -> None:  # type: ignore[no-untyped-def]
    with pytest.raises(UsageError, match=r"2 captions and 1 lists"):
        function(["a", "b"], [["a"]])
    with pytest.raises(UsageError, match=r"^references\[1\]: expected a list .*; 1 of 2 captions have no reference$"):
        function(["a", "b"], [["a"], []])
    with pytest.raises(UsageError, match=r"^references\[1\]: .*; 2 of 4 captions have no reference$"):
        function(["a", "b", "c", "d"], [["a"], [], ["c"], []])
    with pytest.raises(UsageError, match=r"^references\[0\]: .*; 1 of 1 captions have no reference$"):
        function(["a"], ["a"])


def test_bleu_of_five_is_refused() -> None:
    with pytest.raises(UsageError, match="BLEU-5"):
        bleu(["a"], [["a"]], n=5)


def test_evaluation_prints_them_times_a_hundred_with_signatures() -> None:
    captions = {"1": "a dog runs on grass", "2": "a cat on a red mat"}
    references = {"1": ["a dog runs on the grass", "dog"], "2": ["a cat on a mat", "the cat"]}
    names = ["bleu1", "bleu2", "bleu3", "bleu4", "rouge_l", "cider", "cider_plain"]
    results = evaluate({"s": captions}, references=references, metrics=names, resamples=50)
    texts, held = list(captions.values()), list(references.values())
    for n in range(1, 5):
        assert results.systems["s"][f"bleu{n}"].value == pytest.approx(100 * bleu(texts, held, n)[0])
    assert results.systems["s"]["cider"].value == pytest.approx(100 * cider_d(texts, held)[0])
    for name in names:
        interval = results.systems["s"][name]
        assert interval.low <= interval.value <= interval.high
        assert results.signatures[name].startswith(f"{name}|") and "tok:ptb" in results.signatures[name]
    assert "idf:references" in results.signatures["cider"]


def test_the_command_does_not_load_torch(tmp_path: Path) -> None:
    (tmp_path / "c.txt").write_text("a dog\na cat\n")
    (tmp_path / "r.txt").write_text("a dog\tdogs\nthe cat\tcats\n")
    script = (
        "import sys; from tellapart.evaluation.run_eval import run_eval; "
        "from pathlib import Path; from tellapart.evaluation.options import EvalOptions; "
        "names = ['bleu4', 'rouge_l', 'cider', 'cider_plain']; "
        "run_eval(EvalOptions([Path('c.txt')], Path('r.txt'), metrics=names)); "
        "print('torch' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", script], cwd=tmp_path, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"


@needs_tools
@pytest.mark.oracle
@pytest.mark.parametrize("captions, references", HURTING)
def test_input_that_hurts_is_scored_as_the_tool_does(captions: list[str], references: list[list[str]]) -> None:
    told = scores(captions, references)
    corpus, values = bleus(captions, references)
    assert corpus == pytest.approx(told["bleu"][0], abs=1e-9)
    assert values == pytest.approx(told["bleu"][1], abs=1e-9)
    assert rouge_l(captions, references)[1] == pytest.approx(told["rouge_l"][1], abs=1e-9)
    assert cider_d(captions, references)[1] == pytest.approx(told["cider"][1], abs=1e-9)


_TEXT = (
    hostile.SENTENCE
    | hostile.SENTENCE
    | hostile.FREE
    | st.sampled_from(["", ".", "dog", "a dog " * 150, "(a) [b] {c}", "the dog n't"])
)
_PICTURE = st.tuples(_TEXT, st.lists(_TEXT, min_size=1, max_size=3)) | _TEXT.map(lambda text: (text, [text, "a dog"]))


@needs_tools
@pytest.mark.oracle
@settings(
    max_examples=5, deadline=None, derandomize=True, phases=[Phase.generate], suppress_health_check=list(HealthCheck)
)
@given(st.lists(_PICTURE, min_size=80, max_size=160) | st.lists(_PICTURE, min_size=1, max_size=1))
def test_hostile_text_is_scored_as_the_tool_does(pictures: list[tuple[str, list[str]]]) -> None:
    captions, references = [caption for caption, _ in pictures], [held for _, held in pictures]
    assume(any(ptb_tokenize([text for held in references for text in held])))  # without a word the tool's CIDEr dies
    told = scores(captions, references)
    corpus, values = bleus(captions, references)
    assert corpus == pytest.approx(told["bleu"][0], abs=1e-9)
    assert np.abs(values - told["bleu"][1]).max() < 1e-9
    for function, name in ((rouge_l, "rouge_l"), (cider_d, "cider")):
        whole, each = function(captions, references)
        assert whole == pytest.approx(told[name][0], abs=1e-9), name
        assert np.abs(each - told[name][1]).max() < 1e-9, name


PUBLISHED = [
    ("clipcap_coco_on_coco.txt", "references_coco_karpathy_test.txt", 32.60, 108.55),
    ("clipcap_coco_on_flickr30k.txt", "references_flickr30k_karpathy_test.txt", 17.21, 41.65),
    ("clipcap_concap_on_coco.txt", "references_coco_karpathy_test.txt", 8.50, 37.03),
]


def published(captions: str, references: str) -> tuple[list[str], list[list[str]]]:
    folder = DATA / "published"
    lines = (folder / references).read_text().removesuffix("\n").split("\n")
    return (folder / captions).read_text().removesuffix("\n").split("\n"), [line.split("\t") for line in lines]


@pytest.mark.data
@pytest.mark.parametrize("captions, references, bleu4, cider", PUBLISHED)
def test_the_published_rows(captions: str, references: str, bleu4: float, cider: float) -> None:
    said, held = published(captions, references)
    assert 100 * bleu(said, held)[0] == pytest.approx(bleu4, abs=0.02)
    assert 100 * cider_d(said, held)[0] == pytest.approx(cider, abs=0.02)


@needs_tools
@pytest.mark.oracle
@pytest.mark.data
@pytest.mark.long
@pytest.mark.parametrize("captions, references", [row[:2] for row in PUBLISHED])
def test_every_published_caption_is_scored_as_the_tool_does(captions: str, references: str) -> None:
    said, held = published(captions, references)
    told = scores(said, held)
    corpus, values = bleus(said, held)
    assert corpus == pytest.approx(told["bleu"][0], abs=1e-9)
    for ours, theirs in (
        (values, told["bleu"][1]),
        (rouge_l(said, held)[1], told["rouge_l"][1]),
        (cider_d(said, held)[1], told["cider"][1]),
    ):
        assert np.abs(ours - theirs).max() < 1e-9
