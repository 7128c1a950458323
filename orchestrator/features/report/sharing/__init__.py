"""A store to commit or to send, without names of machines and people; a badge; notebooks.

shared_folder.py     writes the folder: one file per table, a report and a summary
allowed.py           what may be shared of each column
shared_words.py      which words of a text may be shared
drawn_badge.py       chooses the words of a badge, and draws it
copied_notebooks.py  the notebooks that ship
"""
