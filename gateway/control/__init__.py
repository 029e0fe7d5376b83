"""Who drafts, how much and for how many outcomes: measured, weighed, decided, told."""
