"""What a study asks whom: look-alike sets, Latin squares, controls, the order of each participant, and the stamp."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image
from sample_study import LONG, Photo, edit_settings, make_material, make_study

from tellapart.errors import PictureError, UsageError
from tellapart.study.create import StudyPlan, create_study
from tellapart.study.design import CONTROL, EXAMPLE, ITEM, PRACTICE, check_pictures, open_study
from tellapart.study.lookalikes import disjoint_lookalikes, unlike_sets
from tellapart.study.material import Material
from tellapart.study.seeded_order import shuffled


def plain_lookalikes(features_ND: np.ndarray, targets: list[int], size: int, max_cosine: float) -> list[list[int]]:
    """Appendix A of paper 3, one pair after the other."""
    unit_ND = features_ND / np.linalg.norm(features_ND, axis=1, keepdims=True)
    used: set[int] = set()
    found = []
    for target in targets:
        if target in used:
            continue
        near = []
        for other in range(len(unit_ND)):
            cosine = round(float(unit_ND[other].astype(float) @ unit_ND[target].astype(float)), 7)
            if other != target and other not in used and cosine <= max_cosine:
                near.append((-cosine, other))
        if len(near) >= size - 1:
            chosen = [target, *(other for _, other in sorted(near)[: size - 1])]
            used |= set(chosen)
            found.append(chosen)
    return found


def test_look_alikes_are_the_nearest_that_are_free_below_the_limit_to_the_target() -> None:
    features_ND = np.random.default_rng(0).normal(size=(80, 6)).astype(np.float32)
    targets = list(np.random.default_rng(1).permutation(80)[:40])
    for limit in (0.8, 0.5):
        sets = disjoint_lookalikes(features_ND, targets, range(80), size=5, max_cosine=limit)
        assert sets == plain_lookalikes(features_ND, targets, 5, limit)
        rows = [row for own in sets for row in own]
        assert len(sets) > 5 and len(rows) == len(set(rows)), "no picture is in two sets"
        unit_ND = features_ND / np.linalg.norm(features_ND, axis=1, keepdims=True)
        cosines = [[float(unit_ND[own[0]] @ unit_ND[other]) for other in own[1:]] for own in sets]
        assert max(max(own) for own in cosines) <= limit + 1e-6
        assert all(a >= b - 1e-6 for own in cosines for a, b in pairwise(own)), "from near to far"
    # The limit is on similarity to the target alone: distractors may be copies of each other.
    twins_ND = np.array([[1, 0], [0.7, 0.714], [0.7, 0.714], [0.1, 0.99]], np.float32)
    assert disjoint_lookalikes(twins_ND, [0], range(4), size=3, max_cosine=0.8) == [[0, 1, 2]]


def test_controls_are_unlike_their_target_and_apart_from_everything() -> None:
    features_ND = np.random.default_rng(2).normal(size=(60, 5)).astype(np.float32)
    sets = unlike_sets(features_ND, range(10, 60), size=5, count=8, seed="s")
    rows = [row for own in sets for row in own]
    assert len(rows) == len(set(rows)) == 40 and min(rows) >= 10
    unit_ND = features_ND / np.linalg.norm(features_ND, axis=1, keepdims=True)
    assert np.mean([unit_ND[own[0]] @ unit_ND[other] for own in sets for other in own[1:]]) < -0.1


@pytest.mark.parametrize("kind", ["pick", "rate", "compare"])
def test_blocks_are_latin_squares(tmp_path: Path, kind: str) -> None:
    """Each picture once per participant, all systems equally often, and every item in every condition."""
    study = make_study(tmp_path / "s", kind, make_material(120), items=12, block=6, human="first")
    conditions = 3
    assert study.systems == ("human", "mle_base", "smile") and len(study.blocks) == 2 * conditions
    asked: Counter[tuple[str, tuple[str, ...]]] = Counter()
    for block in study.blocks:
        trials = [study.trials[number] for number, _ in block]
        assert len({trial.unit for trial in trials}) == len(trials) == 6
        assert set(Counter(trial.systems for trial in trials).values()) == {2}
        if kind == "compare":
            flips = Counter((study.trials[number].systems, flip) for number, flip in block)
            assert set(flips.values()) == {1}, "half of each pair in the other order"
        asked.update((trial.unit, trial.systems) for trial in trials)
    assert set(asked.values()) == {1} and len(asked) == 12 * conditions
    names = {
        role: {name for number in study.of_role[role] for name in study.trials[number].pictures}
        for role in (ITEM, CONTROL, PRACTICE, EXAMPLE)
    }
    assert not names[ITEM] & (names[CONTROL] | names[PRACTICE] | names[EXAMPLE])
    assert set.union(*names.values()) == {path.name for path in (study.folder / "pictures").iterdir()}
    check_pictures(study)


def test_a_participants_order_follows_from_the_seed_and_has_a_control_in_each_part(tmp_path: Path) -> None:
    study = make_study(tmp_path / "s", "pick", make_material(150), items=12, block=12, controls=3)
    orders = {seed: study.order(0, 0, seed) for seed in ("a", "b", "c")}
    assert study.order(0, 0, "a") == orders["a"] != orders["b"]
    for places in orders.values():
        roles = [study.trials[place.trial].role for place in places]
        assert roles[:2] == [PRACTICE, PRACTICE] and roles[2] == ITEM
        assert sorted(place.trial for place in places[2:] if study.trials[place.trial].role == ITEM) == sorted(
            number for number, _ in study.blocks[0]
        )
        at = [n - 2 for n, role in enumerate(roles) if role == CONTROL]
        assert len(at) == 3 and all(5 * part <= where < 5 * (part + 1) for part, where in enumerate(at))
        assert all(sorted(place.orders[0]) == list(range(4)) for place in places)
    slots = Counter(place.orders[0].index(0) for seed in range(60) for place in study.order(0, 0, str(seed)))
    assert min(slots.values()) > 0.8 * max(slots.values()), "the target is equally often in every place"
    # An order must never change, or stored answers would lose their meaning.
    assert shuffled(range(8), "seed", "purpose") == [6, 5, 1, 4, 2, 3, 0, 7]


def test_displayed_options_and_canonical_ones_are_inverse(tmp_path: Path) -> None:
    for kind, all_options in (
        ("pick", [(n,) for n in range(4)]),
        ("compare", [(m, w) for m in range(3) for w in range(4)]),
    ):
        study = make_study(tmp_path / kind, kind)
        places = [*study.order(0, 0, "x"), *study.order(0, 1, "x")]
        for place in places:
            for shown in all_options:
                assert place.displayed(place.canonical(shown)) == shown
    both = zip(study.order(0, 0, "x"), study.order(0, 1, "x"), strict=True)
    assert all(a.captions == b.captions[::-1] for a, b in both), "the second rater of a block sees the other order"
    flipped = next(place for place in places if place.captions != study.trials[place.trial].captions)
    assert flipped.canonical((0, 1)) == (2, 2), "A of the page is the second system"


def test_the_stamp_covers_what_decides_results_and_nothing_else(tmp_path: Path) -> None:
    study = make_study(tmp_path / "s")
    before = study.stamp
    assert edit_settings(study, timeout_minutes=5, completed="CODE").stamp == before
    assert edit_settings(study, max_control_errors=0).stamp != before
    assert edit_settings(study, max_control_errors=1).stamp == before
    document = json.loads((study.folder / "items.json").read_text())
    document["trials"][-1]["captions"][0] += " "
    (study.folder / "items.json").write_text(json.dumps(document))
    assert open_study(study.folder).stamp != before
    name = document["trials"][0]["pictures"][0]
    (study.folder / "pictures" / name).write_bytes(b"other")
    with pytest.raises(UsageError, match="not the picture that the study was created with"):
        check_pictures(study)


def test_the_same_seed_makes_the_same_study(tmp_path: Path) -> None:
    first, again = (make_study(tmp_path / name, seed=3) for name in "ab")
    other = make_study(tmp_path / "c", seed=4)
    assert first.trials == again.trials and first.blocks == again.blocks and first.trials != other.trials


def test_people_as_a_system(tmp_path: Path) -> None:
    material = make_material()
    item = material.items[0].id
    for human, texts in (("first", {LONG}), ("random", set(material.references[item]))):
        study = make_study(tmp_path / human, "rate", material, human=human, items=60, controls=0)
        own = [t.captions[0] for t in study.trials if t.role == ITEM and t.systems == ("human",) and t.unit == item]
        assert set(own) <= texts
    with pytest.raises(UsageError, match="a caption file is named human"):
        make_study(tmp_path / "x", material=replace(material, captions={"human": {item: "x"}}), human="first")


@pytest.mark.parametrize(
    ("change", "told"),
    [
        ({"candidates": 30}, "pictures have a reference, but the 2 control items, practice"),
        ({"max_cosine": -0.999}, "no look-alike set of 4 could be built"),
        ({"human": "any"}, "--human: expected first"),
        ({"kind": "guess"}, "unknown kind of study 'guess'; expected"),
        ({"kind": "compare", "one": True}, "compare requires two systems; pass --captions twice, or add"),
        ({"features": None}, "pick requires a scorer to find pictures that look alike; add"),
    ],
)
def test_what_cannot_be_made_is_one_line(tmp_path: Path, change: dict, told: str) -> None:
    material: Material = make_material()
    if "features" in change:
        material = replace(material, features_ND=None)
    if change.pop("one", False):
        material = replace(material, captions={"mle_base": material.captions["mle_base"]})
    change.pop("features", None)
    with pytest.raises(UsageError, match=told):
        make_study(tmp_path / "s", change.pop("kind", "pick"), material, **change)
    assert not (tmp_path / "s").exists(), "nothing is left over"


def test_an_unreadable_picture_leaves_the_folder_as_it_was(tmp_path: Path) -> None:
    class Broken(Photo):
        def image(self) -> Image.Image:
            raise PictureError("00.jpg: cannot be read")

    material = make_material()
    items = [replace(i, picture=Broken(i.picture.scene)) if n % 3 == 0 else i for n, i in enumerate(material.items)]
    (tmp_path / "mine.txt").write_text("mine")
    for folder in (tmp_path, tmp_path / "new" / "study"):
        with pytest.raises(UsageError, match="remove this picture from the data"):
            make_study(folder, "rate", replace(material, items=items))
    assert [path.name for path in tmp_path.rglob("*")] == ["mine.txt"]


def test_a_damaged_or_edited_folder_is_one_line(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="see: tellapart study create --help"):
        open_study(tmp_path)
    study = make_study(tmp_path / "s")
    with pytest.raises(UsageError, match="already contains a study"):
        create_study(study.folder, make_material(), StudyPlan(kind="pick"))
    path = study.folder / "study.toml"
    text = path.read_text()
    for old, new, told in (
        ("max_control_errors = 1", "max_control_errors = -1", "exclusion.max_control_errors"),
        ("max_control_errors = 1", "max_controls = 1", "exclusion.max_controls"),
        ("require_id = false", "require_id = maybe", "invalid TOML"),
        ('return_url = ""', 'return_url = "javascript:alert(1)"', "recruitment.return_url: expected a URL"),
        ("id_pattern = '", "id_pattern = '(", "recruitment.id_pattern: Input should be a valid regular expression"),
    ):
        path.write_text(text.replace(old, new))
        with pytest.raises(UsageError, match=told) as error:
            open_study(study.folder)
        assert "\n" not in str(error.value)
    path.write_text(text)
    for damage in ("{", "[]", '{"format": 1, "kind": "pick"}', '{"format": 9, "kind": "pick"}'):
        (study.folder / "items.json").write_text(damage)
        with pytest.raises(UsageError, match=r"damaged|not a study of format"):
            open_study(study.folder)


@pytest.mark.long
@pytest.mark.parametrize("kind", ["pick", "compare"])
def test_whatever_is_wrong_in_items_json_is_one_line(kind: str, tmp_path: Path) -> None:
    """Every value of the file, replaced by one of another type."""
    study = make_study(tmp_path / "s", kind)
    path = study.folder / "items.json"
    whole = json.loads(path.read_text())

    def places(value: Any, at: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
        yield at
        pairs = value.items() if isinstance(value, dict) else list(enumerate(value)) if isinstance(value, list) else ()
        for key, inner in list(pairs)[:3] if at else pairs:
            yield from places(inner, (*at, key))

    refused = 0
    for at in list(places(whole))[1:]:
        for wrong in (None, 3, "x", [], {}, [[1]], {"a": {}}):
            document = json.loads(json.dumps(whole))
            inner = document
            for key in at[:-1]:
                inner = inner[key]
            inner[at[-1]] = wrong
            path.write_text(json.dumps(document))
            try:
                found = open_study(study.folder)
                assert len(found.stamp) == 64 and found.of_role and found.quota
                found.order(0, 0, "seed")
                assert at[0] != "trials" or wrong != {"a": {}}, f"{at} is no table, and was read as one"
            except UsageError as error:
                refused += 1
                assert "\n" not in str(error), (at, wrong)
    assert refused > 100


def test_texts_that_are_to_be_written_are_named(tmp_path: Path) -> None:
    study = create_study(tmp_path / "s", make_material(), StudyPlan(kind="rate", items=6, controls=2))
    names = ("researcher", "institution", "contact", "ethics", "paragraphs")
    assert study.settings.unwritten() == ["title", *(f"consent.{name}" for name in names)]
