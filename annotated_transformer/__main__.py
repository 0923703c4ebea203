"""``python -m annotated_transformer`` is the command ``annotated-transformer``."""

from .cli import main

if __name__ == "__main__":
    main()
