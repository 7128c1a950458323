"""What a page answers, and in which words.

question.py   what is compared: the sweep's own question, or those that follow from what varies
verdicts.py   the answer to a question: each option against the baseline, cell by cell
headline.py   its headline, in words that rest on the verdicts
history.py    the states of the user's code, or dates, one after the other, and where something changed
"""
