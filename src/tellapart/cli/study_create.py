"""``tellapart study create``: prepare a study in a folder."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, get_type_hints

import typer

from tellapart.cli.common import App
from tellapart.cli.output import Json, show
from tellapart.errors import UsageError

if TYPE_CHECKING:
    from tellapart.study.design import Study

app = App(name="create", help="Prepare a study in a folder: its items and its study.toml.", no_args_is_help=True)

Data = Annotated[list[str], typer.Argument(help="Folders, picture files, or data sets as kind:path?key=value.")]
Pictures = Annotated[int | None, typer.Option("--pictures", min=1, help="Pictures. Default: 100.")]


@dataclass(frozen=True, kw_only=True)
class Material:
    """Where a study's captions come from, and where it goes."""

    captions: Annotated[
        list[Path] | None, typer.Option("--captions", help="A system's captions; its name is the file's. Repeatable.")
    ] = None
    references: Annotated[
        list[Path] | None,
        typer.Option("--references", help="People's captions. Default: those of the data. Repeatable."),
    ] = None
    out: Annotated[Path, typer.Option("--out", "-o", help="The new folder of the study.")] = Path("study")
    as_json: Json = False


@dataclass(frozen=True, kw_only=True)
class Design:
    """What every kind of study has; the fields are those of `tellapart.study.create.Plan`."""

    human: Annotated[
        str | None, typer.Option("--human", help="People's captions as a system: first or random reference, or none.")
    ] = None
    block: Annotated[int, typer.Option(min=1, help="Items that one participant answers.")] = 100
    controls: Annotated[int, typer.Option(min=0, max=50, help="Control items of one participant.")] = 5
    raters: Annotated[int | None, typer.Option(min=1, help="Participants for each block.")] = None
    seed: Annotated[int, typer.Option(help="Of the choice of items and of their order in blocks.")] = 0
    title: Annotated[str, typer.Option(help="The study's name, on its page.")] = ""
    researcher: Annotated[str, typer.Option(help="Who is responsible, for the consent page.")] = ""
    institution: Annotated[str, typer.Option(help="The university or company, for the consent page.")] = ""
    contact: Annotated[str, typer.Option(help="An address for questions, for the consent page.")] = ""
    ethics: Annotated[str, typer.Option(help="The board and the number of its approval, for the consent page.")] = ""
    payment: Annotated[str, typer.Option(help="What participants are paid, as a sentence, for the consent page.")] = ""


def kind_of_study(command: Callable[..., None]) -> Callable[..., None]:
    """Register a command whose parameters ``material`` and ``design`` stand for the options of those classes."""
    shared: dict[str, type[Any]] = {"material": Material, "design": Design}
    own = [each for each in inspect.signature(command, eval_str=True).parameters.values() if each.name not in shared]
    options = {name: options_of(kind) for name, kind in shared.items()}

    def with_options(**values: Any) -> None:
        made = {name: kind(**{each.name: values.pop(each.name) for each in options[name]})
                for name, kind in shared.items()}  # fmt: skip
        command(**values, **made)

    parameters = [*own, *options["material"], *options["design"]]
    required = inspect.Parameter.empty  # those without a default come first, and --json last
    parameters.sort(key=lambda each: (each.default is not required, each.name == "as_json"))
    with_options.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    with_options.__annotations__ = {each.name: each.annotation for each in parameters}
    with_options.__doc__ = command.__doc__
    return app.command(command.__name__)(with_options)


def options_of(kind: type[Any]) -> list[inspect.Parameter]:
    """The fields of a dataclass as parameters."""
    hints, either = get_type_hints(kind, include_extras=True), inspect.Parameter.POSITIONAL_OR_KEYWORD
    return [
        inspect.Parameter(each.name, either, default=each.default, annotation=hints[each.name]) for each in fields(kind)
    ]


@kind_of_study
def pick(
    data: Data,
    scorer: Annotated[str, typer.Option("--scorer", help="The scorer whose features say which pictures look alike.")],
    material: Material,
    design: Design,
    sets: Annotated[int | None, typer.Option(min=1, help="Look-alike sets, at most. Default: 500.")] = None,
    candidates: Annotated[int, typer.Option(min=2, max=10, help="Pictures of a set, the target included.")] = 10,
    max_cosine: Annotated[
        float, typer.Option("--max-cosine", help="Highest similarity of a distractor to the target (paper 3: 0.8).")
    ] = 0.8,
) -> None:
    """Choose the picture that a caption describes among pictures that look alike (paper 3, section 4.2.4)."""
    create("pick", data, material, design, scorer, items=sets, candidates=candidates, max_cosine=max_cosine)


@kind_of_study
def rate(data: Data, material: Material, design: Design, pictures: Pictures = None) -> None:
    """Rate captions from 1 to 5: descriptiveness, accuracy, fluency (paper 1, Table 2)."""
    create("rate", data, material, design, items=pictures)


@kind_of_study
def compare(data: Data, material: Material, design: Design, pictures: Pictures = None) -> None:
    """Compare two captions of a picture: which tells more, which is wrong."""
    create("compare", data, material, design, items=pictures)


def create(
    kind: str, data: list[str], material: Material, design: Design, scorer: str | None = None, **more: Any
) -> None:
    """Read the material, write the study, and say what was made. ``more``: further fields of the plan."""
    from tellapart.study.create import Plan, create_study
    from tellapart.study.design import ITEMS
    from tellapart.study.material import read_material

    plan = Plan(kind=kind, **asdict(design), **more)
    if (material.out / ITEMS).exists():
        raise UsageError(f"{material.out}: a study is there already; name another folder with -o")
    read = read_material(data, material.captions or (), material.references or (), scorer)
    study = create_study(material.out, read, plan)
    show(summary(study), lambda: summary_line(study), material.as_json)


def summary(study: Study) -> dict[str, Any]:
    """A new study as JSON values."""
    from tellapart.study.design import CONTROL, ITEM

    return {
        "folder": str(study.folder),
        "kind": study.kind,
        "systems": list(study.systems),
        "items": len({study.trials[number].unit for number in study.of_role[ITEM]}),
        "controls": len(study.of_role[CONTROL]),
        "blocks": len(study.blocks),
        "raters": study.settings.sampling.raters,
        "participants": study.quota,
        "stamp": study.stamp,
        "to_write": study.settings.unwritten(),
    }


def summary_line(study: Study) -> str:
    """A new study in lines."""
    made = summary(study)
    what = "look-alike sets" if study.kind == "pick" else "pictures"
    lines = [
        f"{study.folder}: {made['items']:,} {what}, {', '.join(study.systems)}; {made['blocks']} blocks, "
        f"{made['participants']} participants",
        f"next: read {study.folder}/study.toml"
        + (f" and write {', '.join(made['to_write'])}" if made["to_write"] else "")
        + f"; then tellapart study serve {study.folder} --preview",
    ]
    return "\n".join(lines)
