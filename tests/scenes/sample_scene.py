"""A scene of two objects for tests: a star on the left and a heart on the right."""

from tellapart.scenes import Object, Scene


def scene(star: str = "red", heart: str = "blue", star_x: int = 25, ground: str = "grass") -> Scene:
    objects = (
        Object("star", star, "small", "striped", star_x, 64),
        Object("heart", heart, "large", "plain", 128 - star_x, 64),
    )
    return Scene("s", objects, ground, 0)
