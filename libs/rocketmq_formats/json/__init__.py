"""JSON as fastjson reads and writes it."""
