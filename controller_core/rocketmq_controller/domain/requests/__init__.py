"""One module per kind of request: the state and the request go in, answer and events come out."""
