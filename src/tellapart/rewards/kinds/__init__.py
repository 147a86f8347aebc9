"""The rewards that a recipe can name, one module each: its options, its line of help and its factory.

Modules are found by themselves; there is no list to extend. They load torch inside their factories only, since the
recipe schema imports them.
"""
