"""``python -m overweave``: the command line."""

from overweave.cli import main

if __name__ == "__main__":
    main()
