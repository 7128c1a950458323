"""The sweep file: its schema, its error messages, and the combinations in it.

sweep.py               reads a file, or a packaged sweep, into trials
schema.py              what a file may contain
validation.py          checks a file against the schema, and words its errors
hints.py               what to write in place of a value that its field does not take
grids.py               the values that a grid combines
expansion.py           combines values of fields into configurations
users_code.py          references to the user's code, and what may stand beside them
located_yaml.py        YAML that remembers line numbers, so an error can say where it is
ranges.py              ranges of numbers: 128..1024; durations: 30m; shards: 3/16
"""
