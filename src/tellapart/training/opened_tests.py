"""Opens the test sets of a recipe, and reads their bags and hard pools."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path

from tellapart.data import Dataset, open_data
from tellapart.errors import UsageError
from tellapart.evaluation.candidate_inputs import CandidateInputs, read_bag_sets, read_candidates
from tellapart.models.decoding import Decoding
from tellapart.recipe.schema import TestSet
from tellapart.training.build import TrainingSetup, readable
from tellapart.types import Item


@dataclass(frozen=True)
class OpenedTest:
    """``data.test``, whose ``name`` is "", or an additional test set ``on``.

    items: the items to caption. decoding: the decoding settings for them.
    """

    name: str
    on: TestSet | None
    dataset: Dataset | None
    items: list[Item]
    decoding: Decoding

    @property
    def key(self) -> str:
        """The key in the recipe."""
        return f"evaluation.test_sets.{self.name}" if self.name else "data.test"


def open_tests(setup: TrainingSetup, *, read: bool = True) -> list[OpenedTest]:
    """Opens the test sets in ``evaluation.test_sets``. Raises `UsageError` if a file is missing.

    ``read``: whether to read the pictures and leave out unreadable ones.
    """
    tests = []
    for name, on in setup.recipe.evaluation.test_sets.items():
        where = f"evaluation.test_sets.{name}"
        for missing, why in on.absent().items():
            raise UsageError(
                f"{where} requires {missing} ({why}), which does not exist; create it, or remove the test set"
            )
        for path in (*on.bags, *on.references):
            if not Path(path).exists():
                raise UsageError(
                    f"{where}: {path} does not exist; expected a file that 'eval' accepts for --bags or --references"
                )
        dataset = open_data(on.data)
        captioned = dataset if on.captioned is None else open_data(on.captioned)
        items = readable(setup, captioned) if read else list(captioned)
        decoding = setup.recipe.evaluation.decoding
        if on.max_tokens is not None:
            decoding = decoding.model_copy(update={"max_tokens": on.max_tokens})
        tests.append(OpenedTest(name, on, dataset, items, decoding))
    return tests


def candidates_of(test: OpenedTest) -> CandidateInputs:
    """Reads a test set's bags and hard pool. Raises `UsageError` if they do not match the captioned pictures."""
    if test.on is None:
        return CandidateInputs()
    ids = [item.id for item in test.items]
    sets, notes = read_bag_sets([Path(path) for path in test.on.bags], test.dataset)
    try:
        inputs = read_candidates(sets, test.on.distractors, ids, test.dataset)
    except UsageError as error:
        raise UsageError(f"{test.key}: {error}") from None
    return replace(inputs, notes=[*notes, *inputs.notes])
