"""One workflow for each command: reads, computes by the other rooms, prints and writes.

The module, its function and the command have the same name; `okapi.cli` calls the function with the options.
"""
