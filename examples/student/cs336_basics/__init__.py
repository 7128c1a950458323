"""Assignment 1: the transformer."""
