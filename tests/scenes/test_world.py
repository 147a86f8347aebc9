"""The world is the same everywhere, its families are look-alikes, its splits share nothing."""

import hashlib
import itertools
from pathlib import Path

import numpy as np
import pytest

from tellapart.data import open_data
from tellapart.errors import UsageError
from tellapart.scenes import Object, Scene, Scenes
from tellapart.scenes.families import split_class
from tellapart.scenes.relations import between, chain, holds, natural
from tellapart.scenes.vocabulary import UNSEEN_SHAPES
from tellapart.utils.permutation import permuted
from tellapart.utils.versions import VERSIONS


def things(*places: tuple[int, int], sizes: str = "") -> tuple[Object, ...]:
    return tuple(Object("star", "red", "small", "plain", x, y) for x, y in places)


@pytest.mark.parametrize("length", [1, 2, 3, 5, 64, 100, 1001])
def test_the_order_is_a_permutation(length: int) -> None:
    assert sorted(permuted(i, length, 77) for i in range(length)) == list(range(length))


def test_a_scene_does_not_depend_on_the_others() -> None:
    one, all_of_them = Scenes(200, seed=4)[137], list(Scenes(200, seed=4))
    assert one == all_of_them[137]
    assert one.references == all_of_them[137].references
    assert Scenes(200, seed=4)[-63] == one
    assert Scenes(200, seed=4)[130:140][7] == one
    with pytest.raises(IndexError):
        Scenes(200)[200]


def test_an_id_means_one_scene_whatever_n() -> None:
    few = {s.id: s for s in Scenes(50)}
    many = {s.id: s for s in Scenes(500)}
    assert len(few) == 50
    assert len(many) == 500
    assert all(many[name] == scene for name, scene in few.items())


def test_settings_that_change_the_content_change_the_id() -> None:
    kinds = [Scenes(9), Scenes(9, seed=1), Scenes(9, split="test"), Scenes(9, domain="alt"), Scenes(9, family=3)]
    kinds.append(Scenes(9, frames=8))
    ids = [s.id for scenes in kinds for s in scenes]
    assert len(set(ids)) == len(ids)
    assert Scenes(100, split="test")._at(12).id == "scenes-plain-test-s0-000012"


@pytest.mark.parametrize("settings", [{}, {"domain": "alt"}, {"domain": "unseen"}, {"frames": 8}])
def test_members_of_a_family_are_one_edit_from_the_base(settings: dict) -> None:
    scenes = Scenes(1000, seed=2, **settings)
    for number in range(200):
        base, *others = scenes.family_of(number)
        for scene in others:
            assert scene.family == base.family
            assert _edits(base, scene) == 1, (base.description, scene.description)
        keys = {s.key() for s in (base, *others)}
        assert len(keys) == 5


def _edits(a: Scene, b: Scene) -> int:
    """Edits between two scenes: one slot of one object, one slot swapped between two, places, or the ground."""
    found = int(a.ground != b.ground)
    for slot in ("shape", "colour", "size", "texture", "motion"):
        changed = [i for i, (o, p) in enumerate(zip(a.objects, b.objects, strict=True)) if _differ(o, p, slot)]
        swapped = len(changed) == 2 and _crossed(a, b, changed, slot)
        found += 1 if swapped else len(changed)
    moved = [i for i, (o, p) in enumerate(zip(a.objects, b.objects, strict=True)) if o.place != p.place]
    return found + (1 if len(moved) == 2 and _crossed(a, b, moved, "place") else len(moved))


def _differ(o: Object, p: Object, slot: str) -> bool:
    return bool(getattr(o, slot) != getattr(p, slot))


def _crossed(a: Scene, b: Scene, pair: list[int], slot: str) -> bool:
    i, j = pair
    return bool(
        getattr(a.objects[i], slot) == getattr(b.objects[j], slot)
        and getattr(a.objects[j], slot) == getattr(b.objects[i], slot)
    )


def test_families_are_spread_out() -> None:
    families = [s.family for s in Scenes(1000)]
    for start in range(0, 1000, 100):
        hundred = families[start : start + 100]
        assert len(set(hundred)) > 70
    assert sum(a == b for a, b in itertools.pairwise(families)) < 20
    assert sorted(families) == sorted(list(range(200)) * 5)


def test_family_of_one_has_no_look_alikes_on_purpose() -> None:
    assert len({s.family for s in Scenes(60, family=1)}) == 60
    assert len(Scenes(7, family=5).families()) == 2
    assert len(Scenes(7, family=5).family_of(1)) == 2
    ids = {s.id for s in Scenes(7)}
    assert {name for group in Scenes(7).families() for name in group} == ids


def test_splits_are_disjoint() -> None:
    splits = ("train", "validation", "test", "reward")
    keys = {split: {s.key() for s in Scenes(400, split=split)} for split in splits}
    for a, b in itertools.combinations(splits, 2):
        assert not keys[a] & keys[b]
    # What guarantees it: the places of a scene sum to its split's residue, whatever an edit changed.
    for split in splits:
        for scene in Scenes(300, split=split, seed=5):
            residue = (sum(o.x for o in scene.objects) % 7) + 7 * (sum(o.y for o in scene.objects) % 7)
            assert residue == split_class(split)
    assert len({split_class(s) for s in splits}) == 4


