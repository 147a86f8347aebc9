"""The vocabulary of the synthetic world: its content and every word for it.

The first word in a row is the default. Every word or phrase has only one meaning (see `phrase_senses`), so that
captions can be parsed.
"""

from __future__ import annotations

Words = dict[str, tuple[str, ...]]

SHAPES: Words = {
    "circle": ("circle", "disc", "ball", "disk", "roundel"),
    "square": ("square", "box", "block", "quadrangle"),
    "star": ("star", "starlet", "asterisk", "pentagram"),
    "heart": ("heart", "valentine", "sweetheart"),
    "triangle": ("triangle", "wedge", "trigon"),
    "house": ("house", "hut", "cottage", "cabin", "home"),
    "tree": ("tree", "fir", "pine", "spruce"),
    "flower": ("flower", "blossom", "daisy", "bloom"),
    "diamond": ("diamond", "lozenge", "rhombus"),
    "ring": ("ring", "hoop", "annulus"),
    "moon": ("moon", "crescent", "half-moon"),
    "cross": ("cross", "plus", "crucifix"),
    "fish": ("fish", "trout", "minnow"),
    "boat": ("boat", "ship", "sailboat", "vessel"),
    "cloud": ("cloud", "puff", "cumulus"),
    "leaf": ("leaf", "frond", "petal"),
    "arrow": ("arrow", "pointer", "dart"),
    "drop": ("drop", "teardrop", "droplet"),
    "hexagon": ("hexagon", "honeycomb", "hex"),
    "oval": ("oval", "ellipse", "egg"),
    "dome": ("dome", "semicircle", "half-circle"),
    "mushroom": ("mushroom", "toadstool", "fungus"),
    "bolt": ("bolt", "lightning", "zigzag", "thunderbolt"),
    "bell": ("bell", "chime", "gong"),
}
UNSEEN_SHAPES: Words = {
    "crown": ("crown", "tiara", "diadem"),
    "apple": ("apple", "fruit", "pippin"),
    "key": ("key", "latchkey"),
    "umbrella": ("umbrella", "parasol", "brolly"),
    "rocket": ("rocket", "spaceship", "missile"),
    "cup": ("cup", "mug", "beaker"),
    "gear": ("gear", "cog", "cogwheel"),
    "hourglass": ("hourglass", "sandglass"),
}
COLOURS: Words = {
    "red": ("red", "scarlet", "crimson", "ruby", "vermilion"),
    "blue": ("blue", "azure", "cobalt", "sapphire", "ultramarine"),
    "green": ("green", "emerald", "jade", "verdant", "viridian"),
    "yellow": ("yellow", "golden", "lemon", "amber", "saffron"),
    "orange": ("orange", "tangerine", "apricot", "coppery"),
    "purple": ("purple", "violet", "mauve", "plum", "amethyst"),
    "black": ("black", "dark", "jet", "ebony", "inky"),
    "white": ("white", "ivory", "snow-white", "chalky", "alabaster"),
    "pink": ("pink", "rosy", "salmon", "fuchsia", "blush"),
    "brown": ("brown", "chocolate", "chestnut", "hazel", "umber"),
    "gray": ("gray", "grey", "silver", "ashen", "slate"),
    "turquoise": ("turquoise", "cyan", "teal", "aqua", "aquamarine"),
}
SIZES: Words = {
    "small": ("small", "little", "tiny", "miniature", "petite", "wee"),
    "medium": ("medium", "mid-sized", "average", "middling", "moderate"),
    "large": ("large", "big", "huge", "great", "giant", "bulky"),
}
TEXTURES: Words = {
    "plain": ("plain", "solid", "smooth", "uniform", "unpatterned"),
    "striped": ("striped", "stripy", "lined", "banded", "streaked"),
    "dotted": ("dotted", "spotted", "speckled", "dappled", "freckled"),
    "checked": ("checked", "checkered", "chequered", "latticed", "tartan"),
    "ringed": ("ringed", "rippled", "concentric", "target-like"),
    "hollow": ("hollow", "outlined", "empty", "open", "unfilled"),
}
# Phrases for backgrounds, each with the preposition that suits it.
GROUNDS: Words = {
    "grass": ("on the grass", "on the lawn", "in the meadow", "on the turf", "in the pasture"),
    "sand": ("on the sand", "on the beach", "in the desert", "on the dune", "on the shore"),
    "snow": ("on the snow", "in the frost", "on the ice", "in the blizzard"),
    "water": ("in the water", "in the sea", "on the lake", "on the pond", "in the ocean"),
    "sky": ("in the sky", "in the air", "in the heavens", "in the firmament"),
    "wood": ("on the wood", "on the planks", "on the boards", "on the timber", "on the parquet"),
    "stone": ("on the stone", "on the rock", "on the concrete", "on the pavement", "on the slab"),
    "brick": ("on the bricks", "against the wall", "on the brickwork", "on the masonry"),
    "night": ("in the night", "in the darkness", "under starlight", "at midnight", "in the gloom"),
    "tile": ("on the tiles", "on the tiling", "on the mosaic", "on the ceramics"),
    "soil": ("on the soil", "on the earth", "in the mud", "in the dirt", "on the clay"),
    "cloth": ("on the cloth", "on the carpet", "on the rug", "on the fabric", "on the tapestry"),
    "paper": ("on the paper", "on the page", "on the sheet", "on the parchment"),
}
RELATIONS: Words = {
    "left of": ("left of", "to the left of", "on the left of", "left from"),
    "right of": ("right of", "to the right of", "on the right of", "right from"),
    "above": ("above", "over", "higher than", "atop"),
    "below": ("below", "under", "beneath", "underneath", "lower than"),
    "in front of": ("in front of", "covering", "overlapping", "partly hiding"),
    "behind": ("behind", "in back of", "partly hidden by", "covered by"),
    "near": ("next to", "near", "beside", "by", "close to", "alongside"),
    "between": ("between", "in between", "flanked by", "amid"),
}
VERBS = ("sits", "rests", "lies", "stands", "floats", "hangs", "appears", "hovers", "perches", "lingers")
CLIP_VERBS = ("appears", "is seen", "is shown", "is found")
GENERIC = ("shape", "thing", "object", "figure", "form", "item", "piece", "symbol")
GROUPS = ("some", "several", "a group of", "a bunch of", "a collection of", "various", "a few")
SIDES = ("left", "right")
NUMBERS = {"two": 2, "three": 3, "four": 4, "five": 5}
MOTIONS: Words = {
    "still": ("stays still", "waits", "remains still", "pauses", "keeps still"),
    "left": ("moves left", "slides left", "drifts left", "glides leftwards", "travels left", "heads leftwards"),
    "right": ("moves right", "slides right", "drifts right", "glides rightwards", "travels right", "heads rightwards"),
    "up": ("rises", "climbs", "ascends", "soars", "moves up", "floats upwards"),
    "down": ("falls", "sinks", "descends", "tumbles", "moves down", "plunges downwards"),
    "jump": ("jumps", "hops", "bounces", "leaps", "springs"),
    "grow": ("grows", "swells", "expands", "inflates", "enlarges"),
    "shrink": ("shrinks", "dwindles", "contracts", "deflates", "diminishes"),
}
OPENERS = ("there is", "here is", "we see", "i see", "a picture of", "a view of", "this shows", "look at")
CLIP_OPENERS = ("there is", "here is", "we watch", "i see", "a clip of", "a video of", "this shows", "a scene of")

