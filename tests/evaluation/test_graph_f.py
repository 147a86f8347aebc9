"""Scene-graph F of captions and references: by hand, and against people."""

from __future__ import annotations

import pytest
from real_data import DATA

from tellapart.evaluation.metrics.graph_f import graph_f
from tellapart.metrics.registry import METRICS

pytest.importorskip("HanTa")
pytest.importorskip("pycocoevalcap")


@pytest.mark.long
def test_by_hand() -> None:
    # Caption: (dog), (dog, black), (grass), (dog, on, grass): of 4 tuples 3 are said; the references have 5 of which
    # those three are said: (dog), (dog, brown), (grass), (dog, on, grass), (ball).
    references = [["a brown dog on the grass", "a dog and a ball"]]
    corpus, (value,) = graph_f(["a black dog on the grass"], references)
    assert corpus == value == pytest.approx(2 * (3 / 4) * (3 / 5) / (3 / 4 + 3 / 5))


def test_synonyms_match_and_other_bindings_do_not() -> None:
    assert graph_f(["a couch"], [["a sofa"]])[0] == 1
    assert graph_f(["a red car and a blue bike"], [["a blue car and a red bike"]])[0] == pytest.approx(0.5)
    assert graph_f(["a dog above a cat"], [["a cat above a dog"]])[0] == pytest.approx(2 / 3)
    assert graph_f(["", "very nicely"], [["a dog"], ["a dog"]])[0] == 0


def test_it_is_not_called_spice() -> None:
    found = METRICS.find("graph_f")
    assert "spice" not in f"{found.title} {found.name}".lower() and found.aliases == ()


@pytest.mark.data
@pytest.mark.long
@pytest.mark.skipif(not DATA.is_dir(), reason="needs the sample data")
def test_agreement_with_people() -> None:
    """Flickr8k-Expert: SPICE's published tau-c is 44.9."""
    from tellapart.evaluation.human_judgements.agreement_in_file import agreement_with_people

    file, texts = DATA / "judgements" / "flickr8k_expert.txt", DATA / "flickr8k" / "Flickr8k.token.txt"
    tau = agreement_with_people(file, [texts], None, ["graph_f"]).metrics["graph_f"].tau_c
    assert tau == pytest.approx(44.8, abs=0.05)
