"""Rules of consuming: members, subscriptions, locks, retries, delays."""
