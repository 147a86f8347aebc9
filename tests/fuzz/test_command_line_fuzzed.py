"""Damaged commands, 700 and 1,300 slow ones: no traceback, no hang, nothing left behind, one line for each failure."""

from __future__ import annotations

import os
import random
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from typer.main import get_command

sys.path.append(str(Path(__file__).parent.parent / "report"))  # a sample run

from fuzz_setting import made_corpus, odd_server
from fuzzer import COMMANDS, Fuzzer, bounded_memory, summary

from tellapart.cli.whole_app import whole_app

SEED = 16
# Commands that end in an error as they stand: a server that answers badly, names that are none.
REFUSED = ("tables 9", "boost @data", "boost @photos", "eval --metrics clair", "study arena")


@pytest.fixture(scope="module")
def fuzzer(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Fuzzer]:
    root, cache = tmp_path_factory.mktemp("fuzz"), os.environ["TELLAPART_CACHE"]
    with odd_server() as server:
        corpus = made_corpus(root)
        with bounded_memory():
            yield Fuzzer(SEED, corpus, root / "cases", server)
    os.environ["TELLAPART_CACHE"] = cache


@pytest.mark.long
def test_every_command_is_valid_as_it_stands(fuzzer: Fuzzer) -> None:
    """What is refused before anything is damaged tests nothing."""
    for place, (_, command) in enumerate(COMMANDS):
        outcome = fuzzer.run(place, command, random.Random(0), 0)
        assert not outcome.wrong, outcome.report(SEED)
        assert outcome.status in ("0", "began") or command.startswith(REFUSED), (command, outcome.err)
    fuzzer.counts.clear()


@pytest.mark.long
def test_every_verb_is_typed() -> None:
    """A verb that is added is fuzzed, too."""

    def verbs(command: Any, words: tuple[str, ...] = ()) -> Iterator[str]:
        if not (below := getattr(command, "commands", {})):
            yield " ".join(words)
        for name, own in below.items():
            yield from verbs(own, (*words, name))

    missing = [
        verb for verb in verbs(get_command(whole_app())) if not any(f"{c} ".startswith(f"{verb} ") for _, c in COMMANDS)
    ]
    assert not missing


@pytest.mark.parametrize(
    ("begin", "end"), [pytest.param(0, 700, marks=pytest.mark.long), pytest.param(700, 2000, marks=pytest.mark.slow)]
)
def test_damaged_commands_end_in_one_line(fuzzer: Fuzzer, begin: int, end: int) -> None:
    fuzzer.counts.clear()
    wrong = [outcome for number in range(begin, end) if (outcome := fuzzer.case(number)).wrong]
    print(f"seed {SEED}, {end - begin:,} cases\n{summary(fuzzer.counts)}")
    told = "\n".join(outcome.report(SEED)[-3000:] for outcome in wrong[:5])
    again = f"python tests/fuzz/fuzzer.py --seed {SEED} --case NUMBER --keep FOLDER"
    assert not wrong, f"{len(wrong)} of {end - begin:,} cases:\n{told}\none again: {again}\n{summary(fuzzer.counts)}"
