"""A store to commit or to send: one file per table, a report and a summary, without names of machines and people.

share.py       writes the folder
allowed.py     what may be shared of each column
summaries.py   each trial as a configuration and numbers, as experiment trackers want it
"""
