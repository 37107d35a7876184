"""What tests and benchmarks run of official RocketMQ beside `rocketmq_demo.apache`: consumers, producers under load,
`mqadmin` and controllers. Not in the wheel.

The programs in java/ are compiled together with the demo's own (`programs.classpath`).
"""
