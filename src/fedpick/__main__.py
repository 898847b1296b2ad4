"""``python -m fedpick``."""

from fedpick.cli import main

if __name__ == "__main__":
    main()
