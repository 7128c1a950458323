"""Whether a machine is as fast as one of its kind: the judgement of what `lmsweep accept` measured.

accept_page.py    the answer as one HTML page
accept_text.py    the answer as lines of a terminal, and what to do
acceptance.py     the answer: nodes, units, parts; verdicts of all from those of the parts
part_verdicts.py  the verdict of each part, by its expected times
expected.py       what a part should take: machines of the shipped sets, this machine's history, its peers, public rates
parts.py          which measured values are judged, and what each is called
"""
