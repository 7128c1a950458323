"""What a store answers, and in which words: the last line of a run, the headline of a page, a badge.

question.py        what is compared: the sweep's own question, or those that follow from what varies
verdicts.py        the answer to a question: each option against the baseline, cell by cell
headline.py        its headline, in words that rest on the verdicts
store_answers.py   all answers of a store; the range of its numbers, if it compares nothing
"""
