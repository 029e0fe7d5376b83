"""What can draft for a session of the gateway, one file each."""
