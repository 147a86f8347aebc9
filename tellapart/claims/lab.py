"""Arms are trained and heard once: the run cache of the claims.

A run's folder is named after its arm, its seed, and a fingerprint of its recipe and of all that it follows from
(`tellapart.training.fingerprint`): the arm that it starts from, the weights that ship, the versions of the code.
Captions are kept in it, by pictures and decoding. So whatever was finished before Ctrl-C is used again, and a changed
setting trains that arm anew, and those that start from it.
"""

from __future__ import annotations

import hashlib
import json
import shutil
import time
from collections.abc import Mapping
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from tellapart.claims.claim import Arm, Term
from tellapart.claims.measure import OF_THE_MODEL, Heard, measure, setting
from tellapart.claims.rule import Sample
from tellapart.models.decoding import Decoding
from tellapart.models.device import best_device
from tellapart.recipe.reading import check_recipe
from tellapart.recipe.schema import Recipe
from tellapart.training.fingerprint import Identities, content_of
from tellapart.training.run_folder import Run, write_folder, write_json
from tellapart.types import Item
from tellapart.utils.messages import say
from tellapart.utils.rng import ItemSeeds
from tellapart.utils.versions import VERSIONS

if TYPE_CHECKING:
    from tellapart.evaluation.retrieval import CandidateSets

DESCRIBER_ERROR = 0.2  # how often the scripted describer of `tellapart.boost` gives a wrong value
HARD = 10  # pictures in a set of look-alikes, the target counted
AT_ONCE = 400  # pictures captioned together: more than for larger captioners, of which fewer fit


def digest(text: str) -> str:
    """Eight hex digits."""
    return hashlib.sha256(text.encode()).hexdigest()[:8]


def code(*parts: str) -> str:
    """The versions of these parts of the code."""
    return " ".join(f"{part} {VERSIONS[part]}" for part in parts)


