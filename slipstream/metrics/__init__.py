"""What the services count, and how it is shown."""
