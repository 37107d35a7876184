"""`kubectl rocketmq`: what on-call people ask of broker groups, with the rights of the one who asks."""
