"""The families of captioners with a class of their own here, one module each. Modules are found by themselves."""
