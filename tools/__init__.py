"""Scripts that draw the pictures of the documentation and build its site. Run them as `python -m tools.NAME`."""

ADDRESSES = (
    "https://github.com/lmsweep/lmsweep/(?:blob|tree)/main/|https://raw.githubusercontent.com/lmsweep/lmsweep/main/"
)
"""How the address of a file of ours begins in README.md: an index shows that page, too, so its links are absolute."""
