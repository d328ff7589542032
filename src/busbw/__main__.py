"""`python -m busbw`."""

from busbw.cli.main import entry

if __name__ == "__main__":
    entry()
