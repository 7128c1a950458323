"""The sweep file: its schema, its errors, and the combinations that it asks for.

sweep.py          a file or a packaged name, read to trials
schema.py         what a file may hold
located_yaml.py   YAML that remembers its lines, so an error can say where it is
expansion.py      values for fields, and the configurations that they combine to
"""
