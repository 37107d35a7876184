"""Are the bytes of a log sound: a chain of records, their checksums, and the consume queues that lead to them?"""
