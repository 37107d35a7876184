"""What a replica stores besides its log: topics, groups and offsets; their files, and their copies at slaves."""
