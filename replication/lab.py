"""Caches the claims' runs, so that every arm is trained once and writes its captions once.

A run's folder is named after its arm, its seed, and a fingerprint (`tellapart.training.fingerprint`) of its recipe and
of everything else that determines the result: the arm that it starts from, the shipped weights, the code versions. The
captions are in the same folder, in files named after pictures and decoding. Therefore, work that was finished before
Ctrl-C is reused, and changing a setting retrains only that arm and the arms that start from it.
"""

from __future__ import annotations

import hashlib
import json
import re
import shutil
import time
from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from pathlib import Path
from typing import Any

from replication.bootstrap import Statistic
from replication.claim import Arm, Measurement
from replication.measures import MEASURES
from replication.memo import Memo
from replication.test_sets import DESCRIBER_ERROR_RATE, ArmCaptions, TestSets
from tellapart.language.words import content_words
from tellapart.models.decoding import Decoding
from tellapart.models.devices import best_device
from tellapart.recipe.overrides import apply_override
from tellapart.recipe.reading import check_recipe
from tellapart.recipe.schema import Recipe
from tellapart.training.fingerprint import Identities, content_of
from tellapart.training.run_files import write_folder, write_json
from tellapart.training.run_folder import Run, now
from tellapart.types import Item
from tellapart.utils.messages import say
from tellapart.utils.rng import ItemSeeds
from tellapart.utils.versions import VERSIONS

SIMPLEST, JOINED = "simplest", "joined"  # see `Arm.boosted`
ARTICLE_AND_NOUN = r"\b(?:an?|another) \w+"
CAPTIONS_FOLDER = "heard"  # in a run's folder; the name dates from version 0.1
CAPTION_BATCH_SIZE = 400  # larger than the default, because these captioners are small


def simplest(references: Sequence[str]) -> list[str]:
    """Returns the article and noun of each reference without details, as in Simplest-COCO, e.g. "a shape".

    In references without details, the noun follows its article; `tellapart data simplify` parses any captions.
    """
    return [found[0] for text in references if (found := re.search(ARTICLE_AND_NOUN, text))]


def joined(references: Sequence[str]) -> list[str]:
    """Joins each reference with the reference that adds most content words, e.g. "a dog runs and a wet road"."""
    words = [{text[word.start : word.end].lower() for word in content_words(text)} for text in references]
    found = []
    for n, text in enumerate(references):
        others = [k for k in range(len(references)) if k != n]
        if not others:
            return [text]
        richest = max(others, key=lambda k: len(words[k] - words[n]))
        found.append(f"{text.rstrip(' .')} and {references[richest]}")
    return found


