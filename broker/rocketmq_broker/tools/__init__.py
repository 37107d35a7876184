"""What administrators ask of a broker, and the numbers that dashboards show."""
