"""The sweep file: its schema, its error messages, and the combinations in it.

sweep.py               reads a file, or a packaged sweep, into trials
schema.py              what a file may contain
first_sweep.py         writes a first sweep file for a folder of the user's code
own_code.py            references to the user's own code, and what may stand beside them
software_axis.py       the releases in which a trial's environment differs from the installed one
hugging_face_json.py   dimensions that a Hugging Face configuration states
located_yaml.py        YAML that remembers line numbers, so an error can say where it is
hints.py               what to write in place of a value that its field does not take
mistyped.py            keys that are nearly right, and numbers in quotes
ranges.py              ranges of numbers: 128..1024, 100..400+100; durations: 30m; end times: 17:30
shard.py               a part of a sweep for one job of an array
expansion.py           combines values of fields into configurations
"""
