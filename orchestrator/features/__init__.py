"""The features: each answers a question of its own by a verb of its own, and lies in one folder.

A folder here is a feature: its `__init__.py` has the record `feature`. It may import all of the core, and no other
feature. The core imports none: `feature.py` finds them. Without its folder a feature is gone, and nothing else is.
"""
