"""``python -m streamomd``."""

from streamomd.cli import main

if __name__ == "__main__":
    main(prog_name="streamomd")
