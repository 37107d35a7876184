"""The kinds of brokers that the story can run on: ours, and official ones. Each brings its load."""
