"""Files that outlive the log and record how far it reached: they show after a crash what was lost."""
