"""A synthetic world of small pictures with exact ground truth; needs NumPy and Pillow only.

`world` has `Scenes`, the data set. `families` makes contents, `render` draws them, `grammar` describes them; `parser`
and `truth` compare any caption with the truth of a scene.
"""

from .families import Object
from .world import Scene, Scenes

__all__ = ["Object", "Scene", "Scenes"]
