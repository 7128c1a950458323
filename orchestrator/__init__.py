"""Orchestrator: turns a sweep file into trials and runs them through Ray Tune."""