class Lab:
    """Trains arms under ``folder`` and measures terms. ``tests`` are specifications of pictures by name."""

    def __init__(
        self,
        folder: Path,
        arms: Mapping[str, Arm],
        tests: Mapping[str, str],
        decodings: Mapping[str, Decoding],
        scorer: str = "scenes",
    ) -> None:
        self.folder, self.arms, self.tests, self.decodings, self.scorer_name = folder, arms, tests, decodings, scorer
        self.trained: list[str] = []  # what this lab trained itself, for a reader and for tests
        self._kept: dict[Any, Any] = {}
        self._memo: dict[tuple[str, str], str] = {}  # identities of models and data, which no claim changes

    # Training
    def needs(self, arm: str) -> list[str]:
        """The arms that this one starts from, the first one first, and itself."""
        start = self.arms[arm].start
        return [*(self.needs(start) if start else []), arm]

    def run_of(self, arm: str, seed: int) -> Run:
        return self._once(("run", arm, seed), lambda: self._run_of(arm, seed))

    def _run_of(self, arm: str, seed: int) -> Run:
        recipe, own, known = self.recipe(arm, seed), self.arms[arm], {}
        if own.start is not None and self.arms[own.start].table is not None:  # which may be trained only later
            start = self.run_of(own.start, seed)
            known[str(start.folder)] = f"recipe:{start.content.fingerprint}"
        if own.boosted:  # whose file is named after all that it is made of, and made only later
            known[str(recipe.data.train)] = f"boosted:{Path(str(recipe.data.train)).name}"
        content = content_of(recipe, Identities(known, self._memo))
        return Run(self.folder / f"{arm}-s{seed}-{content.fingerprint}", recipe, content)

    def recipe(self, arm: str, seed: int) -> Recipe:
        """The arm's recipe for this seed; the run that it starts from stands in it by its folder."""
        table = json.loads(json.dumps(self.arms[arm].table))
        if (start := self.arms[arm].start) is not None:
            table.setdefault("captioner", {})["name"] = self.model(start, seed)
        if stage := self.arms[arm].boosted:
            table["data"]["train"] = str(self.boosted_file(stage, table["data"]["train"]))
        return check_recipe({**table, "name": arm, "seed": seed}, f"claims, arm {arm}")

    def model(self, arm: str, seed: int) -> str:
        """The name under which the arm's captioner is loaded, trained or not."""
        own = self.arms[arm]
        return own.model or "" if own.table is None else str(self.run_of(arm, seed).folder)

    def train(self, arm: str, seed: int) -> None:
        """Train the arm where that was not done yet; what it starts from must be there. The last weights count.

        Which checkpoint validates best is no matter here: a claim about what an objective does is about all its steps.
        """
        if self.arms[arm].table is None or (run := self.run_of(arm, seed)).finished:
            return
        with run.lock(wait=True):
            if not run.finished:  # another process may have trained it while this one waited
                self._train(arm, seed, run)

    def _train(self, arm: str, seed: int, run: Run) -> None:
        from tellapart.training.loop import fit
        from tellapart.training.setup import Stage

        self.make_boosted(arm)
        say(f"training {arm}, seed {seed}: {run.recipe.training.steps} steps")
        started, stage = time.monotonic(), Stage(run.recipe, lambda name: name)
        if not run.started:
            run.stamp(str(stage.device))
        try:
            fit(stage, run)
            write_folder(run.folder / "model", stage.learner.save)
        finally:  # Ctrl-C: the time spent so far counts in the end as well
            spent = run.info.get("seconds", 0.0) + time.monotonic() - started
            write_json(run.folder / "run.json", {**run.info, "seconds": round(spent, 3)})
        run.finish()
        shutil.rmtree(run.checkpoints)
        self.trained.append(run.folder.name)

    def boosted_file(self, stage: str, pictures: str) -> Path:
        """Where the training pictures with their boosted captions lie, named after all that they are made of."""
        from tellapart.boost.scripted import Scripted
        from tellapart.boost.stages import NAMES
        from tellapart.boost.template import read_prompt

        told = [
            pictures,
            code("scenes", "boost"),
            Scripted(DESCRIBER_ERROR).name,
            *(read_prompt(name).text for name in NAMES),
        ]
        return self.folder / "boosted" / f"{stage}-{digest(chr(31).join(told))}.jsonl"

    def make_boosted(self, arm: str) -> None:
        """Boost the arm's training pictures where that was not done yet."""
        own = self.arms[arm]
        if not own.boosted or own.table is None:
            return
        from tellapart.boost.job import Boosted
        from tellapart.boost.output import Output, record
        from tellapart.boost.scripted import boost_scenes
        from tellapart.data import open_data

        pictures = own.table["data"]["train"]
        path = self.boosted_file(own.boosted, pictures)
        if path.is_file():
            return
        say(f"boosting {pictures}: {own.boosted}")
        items = list(open_data(pictures))
        with Output(path, {"data": pictures, "describer_error": DESCRIBER_ERROR}) as output:
            for item, texts in zip(items, boost_scenes(items, DESCRIBER_ERROR), strict=True):
                output.write(record(Boosted(item, texts), own.boosted, path))

    # Captions
    def captioned(self, term: Term) -> bool:
        """Whether the term is about captions that its arm's captioner writes."""
        arm = self.arms[term.arm]
        return (arm.table is not None or arm.model is not None) and term.measure not in OF_THE_MODEL

    def place(self, arm: str, seed: int) -> Path:
        if self.arms[arm].table is not None:
            return self.run_of(arm, seed).folder
        told = Identities(memo=self._memo).model(self.arms[arm].model or "scenes")
        return self.folder / f"{arm}-s{seed}-{digest(told)}"

    def hear(self, term: Term, seed: int) -> Heard:
        """The arm's captions of the term's pictures: written now, or read where they were written before; once."""
        key = ("heard", term.arm, term.test, term.decoding, seed, self.captioned(term))
        return self._once(key, lambda: self._heard(term, seed))

    def _heard(self, term: Term, seed: int) -> Heard:
        items, arm = self.items(term.test), self.arms[term.arm]
        pictures = self.pictures(term.test)
        if self.captioned(term):
            lists = self.captions(term.arm, seed, term.test, term.decoding)
            held = [lists[item.id] for item in items]
        elif arm.boosted and arm.table is None:
            held = [[texts[arm.boosted]] for texts in self.boosted(term.test, seed)]
        elif arm.model is None and arm.table is None:
            held = [[item.references[arm.reference]] for item in items]
        else:
            held = [[""] for _ in items]
        return Heard(pictures, items, held, self, self.model(term.arm, seed) or None, term.test, seed)

    def boosted(self, test: str, seed: int) -> list[dict[str, str]]:
        """What boosting makes of each picture's references, by stage; the seed is the describer's."""
        from tellapart.boost.scripted import boost_scenes

        return self._once(("boosted", test, seed), lambda: boost_scenes(self.items(test), DESCRIBER_ERROR, seed))

    def captions(self, arm: str, seed: int, test: str, decoding: str) -> dict[str, list[str]]:
        how, pictures = self.decodings[decoding], self.pictures(test)
        key = digest(f"{pictures} {how.model_dump_json()} {code('scenes', 'decoding')}")
        path = self.place(arm, seed) / "heard" / f"{decoding}-{key}.json"
        if path.is_file():
            return dict(json.loads(path.read_text(encoding="utf-8"))["captions"])
        started, items = time.monotonic(), self.items(test)
        texts = self._write(self.model(arm, seed), items, how, seed)
        lists = {item.id: texts[n * how.samples : (n + 1) * how.samples] for n, item in enumerate(items)}
        path.parent.mkdir(parents=True, exist_ok=True)
        write_json(path, {"pictures": pictures, "seconds": round(time.monotonic() - started, 1), "captions": lists})
        return lists

    def _write(self, model: str, items: list[Item], how: Decoding, seed: int) -> list[str]:
        from tellapart.captioners import generate_captions, load_captioner

        captioner = load_captioner(model, best_device())
        seeds = ItemSeeds(tuple(item.id for item in items), seed)
        return generate_captions(captioner, np.asarray(self.features(items, captioner)), how, AT_ONCE, seeds)

    # Pictures
    def items(self, test: str) -> list[Item]:
        from tellapart.data import open_data

        return self._once(("items", test), lambda: list(open_data(self.tests[test])))

    def pictures(self, test: str) -> str:
        """A name for the pictures of a test, whatever their references: which captions and draws they share."""
        ids = [item.id for item in self.items(test)]
        return self._once(("pictures", test), lambda: hashlib.sha256(" ".join(ids).encode()).hexdigest()[:16])

    def features(self, items: list[Item], model: Any) -> Any:
        from tellapart.features.store import FeatureStore

        return FeatureStore().features(items, model.encoder)

    @cached_property
    def scorer(self) -> Any:
        from tellapart.scorers import load_scorer

        return load_scorer(self.scorer_name, best_device())

    def sets(self, heard: Heard, among: str) -> CandidateSets:
        """What a caption is told apart from: "random" hundreds, ten "lookalikes", the "frames" of a clip, or "bag3",
        "bag5", … of paper 2's algorithms 1 and 2. They are the same for every arm.

        Ids of frames are ``CLIP#FRAME``; bags are mined from the pictures and their holistic captions.
        """
        return self._once(("sets", heard.pictures, among), lambda: self._make_sets(heard, among))

    def _make_sets(self, heard: Heard, among: str) -> CandidateSets:
        from tellapart.bags import curate_bags, mine_bags
        from tellapart.evaluation.retrieval import lookalike_sets, random_pools, whole_sets

        if among == "frames":
            clips: dict[str, list[int]] = {}
            for row, item in enumerate(heard.items):
                clips.setdefault(item.id.rpartition("#")[0], []).append(row)
            return whole_sets(list(clips.values()))
        image_ND = self.image_features(heard)
        if among == "lookalikes":
            return lookalike_sets(image_ND, HARD)
        if among == "random":
            return random_pools(len(image_ND), min(100, len(image_ND)))
        told = [texts["holistic"] for texts in self.boosted(heard.test, 0)]
        text_ND = self.scorer.text_features(told).cpu().numpy()
        bags = curate_bags(mine_bags(image_ND, int(among.removeprefix("bag")), texts_ND=text_ND))
        return whole_sets([np.array(bag.rows) for bag in bags])

    def hits(self, heard: Heard, among: str) -> np.ndarray:
        """1 where the scorer finds the picture by its caption among those of its set; NaN where it is in none."""
        from tellapart.evaluation.retrieval import retrieve

        return retrieve(self.sets(heard, among), heard.text_features, self.image_features(heard)).hit(1)

    def setting(self, heard: Heard, among: str) -> str:
        """What stands beside a recall: ``n = 400, 100 candidates, chance 1.0``."""
        from tellapart.evaluation.retrieval import chance

        sets = self.sets(heard, among)
        asked_N = chance(sets, len(heard.items), 1)
        sizes = [len(own) for own in sets.sets]
        return setting(int(np.count_nonzero(~np.isnan(asked_N))), sizes, float(np.nanmean(asked_N)))

    def cosines(self, heard: Heard) -> np.ndarray:
        """The cosine of each caption with its picture."""
        return np.asarray((heard.text_features * self.image_features(heard)).sum(1))

    def image_features(self, heard: Heard) -> np.ndarray:
        items = list(heard.items)
        return np.asarray(
            self._once(("features", heard.pictures), lambda: np.asarray(self.features(items, self.scorer)))
        )

    def _once(self, key: Any, make: Any) -> Any:
        if key not in self._kept:
            self._kept[key] = make()
        return self._kept[key]

    # What claims ask for
    def sample(self, term: Term, seed: int) -> Sample:
        """The term's measure, its factor aside."""
        key = (term.arm, term.measure, term.test, term.decoding, seed)
        return self._once(key, lambda: measure(term.measure, self.hear(term, seed)))

    def prepare(self, term: Term, seed: int) -> None:
        """Train and hear all that the term needs."""
        for arm in self.needs(term.arm):
            self.train(arm, seed)
        self.hear(term, seed)

    def seconds(self, arm: str, seed: int) -> float:
        """How long the arm took when it was trained and heard, whenever that was."""
        place = self.place(arm, seed)
        told = [place / "run.json", *sorted((place / "heard").glob("*.json"))]
        return sum(json.loads(file.read_text(encoding="utf-8")).get("seconds", 0.0) for file in told if file.is_file())
