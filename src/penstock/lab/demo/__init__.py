"""The demonstration: a stateful flow over a live stream whose hot keys move, checked row by row at the end.

`flow` is what a user would write, `check` compares with the one-row-at-a-time run, `show` prints, and
`__main__` runs it all: `python -m penstock.lab.demo`.
"""
