"""From a producer's request to its acknowledgement."""
