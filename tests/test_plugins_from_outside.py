"""One part of each kind from an installed package: in ``--help``, in a recipe, in a run and in its report."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

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
    from tellapart.objectives.base import Loss, Stateless
    from tellapart.objectives.mle import mle_of_references

    class HingeObjective(Stateless):
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


@pytest.fixture
def outside(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A package as pip leaves it in a folder on Python's path."""
    folder = tmp_path / "site"
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
    monkeypatch.syspath_prepend(folder)
    yield folder
    sys.modules.pop("outside", None)


def run(outside: Path, *arguments: object) -> subprocess.CompletedProcess[str]:
    """The command in a process of its own: the schema of recipes is built when it is imported."""
    script = f"import sys; sys.path.insert(0, {str(outside)!r}); from tellapart.cli import main; main()"
    command = [sys.executable, "-c", script, *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, timeout=250)


def test_the_registries_have_the_parts(outside: Path) -> None:
    assert (OBJECTIVES.find("hinge").title, OBJECTIVES.find("hinge").direction) == ("hinge loss", "lower")
    assert REWARDS.find("brevity").title == "brevity"
    assert REWARDS.find("shout").help == "Share of captions that end with a mark."
    assert CAPTIONERS.find("wrapped").help == "A captioner that wraps another one."
    assert SCORERS.find("wrapped").help == "A scorer that wraps another one."
    with pytest.raises(UsageError, match="reward 'gone' of the installed package outside cannot be loaded"):
        REWARDS.find("gone")


def test_captioners_and_scorers_load_by_name_without_an_option(outside: Path) -> None:
    assert type(load_captioner("wrapped?model=scenes")) is type(load_captioner("scenes"))
    assert load_scorer("wrapped").name == "scenes"


@pytest.mark.long
def test_help_and_errors_name_them(outside: Path) -> None:
    text = " ".join(run(outside, "finetune", "--help").stdout.replace("│", " ").split())
    assert "hinge" in text and "brevity" in text and "shout" in text
    line = run(outside, "finetune", "scenes", "scenes:plain?n=40", "-o", "x", "--objective", "hingee").stderr
    assert "no objective is called 'hingee'; did you mean 'hinge'?" in line


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


@pytest.mark.long
@pytest.mark.parametrize(
    ("objective", "reported"),
    [('kind = "hinge"\nmargin = 0.1', "hinge"), (REWARDED, "brevity")],
    ids=["loss", "rewards"],
)
def test_a_recipe_trains_with_them_and_the_report_names_them(
    outside: Path, tmp_path: Path, objective: str, reported: str
) -> None:
    (tmp_path / "outside.toml").write_text(RECIPE.format(objective=objective))
    done = run(outside, "train", tmp_path / "outside.toml", "--out", tmp_path / "run")
    assert done.returncode == 0, done.stderr
    assert "reward 'gone' of the installed package outside cannot be loaded" in done.stderr
    made = run(outside, "report", tmp_path / "run", "-o", tmp_path / "page.html")
    assert made.returncode == 0, made.stderr
    assert reported in (tmp_path / "page.html").read_text()


@pytest.mark.long
def test_a_wrong_key_and_a_wrong_argument_are_one_line(outside: Path, tmp_path: Path) -> None:
    def refusal(objective: str) -> str:
        (tmp_path / "outside.toml").write_text(RECIPE.format(objective=objective))
        done = run(outside, "train", tmp_path / "outside.toml", "--out", tmp_path / "run")
        assert done.returncode == 2, done.stderr
        return done.stderr.strip().splitlines()[-1]

    assert "unknown key 'objective.margins'; did you mean 'margin'?" in refusal('kind = "hinge"\nmargins = 1')
    line = refusal('kind = "reinforce"\nrewards = [{kind = "shout", marks = "?"}]')
    assert "reward 'shout': its call (marks='?') failed: TypeError" in line
