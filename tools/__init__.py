"""Scripts that draw the pictures of the documentation and build its site. Run them as `python -m tools.NAME`."""
