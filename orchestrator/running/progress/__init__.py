"""What a run shows: progress, time left, what does not answer.

liveness.py         what does not answer: Ray, a worker, a trial server
eta.py              the estimated time left
trial_progress.py   the line for each trial, and on a terminal the live view
trial_words.py      what a trial is and how it ended, and what a plan will run, in a few words
"""
