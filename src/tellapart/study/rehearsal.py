"""Rehearses a study with scripted participants to check its server and its report."""

from __future__ import annotations

import random
import re
import shutil
import threading
import time
from collections import Counter
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tellapart.errors import TellapartError, UsageError
from tellapart.study.design import Study, check_pictures
from tellapart.study.scripted import CAREFUL, HASTY, RANDOM, Script, StudyBrowser
from tellapart.study.server import create_app
from tellapart.study.session import StudySession
from tellapart.study.store import AnswerStore
from tellapart.utils.progress import Progress
from tellapart.utils.web.server import LOOPBACK, bind, server_of


@dataclass
class Rehearsal:
    """The outcome of a rehearsal.

    store: the file that contains the simulated answers, which are kept separate from real answers.
    counts: number of participants with each character.
    effects: each system's planted effect.
    characters: maps each participant's identifier to a character.
    ends: how many participations ended in each way.
    acknowledged: number of answers that the server acknowledged.
    """

    store: Path
    counts: Mapping[str, int]
    effects: Mapping[str, float]
    characters: dict[str, str] = field(default_factory=dict)
    ends: Counter[str] = field(default_factory=Counter)
    acknowledged: int = 0
    seconds: float = 0.0

    def to_json(self) -> dict[str, Any]:
        """Returns the JSON that ``study simulate --json`` prints."""
        return {
            "participants": self.counts,
            "effects": self.effects,
            "acknowledged": self.acknowledged,
            "ends": self.ends,
            "seconds": round(self.seconds, 1),
        }

    def line(self) -> str:
        """Describes the outcome in one line."""
        who = ", ".join(f"{count} {character}" for character, count in self.counts.items() if count)
        return f"{who}: {self.acknowledged:,} answers in {self.seconds:.1f} s"


def rehearse(
    study: Study,
    participants: int | None = None,
    hasty: float = 0.15,
    blind: float = 0.1,
    *,
    effects: Mapping[str, float] | None = None,
    think: float = 0.0,
    at_once: int = 8,
    seed: int = 0,
) -> Rehearsal:
    """Rehearses a study with scripted participants and a new store. Ignores ``id_pattern``.

    effects: see `planted_effects`.

    Raises `UsageError` if a timing rule would exclude all participants because they answer instantly.
    """
    if study.settings.exclusion.min_median_seconds and not think:
        raise UsageError("min_median_seconds excludes participants without thinking time; add --think SECONDS")
    check_pictures(study)
    counts = rehearsal_counts(participants or max(4, -(-study.quota * 5 // 4)), hasty, blind)
    done = Rehearsal(study.folder / "simulated" / "answers.sqlite", counts, effects or planted_effects(study))
    shutil.rmtree(done.store.parent, ignore_errors=True)
    with AnswerStore.open(study, done.store) as store:
        store.set_stamp(study.stamp, time.time())
        recruitment = study.settings.recruitment.model_copy(update={"id_pattern": re.compile(".+")})
        settings = study.settings.model_copy(update={"recruitment": recruitment})
        with local_server(study.model_copy(update={"settings": settings}), store) as address:
            run_participants(study, address, done, think=think, seed=seed, at_once=at_once)
        saved = len(store.answers())
    if saved != done.acknowledged:
        raise TellapartError(
            f"{done.store}: the server acknowledged {done.acknowledged:,} answers, but {saved:,} are stored"
        )
    return done


def run_participants(
    study: Study, url: str, done: Rehearsal, *, think: float = 0.0, seed: int = 0, at_once: int = 8
) -> None:
    """Runs a rehearsal's participants at ``url``, ``at_once`` of them concurrently. Records the outcome in ``done``."""
    characters = [character for character, count in done.counts.items() for _ in range(count)]
    random.Random(seed).shuffle(characters)
    done.characters = {f"SIMULATED{seed}.{number}": character for number, character in enumerate(characters)}

    def take_part(identifier: str) -> tuple[str, int]:
        number = identifier.rpartition(".")[2]
        script = Script(study, done.effects, done.characters[identifier], f"{seed} {number}")
        web = StudyBrowser(url)
        try:
            return script.take(web, identifier, think)
        finally:
            web.close()

    started = time.perf_counter()
    with ThreadPoolExecutor(at_once) as pool, Progress(len(characters), "participants") as progress:
        for end, acknowledged in pool.map(take_part, done.characters):
            done.ends[end] += 1
            done.acknowledged += acknowledged
            progress.advance()
    done.seconds = time.perf_counter() - started


def planted_effects(study: Study) -> dict[str, float]:
    """Returns each system's default effect x, from 0.35 for the first system to 0.75 for the last one.

    ``pick``: x is the probability of choosing the target.
    ``rate``: the mean descriptiveness is 1 + 4·x.
    ``compare``: x is the system's strength. A system with strength a beats one with strength b with probability
    a / (a + b).
    """
    step = 0.4 / max(1, len(study.systems) - 1)
    return {name: 0.35 + step * place for place, name in enumerate(study.systems)}


def rehearsal_counts(participants: int, hasty: float, blind: float) -> dict[str, int]:
    """Returns the number of participants with each character. At least one participant is careful."""
    if not (hasty >= 0 and blind >= 0 and hasty + blind < 1):
        raise UsageError(
            "--hasty and --random must leave a fraction of careful participants; use values such as 0.2 and 0.1"
        )
    rest = {HASTY: round(hasty * participants), RANDOM: round(blind * participants)}
    return {CAREFUL: max(1, participants - sum(rest.values())), **rest}


@contextmanager
def local_server(study: Study, store: AnswerStore) -> Iterator[str]:
    """Serves the study in a thread of this process until the ``with`` block ends. Yields the server's address."""
    listener = bind(0)
    port = listener.getsockname()[1]
    server = server_of(create_app(StudySession(study, store), port))
    thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]}, daemon=True)
    thread.start()
    while not server.started:
        time.sleep(0.01)
    try:
        yield f"http://{LOOPBACK}:{port}"
    finally:
        server.should_exit = True
        thread.join(10)
        listener.close()