class Lab:
    """Trains arms and writes their captions under ``folder``.

    arms: by name. test_sets: data specifications by name. decodings: by name. scorer: name of the evaluation scorer.
    settings: keys of all recipes, in the format of ``--set``. `__init__` performs no I/O.
    """

    def __init__(
        self,
        folder: Path,
        arms: Mapping[str, Arm],
        test_sets: Mapping[str, str],
        decodings: Mapping[str, Decoding],
        scorer: str = "scenes",
        settings: Sequence[str] = (),
    ) -> None:
        self.folder, self.arms, self.decodings, self.settings = folder, arms, decodings, settings
        self.test_sets = TestSets(test_sets, scorer)
        self.trained: list[str] = []  # folders of the runs that this lab trained itself
        self._memo = Memo()
        self._identities: dict[tuple[str, str], str] = {}  # identities of models and data, which claims do not change

    @property
    def scorer_identity(self) -> str:
        """Returns the evaluation scorer's name, or its fingerprint if a recipe trains the scorer."""
        name = self.test_sets.scorer_name
        return Identities(memo=self._identities).model(name) if name.endswith(".toml") else name

    @property
    def caption_code(self) -> str:
        """Returns the versions of the code that determines the captions. Scenes have no unknown words."""
        photos = not all(data.startswith("scenes:") for data in self.test_sets.specifications.values())
        return code_versions("scenes", "decoding", *(["unknown_words"] if photos else []))

    # Training
    def lineage(self, arm: str) -> list[str]:
        """Returns the arms that this arm starts from, earliest first, followed by this arm."""
        start = self.arms[arm].start
        return [*(self.lineage(start) if start else []), arm]

    def run_of(self, arm: str, seed: int) -> Run:
        """Returns the arm's run, trained or not. Raises `UsageError` if its recipe is invalid."""
        return self._memo.get(("run", arm, seed), lambda: self._run_of(arm, seed))

    def _run_of(self, name: str, seed: int) -> Run:
        recipe, arm = self.recipe(name, seed), self.arms[name]
        # The identities of files that may not exist yet.
        if arm.start is not None and self.arms[arm.start].table is not None:
            start = self.run_of(arm.start, seed)
            self._identities["model", str(start.folder)] = f"recipe:{start.content.fingerprint}"
        if arm.boosted:  # the file's name identifies its content
            self._identities["data", str(recipe.data.train)] = f"boosted:{Path(str(recipe.data.train)).name}"
        content = content_of(recipe, Identities(self._identities))
        return Run(self.folder / f"{name}-s{seed}-{content.fingerprint}", recipe, content)

    def recipe(self, arm: str, seed: int) -> Recipe:
        """Returns the arm's recipe for this seed. Its captioner is the folder of the run that the arm starts from."""
        table = json.loads(json.dumps(self.arms[arm].table))
        if (start := self.arms[arm].start) is not None:
            table.setdefault("captioner", {})["name"] = self.model(start, seed)
        if stage := self.arms[arm].boosted:
            table["data"]["train"] = str(self.boosted_file(stage, table["data"]["train"]))
        for setting in self.settings:
            apply_override(table, setting)
        return check_recipe({**table, "name": arm, "seed": seed}, f"claims, arm {arm}")

    def model(self, arm: str, seed: int) -> str:
        """Returns the name that loads the arm's captioner, or "" if the arm's captions are references."""
        if (options := self.arms[arm].options) and (start := self.arms[arm].start):
            return f"{self.model(start, seed)}?{options}"
        if self.arms[arm].table is None:
            return self.arms[arm].model or ""
        return str(self.run_of(arm, seed).folder)

    def train(self, arm: str, seed: int) -> None:
        """Trains the arm unless it is already trained. The arm that it starts from must be trained.

        Uses the last weights, not the best checkpoint, because claims about an objective concern all its steps.
        """
        if self.arms[arm].table is None or (run := self.run_of(arm, seed)).finished:
            return
        with run.lock(wait=True):
            if not run.finished:  # another process may have trained it while this one waited
                self._train(arm, seed, run)

    def _train(self, arm: str, seed: int, run: Run) -> None:
        from torch.nn.attention import SDPBackend, sdpa_kernel

        from tellapart.training.build import TrainingSetup
        from tellapart.training.checks import check_setup
        from tellapart.training.loop import fit
        from tellapart.training.runs import upstream

        self.make_boosted(arm)
        say(f"training {arm}, seed {seed}: {run.recipe.training.steps} steps")
        started, setup = time.monotonic(), TrainingSetup(run.recipe, upstream)
        check_setup(setup)
        if not run.started:
            run.stamp(str(setup.device))
        try:
            # For few tokens in bf16, fused attention on a CPU is slower than matrix products and a softmax.
            with sdpa_kernel(SDPBackend.MATH) if setup.device.type == "cpu" else nullcontext():
                fit(setup, run)
            write_folder(run.folder / "model", setup.learner.save)
        finally:  # even after Ctrl-C, because the time so far is part of the run's time
            spent = run.info.get("seconds", 0.0) + time.monotonic() - started
            write_json(run.folder / "run.json", {**run.info, "seconds": round(spent, 3)})
        run.note(finished=now())
        shutil.rmtree(run.checkpoints)
        self.trained.append(run.folder.name)

    # Boosted references
    def boosted_file(self, stage: str, pictures: str) -> Path:
        """Returns the path of the training pictures with boosted captions. Its name identifies its content."""
        from tellapart.boost.scripted import Scripted
        from tellapart.boost.stage_prompts import read_prompt
        from tellapart.boost.stages import STAGE_NAMES

        if stage == JOINED:
            sources = [Identities(memo=self._identities).data(pictures)]
        elif stage == SIMPLEST:
            sources = [pictures, code_versions("scenes"), ARTICLE_AND_NOUN]
        else:
            prompts = [read_prompt(name).text for name in STAGE_NAMES]
            sources = [pictures, code_versions("scenes", "boost"), Scripted(DESCRIBER_ERROR_RATE).name, *prompts]
        return self.folder / "boosted" / f"{stage}-{digest(chr(31).join(sources))}.jsonl"

    def make_boosted(self, name: str) -> None:
        """Writes the captions that the arm learns instead of references, unless their file exists."""
        arm = self.arms[name]
        if not arm.boosted or arm.table is None:
            return
        from replication.boosted_scenes import boost_scenes
        from tellapart.boost.output import open_output
        from tellapart.boost.records import record
        from tellapart.boost.types import Boosted
        from tellapart.data import open_data

        pictures = arm.table["data"]["train"]
        path = self.boosted_file(arm.boosted, pictures)
        if path.is_file():
            return
        say(f"captions of {pictures}: {arm.boosted}")
        items = list(open_data(pictures))
        if arm.boosted == SIMPLEST:
            simple = ((item, simplest(item.references)) for item in items)
            # Nothing remains of a reference such as "three shapes".
            lines = (record(Boosted(item, {}), "", path) | {"captions": texts} for item, texts in simple if texts)
            made: dict[str, Any] = {"data": pictures, "pattern": ARTICLE_AND_NOUN}
        elif arm.boosted == JOINED:
            lines = (record(Boosted(item, {}), "", path) | {"captions": joined(item.references)} for item in items)
            made = {"data": pictures}
        else:
            boosted = zip(items, boost_scenes(items, DESCRIBER_ERROR_RATE), strict=True)
            lines = (record(Boosted(item, texts), arm.boosted, path) for item, texts in boosted)
            made = {"data": pictures, "describer_error": DESCRIBER_ERROR_RATE}
        with open_output(path, made) as output:
            for line in lines:  # writing a line also draws its picture next to the file
                output.write(line)

    # Captions
    def writes_captions(self, measurement: Measurement) -> bool:
        """Returns whether the measurement reads captions that the arm's captioner wrote."""
        arm = self.arms[measurement.arm]
        has_captioner = arm.table is not None or arm.model is not None or bool(arm.options)
        return has_captioner and "model" not in MEASURES[measurement.measure].needs

    def arm_folder(self, arm: str, seed: int) -> Path:
        """Returns the folder of the arm's run. A captioner that is untrained or has options has a folder of captions
        instead.
        """
        if self.arms[arm].table is not None:
            return self.run_of(arm, seed).folder
        if (options := self.arms[arm].options) and (start := self.arms[arm].start):
            return self.arm_folder(start, seed) / options
        identity = Identities(memo=self._identities).model(self.arms[arm].model or "scenes")
        return self.folder / f"{arm}-s{seed}-{digest(identity)}"

    def generate_captions(self, measurement: Measurement, seed: int, reference_stage: str = "") -> ArmCaptions:
        """Returns the arm's captions of the measurement's pictures, either cached or newly generated.

        reference_stage: the boosting stage whose captions replace the references (see `ArmCaptions`).
        """
        written = self.writes_captions(measurement)
        key = ("captions", measurement.arm, measurement.test_set, measurement.decoding, seed, written, reference_stage)
        return self._memo.get(key, lambda: self._arm_captions(measurement, seed, written, reference_stage))

    def _arm_captions(self, measurement: Measurement, seed: int, written: bool, reference_stage: str) -> ArmCaptions:
        test_set, arm = measurement.test_set, self.arms[measurement.arm]
        items = self.test_sets.items(test_set)
        if written:
            by_id = self.caption_lists(arm.name, seed, test_set, measurement.decoding)
            captions = [by_id[item.id] for item in items]
        elif arm.boosted and arm.table is None:
            captions = [[texts[arm.boosted]] for texts in self.test_sets.boosted(test_set, seed)]
        elif arm.model is None and arm.table is None:
            captions = [[item.references[arm.reference]] for item in items]
        else:  # a measure of the model itself
            captions = [[""] for _ in items]
        return ArmCaptions(
            picture_key=self.test_sets.picture_key(test_set),
            items=items,
            captions=captions,
            test_sets=self.test_sets,
            model=self.model(arm.name, seed) or None,
            test_set=test_set,
            seed=seed,
            reference_stage=reference_stage,
        )

    def caption_lists(self, arm: str, seed: int, test_set: str, decoding: str) -> dict[str, list[str]]:
        """Returns the captions of the arm's captioner by picture id, cached if possible."""
        settings, picture_key = self.decodings[decoding], self.test_sets.picture_key(test_set)
        key = digest(f"{picture_key} {settings.model_dump_json()} {self.caption_code}")
        path = self.arm_folder(arm, seed) / CAPTIONS_FOLDER / f"{decoding}-{key}.json"
        if path.is_file():
            return dict(json.loads(path.read_text(encoding="utf-8"))["captions"])
        started, items, samples = time.monotonic(), self.test_sets.items(test_set), settings.samples
        texts = self._write_captions(self.model(arm, seed), items, settings, seed)
        captions = {item.id: texts[n * samples : (n + 1) * samples] for n, item in enumerate(items)}
        path.parent.mkdir(parents=True, exist_ok=True)
        seconds = round(time.monotonic() - started, 1)
        write_json(path, {"pictures": picture_key, "seconds": seconds, "captions": captions})
        return captions

    def _write_captions(self, model: str, items: Sequence[Item], settings: Decoding, seed: int) -> list[str]:
        from tellapart.captioners import generate_captions, load_captioner
        from tellapart.training.runs import upstream

        captioner = load_captioner(upstream(model), best_device(), "fp32")
        seeds = ItemSeeds(tuple(item.id for item in items), seed)
        visual = self.test_sets.features(items, captioner)
        return generate_captions(captioner, visual, settings, CAPTION_BATCH_SIZE, seeds)

    # Measuring
    def statistic(self, measurement: Measurement, seed: int) -> Statistic:
        """Returns the measurement without its factor. Raises `UsageError` if the measure is unknown."""
        one = measurement
        key = (one.arm, one.measure, one.test_set, one.decoding, seed)
        return self._memo.get(key, lambda: MEASURES.find(one.measure).factory(self.generate_captions(one, seed)))

    def prepare(self, measurement: Measurement, seed: int) -> None:
        """Trains all arms and writes all captions that the measurement needs."""
        for arm in self.lineage(measurement.arm):
            self.train(arm, seed)
        self.generate_captions(measurement, seed)

    def seconds(self, arm: str, seed: int) -> float:
        """Returns the seconds that the arm's training and captioning took, now or in an earlier call."""
        folder = self.arm_folder(arm, seed)
        files = [folder / "run.json", *sorted((folder / CAPTIONS_FOLDER).glob("*.json"))]
        infos = [json.loads(file.read_text(encoding="utf-8")) for file in files if file.is_file()]
        return float(sum(info.get("seconds", 0.0) for info in infos))


def digest(text: str) -> str:
    """Returns an eight-digit hex hash."""
    return hashlib.sha256(text.encode()).hexdigest()[:8]


def code_versions(*parts: str) -> str:
    """Returns the versions of these parts of the code (see `tellapart.utils.versions`)."""
    return " ".join(f"{part} {VERSIONS[part]}" for part in parts)
