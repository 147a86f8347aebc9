"""The table [objective] of a recipe: the ``Config`` of an objective, chosen by ``kind``.

``kind`` has a default in the kinds of the first release. A new kind gives it none (see `ObjectiveOptions`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Union

from pydantic import Field

from tellapart.objectives.base import OBJECTIVES, ObjectiveOptions, PluginObjectiveOptions
from tellapart.utils.messages import say
from tellapart.utils.options import option_tables

if TYPE_CHECKING:
    Objective = ObjectiveOptions
else:
    # One table per registered objective, those of installed packages included; what cannot be loaded is left out.
    TABLES = option_tables(OBJECTIVES.entries(broken=say), ObjectiveOptions, PluginObjectiveOptions)
    Objective = Annotated[Union[TABLES], Field(discriminator="kind")]  # noqa: UP007
