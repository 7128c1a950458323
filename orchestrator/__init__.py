"""Orchestrator: turns a sweep file into trials and runs them through Ray Tune."""

import sys
from os.path import abspath, dirname

# Before anything else is imported: the current folder may hold a trials.py or a random.py.
sys.path.insert(0, dirname(dirname(abspath(__file__))))
from trials.interpreter import order_search_path

order_search_path()