# Words and boilerplate in alt-text, in addition to the words above.
ALT_WORDS: dict[str, Words] = {
    "shape": {
        "circle": ("sphere", "circle"),
        "square": ("cube", "square"),
        "star": ("starburst", "star"),
        "heart": ("love-heart", "heart"),
        "house": ("building", "cottage"),
        "tree": ("christmas-tree", "conifer"),
        "flower": ("floral", "flower"),
        "bolt": ("thunder", "flash"),
        "arrow": ("cursor", "arrow"),
        "boat": ("yacht", "sailboat"),
        "drop": ("raindrop", "drop"),
        "fish": ("goldfish", "fish"),
    },
    "colour": {
        "red": ("cherry", "red"),
        "blue": ("royal", "blue"),
        "yellow": ("gold", "yellow"),
        "pink": ("magenta", "pink"),
        "gray": ("metallic", "grey"),
        "black": ("noir", "black"),
        "white": ("blanc", "white"),
        "turquoise": ("aqua", "mint"),
    },
    "size": {
        "small": ("mini", "micro", "small"),
        "medium": ("mid-size", "medium", "standard"),
        "large": ("jumbo", "oversized", "large", "xl"),
    },
    "texture": {
        "plain": ("solid", "one-tone"),
        "striped": ("pinstripe", "striped"),
        "dotted": ("polka-dot", "dotted"),
        "checked": ("plaid", "gingham"),
        "ringed": ("bullseye", "ringed"),
        "hollow": ("outline", "line-art", "hollow"),
    },
    "ground": {
        "paper": ("on white background", "isolated on white", "on blank backdrop"),
        "grass": ("grass background", "on greenery", "on grass"),
        "sand": ("sand background", "on beach", "seaside"),
        "snow": ("winter background", "on snow", "snowy backdrop"),
        "water": ("water background", "underwater", "on sea"),
        "sky": ("sky background", "in sky", "skyline"),
        "wood": ("wooden background", "on wood", "hardwood backdrop"),
        "stone": ("concrete background", "on stone", "granite backdrop"),
        "brick": ("brick background", "on brickwork", "brick-wall backdrop"),
        "night": ("night background", "at night", "nighttime"),
        "tile": ("tile background", "on tiles", "bathroom backdrop"),
        "soil": ("earth background", "on soil", "ground backdrop"),
        "cloth": ("fabric background", "on textile", "carpet backdrop"),
    },
    "relation": {
        "left of": ("left of", "at left of"),
        "right of": ("right of", "at right of"),
        "above": ("above", "atop"),
        "below": ("below", "under"),
        "in front of": ("in front of", "overlapping"),
        "behind": ("behind",),
        "near": ("near", "next to", "alongside"),
        "between": ("between",),
    },
}
ALT_PREFIXES = (
    "image of", "picture of", "illustration of", "icon of", "photo of", "graphic of", "drawing of", "clipart of",
)  # fmt: skip
ALT_TAILS = (
    "stock illustration", "stock photo", "vector", "clipart", "free download", "royalty free", "wallpaper",
    "high resolution", "design element", "thumbnail", "banner", "template",
)  # fmt: skip
ALT_FILES = ("img", "dsc", "pic", "final", "untitled", "copy", "export")
ALT_ENDINGS = ("jpg", "png", "gif", "webp")
ALT_GENERIC = ("shape", "icon", "object", "logo", "symbol", "sticker")

WORDS: dict[str, Words] = {
    "shape": SHAPES | UNSEEN_SHAPES,
    "colour": COLOURS,
    "size": SIZES,
    "texture": TEXTURES,
    "motion": MOTIONS,
    "ground": GROUNDS,
    "relation": RELATIONS,
}
UNMARKED = {"size": "medium", "texture": "plain", "motion": "still"}
"""Default values, which captions rarely mention."""
