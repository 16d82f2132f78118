"""`python -m reharness.recipes` is the command `reharness`."""

from reharness.recipes.cli import main

if __name__ == "__main__":
    main()
