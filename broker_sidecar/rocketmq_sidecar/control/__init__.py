"""Carries out what the control machine decides: controllers, broker, identity, fence."""
