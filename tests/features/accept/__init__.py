"""Tests of what `lmsweep accept` answers."""
