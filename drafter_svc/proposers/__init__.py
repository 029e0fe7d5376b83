"""What can draft in the drafter service, one file each."""
