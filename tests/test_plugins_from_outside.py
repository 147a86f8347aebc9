"""One part of each kind from an installed package: in ``--help``, in a recipe, in a run and in its report."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from child import run_commands
from command_line import Done

from tellapart.captioners import CAPTIONERS, load_captioner
from tellapart.errors import UsageError
from tellapart.objectives import OBJECTIVES
from tellapart.rewards import REWARDS
from tellapart.scorers import SCORERS, load_scorer

CODE = '''
"""Parts of a package of somebody else's."""
from typing import Literal

from tellapart.objectives.base import ObjectiveEntry, ObjectiveOptions
from tellapart.rewards.base import RewardEntry, RewardOptions


class Hinge(ObjectiveOptions):
    """MLE that is 0 below a margin, in nats."""

    kind: Literal["hinge"]
    margin: float = 0.5


def build_hinge(options, parts):
    from tellapart.objectives.base import Loss, Supervised
    from tellapart.objectives.mle import mle_of_references

    class HingeObjective(Supervised):
        def __call__(self, learner, batch):
            loss = mle_of_references(learner, batch.visual, batch.tokens_RT, batch.valid_RT)
            return Loss((loss - options.margin).clamp(min=0), {"margin": options.margin})

    assert parts.captioner.name
    return HingeObjective()


hinge = ObjectiveEntry(
    name="hinge", factory=build_hinge, help="MLE above a margin.", options=Hinge, label="hinge loss", direction="lower"
)


class Brevity(RewardOptions):
    """Fewer tokens, more reward."""

    kind: Literal["brevity"]
    per_token: float = 1.0


def build_brevity(options, parts):
    assert len(parts.train_items)
    return lambda rollout, batch: -options.per_token * rollout.valid_RT.sum(1).view(-1, rollout.samples).float()


brevity = RewardEntry(name="brevity", factory=build_brevity, options=Brevity, label="brevity", direction="higher")


def shout(mark="!"):
    """Share of captions that end with a mark."""
    import torch

    def reward(rollout, batch):
        return torch.tensor([float(t.endswith(mark)) for t in rollout.texts]).view(-1, rollout.samples)

    return reward


def captioner(model):
    """A captioner that wraps another one."""
    from tellapart.captioners import load_captioner

    return load_captioner(model)


def scorer(device):
    """A scorer that wraps another one."""
    from tellapart.scorers import load_scorer

    return load_scorer("scenes", device)
'''
POINTS = {
    "objectives": {"hinge": "hinge"},
    "rewards": {"brevity": "brevity", "shout": "shout", "gone": "gone"},
    "captioners": {"wrapped": "captioner"},
    "scorers": {"wrapped": "scorer"},
}


def install(folder: Path) -> Path:
    """Writes a package as pip leaves it in a folder on Python's path."""
    info = folder / "outside-1.0.dist-info"
    info.mkdir(parents=True)
    (folder / "outside.py").write_text(CODE)
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: outside\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text(
        "\n".join(
            line
            for group, points in POINTS.items()
            for line in (f"[tellapart.{group}]", *(f"{name} = outside:{what}" for name, what in points.items()))
        )
    )
    return folder


@pytest.fixture
def outside(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """The package on the path of this process."""
    monkeypatch.syspath_prepend(install(tmp_path / "site"))
    yield
    sys.modules.pop("outside", None)


@pytest.mark.usefixtures("outside")
def test_the_registries_have_the_parts() -> None:
    assert (OBJECTIVES.find("hinge").title, OBJECTIVES.find("hinge").direction) == ("hinge loss", "lower")
    assert REWARDS.find("brevity").title == "brevity"
    assert REWARDS.find("shout").help == "Share of captions that end with a mark."
    assert CAPTIONERS.find("wrapped").help == "A captioner that wraps another one."
    assert SCORERS.find("wrapped").help == "A scorer that wraps another one."
    with pytest.raises(UsageError, match="reward 'gone' of the installed package outside cannot be loaded"):
        REWARDS.find("gone")


@pytest.mark.usefixtures("outside")
def test_captioners_and_scorers_load_by_name_without_an_option() -> None:
    assert type(load_captioner("wrapped?model=scenes")) is type(load_captioner("scenes"))
    assert load_scorer("wrapped").name == "scenes"


RECIPE = """
name = "outside"
[data]
train = "scenes:plain?n=40"
validation = "scenes:plain?n=20&split=validation"
[captioner]
name = "wrapped?model=scenes"
[scorer]
name = "wrapped"
[objective]
{objective}
[training]
steps = 2
batch_size = 4
learning_rate = 1e-4
[validation]
every = 2
[evaluation]
gallery = 0
"""
REWARDED = """kind = "reinforce"
rewards = [{kind = "brevity", weight = 0.5}, {kind = "shout", mark = "?"}, {kind = "self_retrieval"}]
decoding = {kind = "greedy", max_tokens = 8}
"""


OBJECTIVES_TYPED = {
    "loss": 'kind = "hinge"\nmargin = 0.1',
    "rewards": REWARDED,
    "wrong_key": 'kind = "hinge"\nmargins = 1',
    "wrong_argument": 'kind = "reinforce"\nrewards = [{kind = "shout", marks = "?"}]',
}


@pytest.fixture(scope="module")
def typed(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, Done]]:
    """What commands leave in a process of their own, for the schema of recipes is built when it is imported."""
    folder = tmp_path_factory.mktemp("outside")
    commands: dict[str, list[object]] = {
        "help": ["finetune", "--help"],
        "wrong_name": ["finetune", "scenes", "scenes:plain?n=40", "-o", folder / "x", "--objective", "hingee"],
    }
    for name, objective in OBJECTIVES_TYPED.items():
        (folder / f"{name}.toml").write_text(RECIPE.format(objective=objective))
        commands[name] = ["train", folder / f"{name}.toml", "--out", folder / name]
    for name in ("loss", "rewards"):
        commands[f"report of {name}"] = ["report", folder / name, "-o", folder / f"{name}.html"]
    return folder, dict(zip(commands, run_commands(*commands.values(), path=[install(folder / "site")]), strict=True))


@pytest.mark.long
def test_help_and_errors_name_them(typed: tuple[Path, dict[str, Done]]) -> None:
    text = " ".join(typed[1]["help"].out.replace("│", " ").split())
    assert "hinge" in text and "brevity" in text and "shout" in text
    assert "unknown objective 'hingee'; did you mean 'hinge'?" in typed[1]["wrong_name"].line


@pytest.mark.long
@pytest.mark.parametrize(("name", "reported"), [("loss", "hinge"), ("rewards", "brevity")])
def test_a_recipe_trains_with_them_and_the_report_names_them(
    typed: tuple[Path, dict[str, Done]], name: str, reported: str
) -> None:
    folder, done = typed
    assert done[name].status == 0, done[name].err
    assert "reward 'gone' of the installed package outside cannot be loaded" in done["help"].err + done["loss"].err
    assert done[f"report of {name}"].status == 0, done[f"report of {name}"].err
    assert reported in (folder / f"{name}.html").read_text()


@pytest.mark.long
def test_a_wrong_key_and_a_wrong_argument_are_one_line(typed: tuple[Path, dict[str, Done]]) -> None:
    assert "unknown key 'objective.margins'; did you mean 'margin'?" in typed[1]["wrong_key"].line
    assert "reward 'shout': the call (marks='?') failed: TypeError" in typed[1]["wrong_argument"].line
    assert {typed[1][name].status for name in ("wrong_key", "wrong_argument")} == {2}
