"""What the demo tells: faults one after the other, what they cost, and how that is shown."""
