"""A whole rehearsal: a study of scenes where there is none, a server, scripted participants, and their answers."""

from __future__ import annotations

import math
import shutil
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from tellapart.errors import TellapartError, UsageError
from tellapart.study.create import Material, Plan, create_study
from tellapart.study.design import Study, check_pictures
from tellapart.study.simulate import (
    Effects,
    Log,
    local_server,
    rehearsal_counts,
    run_participants,
    store_of_rehearsal,
)
from tellapart.study.store import AnswerStore

SCENES = "scenes:plain?split=test&n=400"


@dataclass(frozen=True)
class Rehearsal:
    """Where the answers of a rehearsal are, what was planted, and how it went."""

    store: Path
    counts: dict[str, int]
    effects: Effects
    log: Log
    seconds: float

    def to_json(self) -> dict[str, Any]:
        """The JSON of ``study simulate --json``."""
        return {
            "participants": self.counts,
            "effects": dict(self.effects.of_system),
            "acknowledged": self.log.acknowledged,
            "ends": self.log.ends,
            "seconds": round(self.seconds, 1),
            "answer_p95_ms": round(1000 * self.log.percentile(0.95, ("answer",)), 1),
            "request_p95_ms": round(1000 * self.log.percentile(0.95), 1),
        }

    def line(self) -> str:
        """The same in a line."""
        who = ", ".join(f"{count} {character}" for character, count in self.counts.items() if count)
        return (
            f"{who}: {self.log.acknowledged:,} answers in {self.seconds:.1f} s; 95 % of answers took less than "
            f"{1000 * self.log.percentile(0.95, ('answer',)):.0f} ms, 95 % of all requests less than "
            f"{1000 * self.log.percentile(0.95):.0f} ms"
        )


def rehearse(
    study: Study,
    participants: int | None = None,
    hasty: float = 0.15,
    blind: float = 0.1,
    effects: Sequence[str] = (),
    *,
    think: float = 0.0,
    at_once: int = 8,
    url: str | None = None,
    seed: int = 0,
) -> Rehearsal:
    """Scripted participants take the study. url: of a server that runs; None starts one with a new store.

    Their identifiers pass whatever ``id_pattern`` says, except at a server that runs. Raises `UsageError` where a rule
    on time would exclude all of them because they do not think.
    """
    if study.settings.exclusion.min_median_seconds and not think:
        raise UsageError("min_median_seconds excludes participants who do not think; add --think SECONDS")
    check_pictures(study)
    count = participants or max(4, -(-study.quota * 5 // 4))
    if not math.isfinite(think):
        raise UsageError(f"--think {think:g}: expected seconds, such as 0.5")
    planted, counts = Effects.of(study, effects), rehearsal_counts(count, hasty, blind)
    started = time.perf_counter()
    path = store_of_rehearsal(study.folder)
    if url is not None:
        log = run_participants(study, url.rstrip("/"), planted, counts, think=think, seed=seed, at_once=at_once)
        return Rehearsal(path, counts, planted, log, time.perf_counter() - started)
    if path.parent.exists():
        shutil.rmtree(path.parent)
    with AnswerStore.open(study, path) as store:
        store.set_stamp(study.stamp, time.time())
        with local_server(_open_to_all(study), store) as address:
            log = run_participants(study, address, planted, counts, think=think, seed=seed, at_once=at_once)
        saved = len(store.answers())
    if saved != log.acknowledged:
        raise TellapartError(f"{path}: {log.acknowledged:,} answers were acknowledged and {saved:,} are there")
    return Rehearsal(path, counts, planted, log, time.perf_counter() - started)


def _open_to_all(study: Study) -> Study:
    """The study for any identifier; ``[recruitment]`` is not stamped."""
    recruitment = study.settings.recruitment.model_copy(update={"id_pattern": ".+"})
    return replace(study, settings=study.settings.model_copy(update={"recruitment": recruitment}))


def scenes_study(kind: str, folder: Path) -> Study:
    """A small study of the synthetic world, for a rehearsal without any data: vague and detailed captions."""
    from tellapart.data import open_data

    items = list(open_data(SCENES))
    captions = {
        "vague": {item.id: min(item.references, key=len) for item in items},
        "detailed": {item.id: item.truth.description for item in items},
    }
    references = {item.id: item.references for item in items}
    features_ND = None
    if kind == "pick":
        import numpy as np

        from tellapart.features.store import FeatureStore
        from tellapart.models.device import best_device
        from tellapart.scorers import load_scorer

        scorer = load_scorer("scenes", best_device())
        features_ND = np.asarray(FeatureStore().features(items, scorer.encoder))
    plan = Plan(
        kind=kind,
        items=30 if kind == "pick" else 40,
        candidates=6 if kind == "pick" else 2,
        block=20,
        raters=10 if kind == "compare" else 4,  # which has a third of the blocks
        human="first" if kind != "compare" else "none",
        max_cosine=0.98,  # scenes are more alike than photos
        title="A rehearsal",
        researcher="nobody",
        institution="none",
        contact="none",
        ethics="none needed: no person takes part",
        payment="Nobody is paid.",
    )
    return create_study(folder, Material(items, captions, references, features_ND, {"data": [SCENES]}), plan)
