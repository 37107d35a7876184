"""Faults of every kind on real processes under load, judged by a checker that shares no code with the product.
`make campaign MINUTES=20 SEED=7`; docs/reliability.md has the results.

needs.py     what the machine has to have
runner.py    rounds: a cluster, load, faults, healing, judgement
plan.py      what a round is made of, all from one seed
network.py   a namespace for each node and a router between them: partitions in each direction
disks.py     a file system for each replica: full disks, power cuts
shim.c       slow and failing syncs, clocks that jump, inside the processes
cluster.py   controllers, a name server, replicas: native, official, both in one group
nemesis.py   injects the faults, and what they are made of
faults/      the faults, by kind
wire.py      RocketMQ's remoting protocol and records, written again for the load and the checker
load.py      numbered messages, live consumers, consumer offsets, delayed messages
watcher.py   polls the controllers all the time
judge.py     compares what was promised with what is stored
defects.py   errors in the logs that nothing explains
report.py    the tables of docs/reliability.md
"""
