"""`make bench`: the controller beside the Java controller, in one run on one machine, with the same client."""
