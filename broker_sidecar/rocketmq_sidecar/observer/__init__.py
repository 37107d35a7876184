"""The sidecar beside an official Apache broker (brokerEngine=apache): it watches, reports, fences and hands over."""
