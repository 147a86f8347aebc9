"""Statistics: counted as in Table 9, with a flat memory, and shown."""

from __future__ import annotations

import json
import statistics as plain
from pathlib import Path

import pytest

from tellapart.boost import statistics as ours
from tellapart.boost.new_words import NewWordShare
from tellapart.boost.scripted import Scripted
from tellapart.boost.stages import STAGE_NAMES, stages
from tellapart.boost.statistics import ANALYSED_ITEMS, MAX_EXAMPLES, Lengths, Statistics
from tellapart.boost.statistics_text import statistics_lines, statistics_table
from tellapart.boost.token_counts import tokens_of
from tellapart.boost.types import Boosted
from tellapart.errors import MissingExtra, UsageError
from tellapart.scenes import Scenes
from tellapart.types import Item

PICTURE = Scenes(1)[0]
DOG = Item("1", PICTURE, ("a brown dog runs", "a dog on the wide green grass of a park"))
TEXTS = {
    "blend": "a brown dog runs on the wide green grass of a park",
    "describe": "an old dog runs in a park with a ball",
    "holistic": "an old brown dog with a shiny ball runs on the wide green grass of a park",
}


def boosted(n: int, error: float = 0.0) -> Statistics:
    backend = Scripted(error)
    made = Statistics()
    for scene in Scenes(n, seed=31):
        item, answers = scene.item(), {}
        for stage in stages(STAGE_NAMES, backend, backend):
            answers[stage.name] = backend.complete(stage.build_request(item, answers)).text
        made.add(Boosted(item, answers))
    return made


def test_words_are_counted_by_caption_and_tokens_by_the_tokenizer() -> None:
    made = Statistics(count_tokens=len)
    made.add(Boosted(DOG, TEXTS))
    made.add(Boosted(DOG, {}, {"blend": "a refusal", "describe": "no answer: timed out", "holistic": "has no answer"}))
    assert (made.words["human"].mean, made.words["human"].sd, made.words["human"].total()) == (7.0, 3.0, 4)
    assert made.words["holistic"].mean == 17 and made.words["blend"].total() == 1
    assert made.tokens["blend"].mean == len(TEXTS["blend"])
    assert made.histogram("human") == [("0–4", 2), ("5–9", 0), ("10–14", 2), ("15–19", 0)]
    assert any("1 of 2 items without a usable answer" in line for line in statistics_lines(made))
    assert any("(1 no answer)" in line for line in statistics_lines(made))


def test_lengths_have_mean_and_standard_deviation() -> None:
    values = [3, 4, 8, 1, 4]
    made = Lengths(values)
    assert made.mean == pytest.approx(plain.fmean(values)) and made.sd == pytest.approx(plain.pstdev(values))
    assert str(made) == "4.0 ±2.3" and str(Lengths()) == "–"


def test_new_words_against_the_references_and_against_what_was_given() -> None:
    pytest.importorskip("HanTa")
    made = Statistics()
    made.add(Boosted(DOG, TEXTS))
    found = made.new_words()
    assert found is not None
    # The describer's own words are old and ball; shiny is in neither source of the holistic caption.
    assert found.in_no_reference == {
        "blend": NewWordShare(0, 7),
        "describe": NewWordShare(2, 5),
        "holistic": NewWordShare(3, 10),
    }
    assert found.in_no_source == {"blend": NewWordShare(0, 7), "holistic": NewWordShare(1, 10)}
    assert found.left_out == NewWordShare(0, 2)
    made.add(Boosted(DOG, {"describe": "a wet dog with a stick", "holistic": "a dog with a stick"}))
    found = made.new_words()
    assert found is not None and found.left_out == NewWordShare(1, 4)
    assert any("omitted 25.0% of the description's words" in line for line in statistics_lines(made))
    assert any(
        "33.3% of content words are in no reference, 8.3% are in none of its sources" in line
        for line in statistics_lines(made)
    )


def test_without_hanta_the_rest_is_there(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing() -> None:
        raise MissingExtra("words", "the word analysis")

    monkeypatch.setattr(ours, "word_analyser", missing)
    made = Statistics()
    made.add(Boosted(DOG, TEXTS))
    assert "pip install 'tellapart[words]'" in "\n".join(statistics_lines(made)) and "new_words" not in made.to_json()


def test_on_scenes_precision_recall_and_errors_are_exact() -> None:
    pytest.importorskip("HanTa")
    quiet, careless = boosted(15), boosted(15, 0.3)
    assert quiet.rate("describe", "correct", "claims") == quiet.rate("human", "correct", "claims") == 100
    assert quiet.errors.made == 0 and careless.errors.made > 30
    assert 0 < careless.errors.kept_out <= careless.errors.contradicted < careless.errors.made
    assert any(line.startswith(f"describer's errors: {careless.errors.made}") for line in statistics_lines(careless))
    told = json.loads(json.dumps(careless.to_json()))
    assert told["describer_errors"]["made"] == careless.errors.made and told["captions"]["describe"]["precision"] < 80
    assert (
        set(told["new_words"]["in_no_reference"]) == set(STAGE_NAMES) and told["captions"]["human"]["words"]["n"] == 75
    )


def test_memory_is_flat_and_the_sample_even() -> None:
    made = Statistics()
    for number in range(10 * ANALYSED_ITEMS):
        made.add(Boosted(Item(str(number), PICTURE, ("a dog",)), {"blend": "a dog"}))
    assert len(made.sample) == ANALYSED_ITEMS and len(made.shown) == MAX_EXAMPLES and made.items == 10 * ANALYSED_ITEMS
    places = [int(one.item.id) for one in made.sample]
    assert len(set(places)) == ANALYSED_ITEMS and 0.4 < plain.fmean(places) / (10 * ANALYSED_ITEMS) < 0.6


def test_the_table_shows_the_papers_figures_beside_ours() -> None:
    from rich.console import Console

    made = Statistics(count_tokens=len)
    made.add(Boosted(DOG, TEXTS))
    console = Console(width=120, record=True)
    console.print(statistics_table(made))
    text = console.export_text()
    assert "41.5 ±13.1" in text and "17.0 ±0.0" in text and "59.2 ±12.8" in text
    assert "precision" not in text  # nothing is known of the truth


def test_tokens_are_those_of_a_named_tokenizer_with_start_and_end(tiny_scorer: Path) -> None:
    """As paper 2's Table 9 counts them."""
    count = tokens_of(str(tiny_scorer))
    assert count("a red star on the grass") == 8 and count("a " * 300) == 302
    with pytest.raises(UsageError, match="nowhere has no tokenizer"):
        tokens_of("./nowhere")
