"""The tables as values: topics, groups, offsets."""
