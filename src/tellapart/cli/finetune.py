"""``tellapart finetune``: train a captioner on pictures without writing a recipe."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer
from typer.core import TyperOption

from tellapart.cli.app import TRAINING, App, Command
from tellapart.cli.launch import Nproc, in_processes
from tellapart.cli.options import Device, Json, Overwrite, RecipePrecision, Settings, precision_settings
from tellapart.cli.output import show_run
from tellapart.errors import UsageError

app = App()


def objectives(incomplete: str) -> list[str]:
    """For the shell's completion."""
    from tellapart.recipe.presets import objective_names

    return [name for name in objective_names() if name.startswith(incomplete)]


class FinetuneCommand(Command):
    """Lists the objectives, those of installed packages included, when its help is printed."""

    def format_help(self, ctx: Any, formatter: Any) -> None:
        """See click."""
        from tellapart.recipe.presets import default_objective, objective_names

        for option in self.params:
            if option.name == "objective" and isinstance(option, TyperOption):
                option.help = (
                    f"One of {', '.join(objective_names())}. Default: {default_objective(photos=True)}, "
                    f"on scenes {default_objective(photos=False)}."
                )
        super().format_help(ctx, formatter)


@app.command(cls=FinetuneCommand, rich_help_panel=TRAINING)
def finetune(
    model: Annotated[str, typer.Argument(help="A captioner: folder, run, hub name, or 'scenes'.")],
    pictures: Annotated[list[str], typer.Argument(help="Folders of pictures, or data sets as kind:path?key=value.")],
    out: Annotated[Path, typer.Option("--out", "-o", help="The run's folder; the model is OUT/model.")],
    objective: Annotated[str | None, typer.Option(help="What to learn.", autocompletion=objectives)] = None,
    scorer: Annotated[
        str | None, typer.Option(help="The scorer: folder, run, or hub name. Default: CLIP ViT-B/32.")
    ] = None,
    lora: Annotated[bool, typer.Option("--lora", help="Train LoRA weights; merged at the end.")] = False,
    steps: Annotated[
        int | None,
        typer.Option(min=1, help="Training steps. Default: 300. With more than a run in --out has, it goes on."),
    ] = None,
    epochs: Annotated[
        float | None, typer.Option(min=0.01, help="Passes over the training pictures, in place of --steps.")
    ] = None,
    batch_size: Annotated[
        int | None, typer.Option(min=2, help="Pictures a step. Default: 50, or all where there are fewer.")
    ] = None,
    rate: Annotated[float | None, typer.Option(help="Learning rate. Default: 3e-5, with --lora 3e-4.")] = None,
    max_tokens: Annotated[int, typer.Option(min=2, help="Longest caption, in tokens.")] = 30,
    seed: Annotated[int, typer.Option(min=0, max=2**32 - 1)] = 0,
    settings: Settings = None,
    overwrite: Overwrite = False,
    push_to_hub: Annotated[
        str | None, typer.Option("--push-to-hub", metavar="USER/NAME", help="Upload model and card; needs HF_TOKEN.")
    ] = None,
    private: Annotated[
        bool, typer.Option("--private", help="With --push-to-hub: make the repository private.")
    ] = False,
    device: Device = "auto",
    precision: RecipePrecision = "auto",
    nproc: Nproc = None,
    as_json: Json = False,
) -> None:
    """Train a captioner on your pictures, with settings that fit. After Ctrl-C, the same command goes on."""
    from tellapart.models import ranks
    from tellapart.models.devices import running_on
    from tellapart.training.finetune import run_finetune
    from tellapart.training.plan import plan

    if private and push_to_hub is None:
        raise UsageError("--private needs --push-to-hub USER/NAME; add that, or leave --private out")
    with running_on(device):
        in_processes(nproc)
        ranks.start()
        recipe = plan(
            model,
            pictures,
            objective=objective,
            scorer=scorer,
            lora=lora,
            steps=steps,
            epochs=epochs,
            batch_size=batch_size,
            rate=rate,
            max_tokens=max_tokens,
            seed=seed,
            settings=(*(settings or ()), *precision_settings(precision)),
            folder=out,
            overwrite=overwrite,
        )
        run = run_finetune(recipe, out, hub_id=push_to_hub, private=private, overwrite=overwrite)
    if ranks.is_main():
        show_run(run.folder, as_json)
