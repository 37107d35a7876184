"""What a replica does with the controllers: leader, identity, master, write lease, SyncStateSet."""
