"""Reports for people, programs and Kubernetes."""
