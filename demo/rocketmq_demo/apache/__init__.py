"""The official RocketMQ, run from its released jars.

Our controller, name server and sidecar claim to work with the official broker, clients and ``mqadmin`` unchanged; this
package starts those, so that tests and benchmarks can hold us to it.
"""
