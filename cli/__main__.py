"""`python -m strandline.cli`: the same as the `strandline` command."""

from __future__ import annotations

from strandline.cli.entry import main

if __name__ == "__main__":
    main()