def test_domains_do_not_share_unseen_shapes() -> None:
    for domain in ("plain", "alt"):
        assert not {o.shape for s in Scenes(400, domain=domain) for o in s.objects} & set(UNSEEN_SHAPES)
    assert {o.shape for s in Scenes(400, domain="unseen") for o in s.objects} == set(UNSEEN_SHAPES)


def test_content_is_pinned() -> None:
    """Fixed on one machine: a change here changes every published number on `scenes`."""
    text = "\n".join(
        f"{s.id} {s.content_key()} {s.references} {s.description}"
        for settings in ({}, {"domain": "alt"}, {"domain": "unseen", "split": "test"}, {"frames": 8, "seed": 3})
        for s in Scenes(20, **settings)
    )
    assert hashlib.blake2b(text.encode(), digest_size=8).hexdigest() == "80554a4059fc1701"


def test_features_of_another_renderer_are_not_reused(monkeypatch: pytest.MonkeyPatch) -> None:
    """A picture's key, under which its features are kept, has the version of what draws it; its content has not."""
    pictures = Scenes(1)[0], Scenes(1, frames=4)[0].stills()[0].picture
    before = [picture.key() for picture in pictures], pictures[0].content_key()
    monkeypatch.setitem(VERSIONS, "scenes", VERSIONS["scenes"] + 1)
    after = [picture.key() for picture in pictures], pictures[0].content_key()
    assert all(old != new for old, new in zip(before[0], after[0], strict=True)) and before[1] == after[1]


def test_relations_are_those_of_the_places() -> None:
    a, b, c = 0, 1, 2
    row = things((25, 64), (64, 66), (103, 62))
    assert holds("left of", row, a, b)
    assert holds("right of", row, c, a)
    assert not holds("above", row, a, b)
    assert between(row, b, a, c)
    assert between(row, b, c, a)
    assert not between(row, a, b, c)
    assert chain(row) == (("left of", a, b), ("left of", b, c))
    column = things((25, 25), (25, 64), (103, 103))
    assert natural(column, a, b) == "above"
    assert natural(column, b, a) == "below"
    assert holds("near", column, a, b)
    assert not holds("near", column, a, c)
    covered = things((64, 64), (70, 58))
    assert holds("in front of", covered, 1, 0)
    assert holds("behind", covered, 0, 1)
    assert not holds("in front of", covered, 0, 1)
    assert not holds("left of", covered, 0, 1)
    with pytest.raises(KeyError):
        holds("inside", row, a, b)


def test_relations_of_scenes_hold() -> None:
    kinds = set()
    for scene in Scenes(400):
        for i, j in itertools.permutations(range(len(scene.objects)), 2):
            kinds.add(natural(scene.objects, i, j))
            assert holds(natural(scene.objects, i, j), scene.objects, i, j)
        assert all(holds(kind, scene.objects, i, j) for kind, i, j in scene.chain)
    assert kinds == {"left of", "right of", "above", "below", "in front of", "behind"}


def test_a_scene_is_an_item() -> None:
    scene = Scenes(3, split="test")[1]
    item = scene.item()
    assert item.id == scene.id == scene.name
    assert item.references == scene.references
    assert len(item.references) == 5
    assert item.split == "test"
    assert item.truth is scene
    assert item.picture.image().size == (64, 64)
    assert len(Scenes(3, references=2)[0].references) == 2


def test_the_key_is_of_the_content() -> None:
    plain, generic = Scenes(30, detail=0.3), Scenes(30, detail=0)
    for a, b in zip(plain, generic, strict=True):
        assert a.key() == b.key()
        assert a.references != b.references


def test_full_descriptions_as_references() -> None:
    scene = Scenes(20, full=True, references=3)[4]
    assert scene.references[0] == scene.description and len(set(scene.references)) == 3
    assert Scenes(20, full=True, references=1)[4].references == (scene.description,)
    assert scene.key() == Scenes(20)[4].key(), "the picture is the same"
    spec = "scenes:plain?n=20&full=true&references=1"
    assert [item.references for item in open_data(spec)] == [(each.description,) for each in Scenes(20)]
    with pytest.raises(UsageError, match="full=yes: expected full=true; remove it to turn it off"):
        open_data("scenes:plain?n=20&full=yes")


@pytest.mark.parametrize(
    "settings",
    [
        {"domain": "plane"},
        {"detail": 1.5},
        {"detail": "0.3"},
        {"n": -1},
        {"n": 2.5},
        {"family": 0},
        {"family": 99},
        {"frames": 0},
        {"size": 8},
        {"references": -1},
        {"split": ""},
        {"split": "../x"},
    ],
)
def test_wrong_settings_are_named_in_one_line(settings: dict) -> None:
    with pytest.raises(UsageError) as caught:
        Scenes(**{"n": 10, **settings})
    assert "\n" not in str(caught.value)
    assert next(iter(settings)) in str(caught.value) or "domain 'plane'; did you mean 'plain'" in str(caught.value)


def test_no_scenes_at_all() -> None:
    assert list(Scenes(0)) == []
    assert Scenes(0).families() == []


def test_no_torch(tmp_path: Path) -> None:
    import subprocess
    import sys

    code = "import sys; from tellapart.scenes import Scenes; Scenes(2)[0].array(); print('torch' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"


def test_array_is_the_image() -> None:
    scene = Scenes(2)[0]
    assert np.array_equal(np.asarray(scene.image()), scene.array())
