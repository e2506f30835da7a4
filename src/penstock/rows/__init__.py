"""The data model: records and their types, chunks of rows as columns, keys and ranges of keys, event time."""
